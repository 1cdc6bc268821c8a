"""The vendor's firmware: which bytes of the chip's memory a request writes, in which order, and how the driver reads
each answer.
"""

import pytest

from ringup.drivers.usb4 import tlp
from ringup.drivers.usb4.stock import StockFirmware
from ringup.drivers.usb4.tlp import ABORT, SUCCESS, UNSUPPORTED, Completion
from ringup.errors import DeviceLost, DeviceTimeout, NotSupported

STATUS, COMMAND, DATA_IN = 0x83, 0x04, 0x81
VERSION, LTSSM = 0x07F0, 0xB450
START = [(0xB254, 0x0F), (0xB296, 0x04)]
CLEAR = [(0xB296, 0x01), (0xB296, 0x02)]


class Registers:
    """XDATA behind Attached SCSI. `answers` lists what the engine's registers show after each request, in order."""

    def __init__(self, device):
        self.device, self.memory, self.log, self.reads = device, {}, [], []
        self.answers, self.written = [], []
        self.poke(VERSION, bytes.fromhex("240417850000"))
        self.poke(LTSSM, b"\x48")
        device.answer = self.take

    def poke(self, address, data):
        self.memory.update(enumerate(data, address))

    def answer(self, state=2, value=0, status=0, count=4, carried=1):
        """Return what registers show: docs/asm2464pd.md, "TLP engine"."""
        header = (status << 13 | count).to_bytes(2, "big")
        self.answers.append(
            {0xB220: value.to_bytes(4, "big"), 0xB22A: header, 0xB284: bytes([carried]), 0xB296: bytes([state])}
        )

    def take(self, endpoint, stream, data):
        if endpoint != COMMAND:
            self.written.append(data)
            return
        tag, cdb = int.from_bytes(data[2:4], "big"), data[16:]
        address = int.from_bytes(cdb[3:5], "big")
        refused = b""
        if cdb[0] == 0xE4:
            self.reads.append((address, cdb[1]))
            if self.refuses_reads:
                refused = bytes.fromhex("700005000000000a00000000240000000000")
            else:
                reply = bytes(self.memory.get(at, 0) for at in range(address, address + cdb[1]))
                self.device.say(DATA_IN, reply, stream=tag)
        elif cdb[0] == 0xE5:
            self.log.append((address, cdb[1]))
            self.memory[address] = cdb[1]
            if (address, cdb[1]) == START[1] and self.answers:
                for at, raw in self.answers.pop(0).items():
                    self.poke(at, raw)
        else:
            self.log.append(cdb.hex())
        head = bytes([3, 0]) + tag.to_bytes(2, "big") + bytes(2) + bytes([2 if refused else 0]) + bytes(7)
        self.device.say(STATUS, head + len(refused).to_bytes(2, "big") + refused, stream=tag)

    refuses_reads = False


@pytest.fixture
def chip(wire):
    device, port = wire()
    registers = Registers(device)
    firmware = StockFirmware(port)
    registers.firmware, registers.port = firmware, port
    registers.log.clear()
    registers.reads.clear()
    return registers


def test_the_version_is_read_where_the_firmware_keeps_it(chip):
    assert (chip.firmware.kind, chip.firmware.version) == ("stock", "240417_85_00_00")


def test_a_chip_that_refuses_this_form_of_read_is_not_driven(wire):
    device, port = wire()
    registers = Registers(device)
    registers.refuses_reads = True
    with pytest.raises(NotSupported, match=r"the way an ASM246x does .*05/24/00"):
        StockFirmware(port)


@pytest.mark.parametrize(
    ("patched", "version", "kind"),
    [(True, "240417850000", "patched"), (True, "241129850000", "stock"), (False, "240417850000", "stock")],
)
def test_the_fast_path_needs_identity_and_version(wire, patched, version, kind):
    device, port = wire()
    Registers(device).poke(VERSION, bytes.fromhex(version))
    firmware = StockFirmware(port, patched=patched)
    assert firmware.kind == kind
    assert (firmware.bulk is not None) == (kind == "patched")


