"""Ctrl-C at any moment, faulty kernels, unusual or lying boards, unreliable links: behind an enclosure as in a slot."""

import random
import threading

import pytest

import ringup
from ringup.autogen.linux import pci
from ringup.drivers.usb4 import tlp
from ringup.drivers.usb4.config import ANSWER_US, Fabric, Place, capability, extended_capability
from ringup.drivers.usb4.topology import find_board
from ringup.errors import DeviceFault, DeviceHung, DeviceLost, DeviceTimeout, LinkDown, TransportError
from ringup.queues.queue import Queue
from ringup.queues.ring import Ring
from ringup.queues.timeline import Point

MIB = 1 << 20


class Pressed:
    """A host that raises KeyboardInterrupt inside its call number `at`. Calls that begin a transfer or wait for events
    count.
    """

    def __init__(self, host):
        self.host, self.calls, self.at, self.begun = host, 0, -1, []
        self._submit, self._wait = host.submit, host.handle_events
        host.submit, host.handle_events = self.submit, self.wait

    def _count(self):
        self.calls += 1
        if self.calls == self.at:
            raise KeyboardInterrupt

    def submit(self, *args, **options):
        self._count()
        self.begun.append(self._submit(*args, **options))
        return self.begun[-1]

    def wait(self, timeout_ms):
        self._count()
        return self._wait(timeout_ms)

    def arm(self, at):
        self.calls, self.at, self.begun = 0, at, []