def test_a_posted_write_sets_fields_in_the_known_order_and_is_fired_last(chip):
    chip.firmware.post([tlp.memory_write(0x8_1000_0004, 0x1122_3344)])
    chip.firmware.settle()
    assert chip.log == [
        *((0xB220, 0x11), (0xB221, 0x22), (0xB222, 0x33), (0xB223, 0x44)),  # bits 31:0, big-endian
        (0xB213, 1),
        *((0xB218, 0x10), (0xB219, 0x00), (0xB21A, 0x00), (0xB21B, 0x04)),
        *((0xB21C, 0x00), (0xB21D, 0x00), (0xB21E, 0x00), (0xB21F, 0x08)),
        (0xB217, 0x0F),
        (0xB210, 0x60),  # four dwords of header, above 4 GiB
        *START,
    ]
    assert chip.reads == []


def test_only_bytes_that_changed_are_written_again_and_the_start_always(chip):
    chip.firmware.post([tlp.memory_write(0x1000_0000, 0x11)])
    chip.firmware.settle()
    chip.log.clear()
    chip.firmware.post([tlp.memory_write(0x1000_0000, 0x11), tlp.memory_write(0x1000_0004, 0x12)])
    chip.firmware.settle()
    assert chip.log == [*START, (0xB223, 0x12), (0xB21B, 4), *START]


def test_a_read_clears_the_state_fires_and_looks_in_one_wait(chip):
    chip.answer(value=0xCAFE_F00D)
    before = chip.port.counts.copy()
    assert chip.firmware.request([tlp.memory_read(0x1000_0000)]) == [Completion(SUCCESS, 0xCAFE_F00D)]
    assert chip.port.counts.since(before).waits == 1
    assert chip.log[-4:] == [*CLEAR, *START]
    assert (0xB210, 0x00) in chip.log
    assert chip.reads == [(0xB296, 1), (0xB220, 12), (0xB284, 1)]


def test_an_answer_overwrites_the_data_bytes_so_they_are_written_anew(chip):
    chip.firmware.post([tlp.memory_write(0x1000_0000, 0x11)])
    chip.answer(value=0x99)
    chip.firmware.request([tlp.memory_read(0x1000_0000)])
    chip.log.clear()
    chip.firmware.post([tlp.memory_write(0x1000_0000, 0x11)])
    chip.firmware.settle()
    assert chip.log[:4] == [(0xB220, 0), (0xB221, 0), (0xB222, 0), (0xB223, 0x11)]


@pytest.mark.parametrize(
    ("request_", "fields"),
    [
        (tlp.config_read(0, 0, 0, 0), {0xB210: 0x04, 0xB217: 0x0F, 0xB218: 0x00}),
        (tlp.config_read(4, 1, 2, 0x104), {0xB210: 0x05, 0xB218: 0x04, 0xB219: 0x0A, 0xB21A: 0x01, 0xB21B: 0x04}),
        (tlp.config_write(1, 0, 0, 0x19, 0x42, 1), {0xB210: 0x45, 0xB217: 0x02, 0xB21B: 0x18, 0xB222: 0x42}),
    ],
)
def test_configuration_requests_have_their_own_types(chip, request_, fields):
    chip.answer(value=7, carried=0 if request_.writes else 1)
    (completion,) = chip.firmware.request([request_])
    assert completion.status == SUCCESS
    written = dict(chip.log)
    assert fields.items() <= written.items()


@pytest.mark.parametrize(("status", "value"), [(UNSUPPORTED, 5), (ABORT, 5), (2, 5)])
def test_a_status_other_than_success_is_returned_and_its_data_is_not(chip, status, value):
    chip.answer(value=value, status=status, carried=0)
    assert chip.firmware.request([tlp.memory_read(0x1000)]) == [Completion(status, 0xFFFF_FFFF)]
    # The driver asks once: this is an answer.
    assert chip.log.count(START[1]) == 1


def test_a_garbled_request_is_repeated(chip):
    chip.answer(state=1)
    chip.answer(state=1)
    # A bit without meaning here may be set too.
    chip.answer(state=6, value=9)
    assert chip.firmware.request([tlp.memory_read(0x1000)]) == [Completion(SUCCESS, 9)]
    assert chip.log.count(START[1]) == 3


@pytest.mark.parametrize("wrong", [{"count": 1}, {"count": 8}])
def test_an_answer_of_another_length_is_not_this_requests(chip, wrong):
    chip.answer(value=1, **wrong)
    chip.answer(value=2)
    assert chip.firmware.request([tlp.memory_read(0x1000)]) == [Completion(SUCCESS, 2)]


def test_data_with_a_write_or_none_with_a_read_of_configuration_is_not_believed(chip):
    chip.answer(value=1, carried=0)
    chip.answer(value=2, carried=1)
    assert chip.firmware.request([tlp.config_read(0, 0, 0, 0)])[0].value == 2
    chip.answer(carried=1)
    chip.answer(carried=0)
    assert chip.firmware.request([tlp.config_write(0, 0, 0, 4, 6)])[0].status == SUCCESS
    assert chip.log.count(START[1]) == 4


def test_a_request_that_is_never_answered_ends_within_a_bound(chip):
    chip.memory[0xB296] = 0
    for _ in range(40):
        chip.answer(state=0)
    before_us = chip.device.clock.now_us
    with pytest.raises(DeviceTimeout, match=r"memory read at 0x1000: no completion in 11 tries, with the link up"):
        chip.firmware.request([tlp.memory_read(0x1000)])
    assert chip.device.clock.now_us - before_us < 3_000_000


def test_a_link_that_went_down_is_a_lost_card(chip):
    chip.poke(LTSSM, b"\x01")
    for _ in range(11):
        chip.answer(state=1)
    with pytest.raises(DeviceLost, match=r"the link between enclosure and card is down \(LTSSM 0x01\)"):
        chip.firmware.request([tlp.memory_read(0x1000)])


def test_reads_go_ahead_of_their_answers_and_from_a_garbled_one_on_again(chip):
    for state, value in ((2, 10), (1, 0), (2, 99), (2, 11), (2, 12)):
        chip.answer(state=state, value=value)
    answers = chip.firmware.request([tlp.memory_read(0x1000 + 4 * at) for at in range(3)])
    assert [answer.value for answer in answers] == [10, 11, 12]
    assert chip.log.count(START[1]) == 5


def test_no_write_is_sent_after_an_unanswered_read(chip):
    chip.answer(state=1)
    chip.answer(value=3)
    chip.firmware.request([tlp.memory_read(0x1000), tlp.memory_write(0x2000, 0x77), tlp.memory_write(0x2000, 0x78)])
    data = [value for address, value in chip.log if address == 0xB223]
    # Each write goes once, though the read was repeated.
    assert data == [0x77, 0x78]


def test_a_late_answer_is_waited_for(chip):
    chip.answer(state=0)
    registers, sleep = chip, chip.device.clock.sleep_us

    def later(time_us):
        sleep(time_us)
        registers.poke(0xB296, b"\x02")
        registers.poke(0xB220, b"\0\0\0\x05")
        registers.poke(0xB22A, b"\0\x04")

    chip.device.clock.sleep_us = later
    assert chip.firmware.request([tlp.memory_read(0x1000)]) == [Completion(SUCCESS, 5)]
    assert chip.log.count(START[1]) == 1


def test_the_chips_memory_is_read_255_bytes_a_command(chip):
    chip.poke(0xF000, bytes(range(256)) * 3)
    assert chip.firmware.xdata_read(0xF000, 600) == (bytes(range(256)) * 3)[:600]
    assert [count for _, count in chip.reads] == [255, 255, 90]
    with pytest.raises(ValueError, match="ends at 0x10000"):
        chip.firmware.xdata_read(0xFFFF, 2)


def test_the_slot_cannot_be_switched_off_and_on_waits_for_the_link(chip):
    with pytest.raises(NotSupported, match="use the enclosure's switch"):
        chip.firmware.power(False)
    chip.poke(LTSSM, b"\x10")
    chip.firmware.power(True)
    assert 2_000_000 < chip.device.clock.now_us < 4_000_000
    assert not chip.firmware.link().up


def test_a_page_of_memory_goes_and_comes_byte_by_byte_without_the_patch(chip):
    bulk = chip.firmware.page
    # docs/asm2464pd.md: XDATA a000
    assert bulk.bus_addr == 0x820000
    bulk.fill(0, b"abc")
    chip.firmware.settle()
    assert chip.log == [(0xA000, 0x61), (0xA001, 0x62), (0xA002, 0x63)]
    bulk.arm(0, 3)
    assert bulk.drain() == b"abc"
    with pytest.raises(ValueError, match="4096 bytes can be filled"):
        bulk.fill(4000, bytes(100))