@pytest.mark.parametrize("phase", ["open", "upload", "download", "compute"])
def test_ctrl_c_at_any_call_leaves_nothing_in_flight_and_a_card_that_opens_again(docks, phase, sample):
    dock = docks()
    dock.open()
    host = Pressed(dock.host)

    def run(seed):
        if phase == "open":
            dock.open()
        else:
            getattr(dock, phase)(seed)

    # The first use creates things that the second finds.
    for _ in range(2):
        if phase == "open":
            dock.close()
        host.arm(-1)
        run(0)
    # The same work takes a few calls more or less.
    calls = host.calls * 4 // 5
    for point in sample(range(4), few=2):
        if phase == "open":
            dock.close()
        host.arm(1 + random.Random(f"{phase} {point}").randrange(calls * point // 4, calls * (point + 1) // 4))
        with pytest.raises(KeyboardInterrupt):
            run(point)
        host.at = -1
        dock.close()
        assert [one.status for one in host.begun if not one.done] == [], (phase, point)
        dock.recover()


def refusal(dock, seed):
    """Copy both ways and compute; return the error's text, or nothing."""
    try:
        dock.upload(seed)
        dock.download(seed)
        dock.compute(seed)
    except (DeviceHung, TransportError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("phase", ["upload", "download", "compute"])
def test_ctrl_c_leaves_a_card_that_works_or_says_what_to_do(docks, phase, sample):
    """Every transfer has ended. The next operation moves the right bytes or is refused, and a reopened card works."""
    dock = docks()
    dock.open()
    host, tried, refused = Pressed(dock.host), 0, 0
    getattr(dock, phase)(0)
    host.arm(-1)
    getattr(dock, phase)(0)
    for point in sample(range(1, host.calls + 1), few=6):
        tried += 1
        host.arm(point)
        with pytest.raises(KeyboardInterrupt):
            getattr(dock, phase)(point)
        host.at = -1
        told = refusal(dock, point)
        if told:
            assert "open it again" in told, (phase, point)
            refused += 1
            dock.open()
            assert not refusal(dock, point)
    # Most interruptions leave nothing to refuse.
    assert refused <= tried // 2 + 1


class Impatient:
    """A host whose waits are interrupted: `presses` of them in sequence, from the first that takes time."""

    def __init__(self, host, monkeypatch):
        self.presses, self._wait = 0, host.handle_events
        monkeypatch.setattr(host, "handle_events", self.wait)

    def wait(self, timeout_ms):
        if self.presses and timeout_ms > 0:
            self.presses -= 1
            raise KeyboardInterrupt
        return self._wait(timeout_ms)


@pytest.mark.parametrize("presses", [1, 2, 3])
def test_a_stream_interrupted_by_ctrl_c_arrives_whole_or_the_card_is_refused(docks, monkeypatch, presses):
    """Some bytes may be under way when the call that sent them has returned. They must not be confused with the next
    ones.
    """
    dock = docks()
    card, size = dock.open(), 400_000
    window, buffers = card.blocks.device.bars[0], [card.alloc(size) for _ in range(2)]
    first, second = (random.Random(seed).randbytes(size) for seed in range(2))
    host = Impatient(dock.host, monkeypatch)
    window.write_block(card.spaces.user.place(buffers[0]), first)
    host.presses = presses
    with pytest.raises(KeyboardInterrupt):
        window.read_block(0, 4)
    host.presses = 0
    place = card.spaces.user.place(buffers[1])
    if presses > 1:
        with pytest.raises(TransportError, match="that was interrupted"):
            window.write_block(place, second)
        assert dock.memory(buffers[1])[:4] != first[1024:1028]
    else:
        window.write_block(place, second)
        window.read_block(0, 4)
        assert dock.memory(buffers[0]) == first
        assert dock.memory(buffers[1]) == second
    dock.recover()


def test_posted_writes_that_ctrl_c_ends_too_early_are_remembered(docks, monkeypatch):
    """This happens when the bridge does not answer within the time that the driver allows for the end."""
    dock = docks()
    card = dock.open()
    buffer = card.alloc(4096)
    window, place = card.blocks.device.bars[0], card.spaces.user.place(buffer)
    card.device.bridge.port.settle()
    host = Impatient(dock.host, monkeypatch)
    monkeypatch.setattr("ringup.drivers.usb4.port.SLACK_MS", 0)
    host.presses = 1

    def post():
        for at in range(200):
            window.write32(place + 4 * at, at + 1)

    with pytest.raises(KeyboardInterrupt):
        post()
    monkeypatch.undo()
    assert not all(dock.memory(buffer)[4 * at] for at in range(64))
    with pytest.raises(TransportError, match=r"memory write .* was interrupted, .* open it again"):
        window.read32(0)
    dock.radeon.violations.clear()
    dock.recover()


@pytest.mark.parametrize(("owner", "moment"), [(Queue, "_put_ahead"), (Ring, "put")])
def test_commands_that_were_put_ahead_are_taken_back_with_their_submission(docks, monkeypatch, owner, moment):
    """Otherwise the next submission would start them, and the engine would wait for bytes that never come."""
    dock = docks()
    card = dock.open()
    dock.upload(0)
    size = 40 * MIB // 4
    target, real, calls = card.alloc(size), getattr(owner, moment), []

    def interrupted(of, *args):
        calls.append(args)
        # This store belongs to the submission itself. It comes after the put's store and takes the short path.
        if owner is Ring:
            raise KeyboardInterrupt
        result = real(of, *args)
        if owner is Queue:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(owner, moment, interrupted)
    with pytest.raises(KeyboardInterrupt):
        card.copy.upload(target, bytes(size))
    monkeypatch.undo()
    begun_us = dock.clock.now_us
    card.copy.fill(target, 0x1111_1111).wait()
    assert dock.clock.now_us - begun_us < 1_000_000
    assert calls
    dock.upload(1, size)
    dock.download(1)


def test_a_refused_copy_of_another_thread_has_no_effect(docks):
    dock = docks()
    card = dock.open()
    dock.upload(0)
    seen = []
    with card.alloc(4096) as buffer:

        def copy():
            for move in (lambda: card.copy.upload(buffer, bytes(4096)), lambda: card.copy.download(buffer)):
                try:
                    move()
                except ValueError as error:
                    seen.append(str(error))

        thread = threading.Thread(target=copy)
        thread.start()
        thread.join(60)
    assert len(seen) == 2
    assert all("belongs to thread" in text for text in seen)
    dock.upload(1)
    dock.download(1)


@pytest.mark.parametrize("upload", [True, False])
@pytest.mark.parametrize("size_bytes", [4096, 4 * MIB])
def test_a_copy_of_an_unmapped_address_is_a_fault_also_when_fills_wait_for_it(docks, size_bytes, upload):
    dock = docks()
    card = dock.open()
    dock.upload(0)
    path = card.copy._byte_path()
    move, data = path.upload if upload else path.download, memoryview(bytearray(size_bytes))
    with pytest.raises(DeviceFault, match="0x7fff"):
        (move(card.copy, 0x7FFF_0000_0000, data) or Point(card.copy.timeline, 0)).wait()
    dock.radeon.violations.clear()
    with pytest.raises((DeviceFault, DeviceHung)):
        dock.upload(1)
    card.reset()
    for work in (dock.upload, dock.download, dock.compute):
        work(2)


def test_an_unmapped_address_is_a_fault_that_names_the_buffer_next_to_it_also_when_warm(docks):
    dock = docks()
    card = dock.open()
    good, gone = card.alloc(4096, name="kept"), card.alloc(4096, name="given back")
    gpu_va = gone.gpu_va
    program = card.load(dock.code)
    for _ in range(3):
        stream = card.compute.stream()
        stream.dispatch(program["twice"], 1, 64, [good])
        card.compute.submit(stream).wait()
    gone.free()
    stream = card.compute.stream()
    stream.dispatch(program["twice"], 1, 64, [gpu_va])
    with pytest.raises(DeviceFault, match="given back"):
        card.compute.submit(stream).wait()
    # The model recorded it too.
    assert dock.radeon.violations
    card.reset()
    dock.radeon.violations.clear()
    dock.compute(1)
    dock.upload(1)
    dock.download(1)


@pytest.mark.parametrize("half_rings", [True, False])
def test_a_card_that_ignores_half_a_doorbell_gets_both_halves(docks, half_rings):
    """The driver does not know which kind of card it has. It finds out with the first queue of each kind."""
    dock = docks()
    dock.radeon.nbio.half_rings = half_rings
    card = dock.open()
    for seed in range(2):
        dock.compute(seed)
    dock.upload(0)
    dock.download(0)
    more = card.new_compute_queue()
    before = card.device.counts.control
    more.submit(more.stream()).wait()
    transfers = card.device.counts.control - before
    assert transfers == (4 if half_rings else 5)
    card.reset()
    dock.compute(2)


def test_a_queue_that_ignores_its_doorbell_is_named_within_a_bound(docks, monkeypatch):
    dock = docks()
    card = dock.open()
    dock.compute(0)
    queues = card.queues
    monkeypatch.setattr(dock.radeon.nbio, "doorbell", lambda index, value, size_bytes: None)
    card._queues._both_halves.clear()
    begun_us = dock.clock.now_us
    with pytest.raises(
        DeviceTimeout, match="mapping compute 1: it did not begin what it was given within 50 ms, whether"
    ):
        card.new_compute_queue()
    assert dock.clock.now_us - begun_us < 1_000_000
    assert card.queues == queues
    monkeypatch.undo()
    card.new_compute_queue()
    dock.compute(1)


def test_an_endless_kernel_runs_out_of_time_and_a_reset_recovers(docks):
    dock = docks()
    card = dock.open()
    flag = card.alloc(4096)
    card.copy.fill(flag, 0).wait()
    stream = card.compute.stream()
    stream.dispatch(card.load(dock.code)["spin"], 1, 32, [flag])
    hung = card.compute.submit(stream)
    with pytest.raises((DeviceTimeout, DeviceHung)):
        hung.wait(0.002)
    card.reset()
    with pytest.raises(DeviceHung):
        hung.wait()
    dock.compute(2)
    dock.upload(2)
    dock.download(2)


# --- a small bridge: a table describes what is behind it -------------------------------------------------------------
class Clock:
    now_us = 0

    def sleep_us(self, time_us):
        self.now_us += time_us


class Behind:
    """A `Bridge` with functions behind it: configuration space as a table of dwords, with the bits that stay set when
    ones are written.
    """

    name = "usb:1-1"

    def __init__(self):
        self.clock, self.port = Clock(), self
        self.space, self.holds, self.sent = {}, {}, []
        self.patience_us = 0

    def add(self, place, words, holds=()):
        self.space[place] = dict(words)
        self.holds[place] = dict(holds)

    def port_at(self, place, secondary, *, wide=True, kind=pci.PCI_EXP_TYPE_ROOT_PORT, ids=0x2461_1B21):
        window = pci.PCI_PREF_RANGE_TYPE_64 if wide else 0
        words = {
            0: ids,
            8: 0x0604_0000,
            0xC: 0x0001_0000,
            0x24: window | window << 16,
            0x34: 0x40,
            0x40: 0x10 | kind << 20,
        }
        self.add(place, words)

    def device(self, place, **words):
        at = {"ids": 0, "class_": 8, "header": 0xC}
        self.add(place, {0: 0x744C_1002, 8: 0x0300_0000, 0xC: 0} | {at[key]: value for key, value in words.items()})

    def request(self, requests, *, replay=False, absent=False):
        return [self.answer(one) for one in requests]

    def answer(self, request):
        self.sent.append(request)
        address = request.address
        place, at = Place(address >> 24, address >> 19 & 31, address >> 16 & 7), address & 0xFFC
        words = self.space.get(place)
        if words is None:
            return tlp.Completion(tlp.UNSUPPORTED)
        if place.bus and self.clock.now_us < self.patience_us:
            return tlp.Completion(tlp.RETRY)
        if not request.writes:
            return tlp.Completion(tlp.SUCCESS, words.get(at, 0))
        for lane in range(4):
            if request.enables >> lane & 1:
                mask = 0xFF << 8 * lane
                words[at] = words.get(at, 0) & ~mask | request.value & mask
        if at in self.holds[place]:
            words[at] = words[at] & self.holds[place][at][0] | self.holds[place][at][1]
        return tlp.Completion(tlp.SUCCESS)


@pytest.fixture
def behind():
    """A root port and a card with BARs of 256 MiB (wide, prefetchable) and 1 MiB behind it."""
    made = Behind()
    made.port_at(Place(0, 0, 0), 1)
    made.device(Place(1, 0, 0))
    made.holds[Place(1, 0, 0)] = {
        0x10: (0xF000_0000, 0xC), 0x14: (0xFFFF_FFFF, 0), 0x18: (0, 0), 0x1C: (0, 0), 0x20: (0, 0),
        0x24: (0xFFF0_0000, 0), 0x30: (0, 0),
    }  # fmt: skip
    return made


def test_a_board_with_wide_windows_has_its_memory_above_4_gib_and_one_without_below(behind):
    board = find_board(Fabric(behind))
    assert [(bar.index, bar.size_bytes, bar.address >= tlp.FOUR_GIB) for bar in board.bars] == [
        (0, 256 << 20, True),
        (5, 1 << 20, False),
    ]
    assert board.rom is None
    behind.port_at(Place(0, 0, 0), 1, wide=False)
    assert all(bar.address < tlp.FOUR_GIB for bar in find_board(Fabric(behind)).bars)


def test_an_endless_chain_of_buses_is_refused(behind):
    for bus in range(12):
        behind.port_at(Place(bus, 0, 0), bus + 1)
    with pytest.raises(TransportError, match="8 ports one below another"):
        find_board(Fabric(behind))
    assert len(behind.sent) < 1_000


def test_capabilities_that_run_in_a_circle_end_the_search(behind):
    place = Place(1, 0, 0)
    behind.space[place] |= {0x34: 0x50, 0x50: 0x6005, 0x60: 0x5009, 0x100: 0x2000_0003, 0x200: 0x1000_0004}
    assert capability(Fabric(behind), place, pci.PCI_CAP_ID_EXP) is None
    assert extended_capability(Fabric(behind), place, pci.PCI_EXT_CAP_ID_REBAR) is None
    assert capability(Fabric(behind), place, 0x09) == 0x60
    find_board(Fabric(behind))


def test_a_card_without_memory_or_rom_is_a_board_without_them(behind):
    behind.holds[Place(1, 0, 0)] = dict.fromkeys((*range(0x10, 0x28, 4), 0x30), (0, 0))
    board = find_board(Fabric(behind))
    assert (board.bars, board.rom) == ((), None)


@pytest.mark.parametrize("patience_us", [0, 900_000])
def test_a_card_that_asks_for_time_gets_a_second(behind, patience_us):
    behind.patience_us = patience_us
    assert find_board(Fabric(behind)).function.place == Place(1, 0, 0)
    assert behind.clock.now_us <= patience_us + 20_000


def test_a_card_that_asks_forever_is_reported_after_a_second(behind):
    behind.patience_us = 1 << 60
    with pytest.raises(LinkDown, match="answers with a retry status for longer than 1000 ms"):
        find_board(Fabric(behind))
    assert ANSWER_US <= behind.clock.now_us <= ANSWER_US + 20_000


@pytest.mark.parametrize("reads", range(9))
def test_a_card_that_reads_as_ones_while_it_is_looked_at_is_gone_and_none_is_written_back(behind, reads):
    place = Place(1, 0, 0)
    # a resizable BAR of 256 MiB
    behind.space[place] |= {
        0x100: 0x0001_0015,
        0x104: 0xFFF << 4,
        0x108: 0x20 | 8 << 8,
    }
    left, answer = reads, behind.answer

    def going(request):
        nonlocal left
        of_card = request.address >> 24 == place.bus
        left -= of_card and not request.writes
        # One read checks whether anything answers.
        if of_card and left < -1:
            behind.sent.append(request)
            return tlp.Completion(tlp.SUCCESS, tlp.ONES)
        return answer(request)

    behind.answer = going
    with pytest.raises(
        LinkDown, match=r"the function 01:00\.0 reads as ones now and answered before|only ports answer"
    ):
        find_board(Fabric(behind))
    written = [one.value for one in behind.sent if one.writes and one.address & 0xFFC >= 0x100]
    assert [value for value in written if value & 0xE0 == 0xE0] == []


# --- order ------------------------------------------------------------------------------------------------------------
def test_a_glitch_in_a_batch_repeats_reads_alone_and_keeps_the_order(docks):
    """Index and data pairs: if the index write were repeated behind a read, that read would return another register's
    data.
    """
    dock = docks()
    path = ringup.cards.connect("virtual:navi31@asm2464pd", enclosure=dock.enclosure)
    window = path.bars[0]
    place, chance = 128 << 20, random.Random(9)
    dock.radeon.vram.write(place, bytes(64))
    sent = []
    submit = dock.host.submit

    def watch(handle, endpoint, payload, *, setup=b"", **options):
        if setup[:2] == b"\x40\xf0":
            sent.append((setup[2], bytes(payload)))
        return submit(handle, endpoint, payload, setup=setup, **options)

    dock.host.submit = watch
    for point in range(40):
        sent.clear()
        values = [chance.getrandbits(32) for _ in range(8)]
        dock.radeon.vram.write(place, bytes(64))
        replies = []
        # Only reads count.
        dock.enclosure.faults.inject("tlp_glitch", point % 8)
        with window.batch() as batch:
            for value in values:
                batch.write32(place, value)
                replies.append(batch.read32(place))
        assert [reply.value for reply in replies] == values
        assert [int.from_bytes(data[8:], "little") for kind, data in sent if kind & 0x40] == values
        assert len([kind for kind, _ in sent if not kind & 0x40]) == 9  # one of them twice
    path.close()


def test_a_bridge_that_hangs_is_waited_for_once_and_needs_its_power_off(docks):
    dock = docks()
    path = ringup.cards.connect("virtual:navi31@asm2464pd", enclosure=dock.enclosure)
    # This is inside a stream, whose loop has no end of its own.
    dock.enclosure.faults.inject("tlp_hang", 20)
    with pytest.raises(DeviceTimeout):
        path.remote.poll(0, 0, 256)
    begun_us = dock.clock.now_us
    assert path.bars[0].read32(0) == 0xFFFF_FFFF
    # One request to the device's endpoint 0.
    assert dock.clock.now_us - begun_us < 6_000_000
    begun_us = dock.clock.now_us
    assert path.lost
    assert path.bars[0].read_block(0, 64) == b"\xff" * 64
    path.close()
    assert dock.clock.now_us == begun_us
    with pytest.raises(DeviceLost, match=r"answers nothing on USB\. .* USB4 device .*; else switch the enclosure off"):
        dock.open()
    dock.replug()
    dock.open()
    dock.compute(1)