@pytest.fixture
def patched(wire):
    device, port = wire()
    registers = Registers(device)
    registers.firmware = StockFirmware(port, patched=True)
    registers.log.clear()
    return registers


POKES = [  # tinygrad, tinygrad/runtime/support/usb.py, ASM24Controller.__init__
    *((0x054B, 0x20), (0x054E, 4), (0x05A8, 2), (0x05F8, 4), (0x07EC, 1), (0x07ED, 0), (0x07EE, 0), (0x07EF, 0)),
    *((0xC422, 2), (0x0000, 0x33)),
]
FREED = [(0x0171, 0xFF), (0x0172, 0xFF), (0x0173, 0xFF), (0xCE6E, 0), (0xCE6F, 0)]
BACK = [(0xCE40, 0), (0xCE41, 0), (0xCE42, 0), (0xCE43, 0)]


def write_16(sectors):
    return "8a00" + "00" * 8 + f"{sectors:08x}" + "0000"


def test_a_small_fill_is_set_up_once_written_and_its_slots_freed(patched):
    patched.firmware.bulk.fill(0, b"x" * 700)
    assert patched.log == [*POKES, *FREED, *BACK, write_16(2), *FREED, *BACK]
    assert patched.written == [b"x" * 700 + bytes(324)]
    patched.log.clear()
    patched.firmware.bulk.fill(0, b"y" * 512)
    assert patched.log == [write_16(1), *FREED, *BACK]


def test_the_counters_go_back_one_by_one(patched):
    """The values are written as tinygrad's usb.py writes them: each has its status before the next is sent."""
    early, take = [], patched.take

    def watched(endpoint, stream, data):
        if endpoint == COMMAND and int.from_bytes(data[19:21], "big") in dict(BACK):
            early.extend(place for place, waiting in patched.device.ready.items() if waiting)
        take(endpoint, stream, data)

    patched.device.answer = watched
    patched.firmware.bulk.fill(0, b"x" * 700)
    assert patched.log[-4:] == BACK
    assert early == []


def test_a_large_fill_goes_in_chunks_of_64_kib_all_at_block_0(patched):
    patched.firmware.bulk.fill(0, bytes([7]) * 0x1_4001)
    assert patched.log == [*POKES, *FREED, *BACK, write_16(128), *FREED, write_16(128), *FREED, *BACK]
    assert [len(data) for data in patched.written] == [0x1_0000, 0x1_0000]
    assert b"".join(patched.written).rstrip(b"\0") == bytes([7]) * 0x1_4001


def test_the_last_slot_is_never_used_and_only_slots_can_be_filled(patched):
    bulk = patched.firmware.bulk
    assert bulk.size_bytes <= 31 * 0x4000
    bulk.fill(0, bytes(bulk.size_bytes))
    assert sum(len(data) for data in patched.written) <= 31 * 0x4000
    for offset, size in ((0x200, 512), (bulk.size_bytes, 1), (0, bulk.size_bytes + 1), (0, 0)):
        with pytest.raises(ValueError, match="whole slots up to 0x70000 can be filled"):
            bulk.fill(offset, bytes(size))


def test_a_later_slot_is_reached_by_sending_the_bytes_before_it_again(patched):
    bulk = patched.firmware.bulk
    bulk.fill(0, b"a" * 0x5000)
    patched.written.clear()
    bulk.fill(0x8000, b"b" * 0x100)
    (sent,) = patched.written
    assert sent == (b"a" * 0x5000).ljust(0x8000, b"\0") + (b"b" * 0x100).ljust(0x8000, b"\0")


def test_the_buffers_first_page_is_read_through_its_window(patched):
    patched.poke(0xF000, bytes(range(200)))
    bulk = patched.firmware.bulk
    bulk.arm(0, 200)
    assert bulk.drain() == bytes(range(200))
    with pytest.raises(ValueError, match="nothing was armed"):
        bulk.drain()
    with pytest.raises(ValueError, match="1 to 4096 bytes at the start can be drained"):
        bulk.arm(4096, 10)
