"""Page faults that software may handle: packets in memory, their pointers, and what becomes of the channel.

Bits of a packet are those of clc369.h, registers those of dev_vm.h (0xB80000 + 0x3000 and up, 0x20 a buffer).
"""

import struct

import pytest

from ringup.silicon.nv.rm.boards import rows

INSTANCE = 0x105000
CE, COMPUTE, HOST = 4, 1, 0
GET, PUT, SIZE = (0xB83028, 0xB8302C, 0xB83030)
INVALIDATE = 0xB830B0
OVERFLOW, CORRUPTED, VALID = 1 << 31, 1 << 30, 1 << 31
REPLAYABLE_VECTOR = 64
MMU_FAULT = 31
# the lowest directory of the channel's tables, and a free page for one more
PD0, NEW_TABLE = 0x103000, 0x10A000


def handle_faults(bench):
    """Set FAULT_REPLAY_TEX and _GCC of the channel's instance block."""
    low = struct.unpack("<I", bench.card.vram.read(INSTANCE + 0x200, 4))[0]
    bench.card.vram.write(INSTANCE + 0x200, struct.pack("<I", low | 3 << 4))


def bad_copy(bench, va=0x1234_5678, *, write=False):
    ends = (0x10000, va) if write else (va, 0x10000)
    return [*bench.incr(CE, 0x400, 0, ends[0], 0, ends[1], 0, 0, 16, 1), *bench.incr(CE, 0x300, 0x182)]


class FaultingCore:
    """Shader cores that load from an address and have no more to do."""

    def __init__(self, va):
        self.va = va

    def start(self, launch, memory):
        core = self

        class Run:
            instructions, violations, waiting, repeating = 0, (), False, False

            def step(self, instructions):
                try:
                    memory.region(core.va, False)
                except Exception:  # noqa: BLE001
                    self.violations = ("memory",)
                return False

            def kill(self):
                pass

        return Run()


def launch(bench):
    fields = {580: 3, 384: 1, 416: 1, 448: 1, 592: 32, 608: 1, 624: 1, 648: 16, 1536: 0x30000}
    raw = sum(number << place for place, number in fields.items()).to_bytes(256, "little")
    return [*bench.incr(COMPUTE, 0x318, 0, 0x200), *bench.incr(COMPUTE, 0x320, *struct.unpack("<64I", raw))]


@pytest.fixture
def replaying(graphics):
    """Return a graphics channel whose faults may be handled, and a buffer of one page (128 packets) for them."""
    handle_faults(graphics)
    graphics.card.config.write(4, graphics.card.config.read(4, 2) | 4, 2)
    graphics.memory = graphics.card.host.allocate(4096)
    graphics.card.engines.replayable.enable((graphics.memory.bus_addr(),))
    graphics.card.engines.core = FaultingCore(0x7_1234_5678)
    yield graphics
    # threads of grids that wait
    graphics.card.engines.reset()


def rd(bench, register):
    return bench.card.bars[0].read32(register)


def pending(bench, vector):
    return rd(bench, 0xB81000 + 4 * (vector // 32)) >> vector % 32 & 1


def test_a_shaders_fault_waits_in_the_replayable_buffer(replaying):
    assert rd(replaying, SIZE) == 1 << 31 | 128
    replaying.card.clock.sleep_us(1_000)
    replaying.push(*launch(replaying))
    assert replaying.failed == []
    assert (rd(replaying, GET), rd(replaying, PUT)) == (0, 1)
    assert pending(replaying, REPLAYABLE_VECTOR)
    words = struct.unpack("<8I", replaying.memory.view[:32])
    # instance block in VRAM; the page; the time; GRAPHICS; a GPC's read of a PDE that is missing, valid and replayable
    assert words[:4] == (INSTANCE, 0, 0x1234_5000, 7)
    assert 1_000_000 < words[4] < 2_000_000
    assert words[6] == 64
    assert words[7] == VALID | 1 << 30 | 1 << 7
    assert "waits after read of 0x712345678: PDE" in replaying.card.witness.unfinished()[0].text


def test_a_cancelled_fault_stops_its_channel(replaying):
    replaying.push(*launch(replaying))
    # replay of MMU_INVALIDATE: 4 cancels all
    replaying.card.bars[0].write32(INVALIDATE, 1 << 31 | 3 | 4 << 3)
    replaying.card.clock.sleep_us(10)
    assert replaying.error == (
        MMU_FAULT,
        "channel 0x00000005, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7_12345000. "
        "Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ",
    )


def test_a_replay_without_the_page_faults_again_even_if_a_packet_was_lost(replaying):
    """Source: an overflow drops packets, and UVM relies on replays to report them again."""
    buffer = replaying.card.engines.replayable
    for _ in range(127):
        buffer.put(bytes(32))
    replaying.push(*launch(replaying))
    assert (rd(replaying, PUT), replaying.failed) == (127 | OVERFLOW, [])
    replaying.card.bars[0].write32(GET, 127 | OVERFLOW)
    for put in (0, 1):
        replaying.card.bars[0].write32(INVALIDATE, 1 << 31 | 3 | 1 << 3)
        replaying.card.clock.sleep_us(10)
        assert (rd(replaying, PUT), replaying.failed) == (put, [])
    # valid, replayable, of address spaces whose faults are
    assert struct.unpack("<I", replaying.memory.view[28:32])[0] == VALID | 1 << 30 | 1 << 7


def test_the_pointers_of_a_fault_buffer(replaying):
    buffer = replaying.card.engines.replayable
    for number in range(127):
        assert buffer.put(struct.pack("<8I", *[number] * 8))
    # one place stays free
    assert not buffer.put(bytes(32))
    assert (rd(replaying, PUT), rd(replaying, GET)) == (127 | OVERFLOW, OVERFLOW)
    assert pending(replaying, 128 + 3)
    replaying.card.bars[0].write32(GET, 5)
    assert not buffer.put(bytes(32))
    # writing the flag clears it
    replaying.card.bars[0].write32(GET, 5 | OVERFLOW)
    assert (rd(replaying, PUT), rd(replaying, GET)) == (127, 5)
    assert buffer.put(struct.pack("<8I", *[0x77] * 8))
    assert rd(replaying, PUT) == 0
    assert bytes(replaying.memory.view[127 * 32 : 127 * 32 + 4]) == b"\x77\0\0\0"
    replaying.card.bars[0].write32(GET, 128)
    assert rd(replaying, GET) == 5 | CORRUPTED
    replaying.card.bars[0].write32(GET, 0 | CORRUPTED)
    assert rd(replaying, GET) == 0


def test_the_interrupt_of_faults_comes_again_while_packets_are_left(replaying):
    buffer = replaying.card.engines.replayable
    buffer.put(bytes(32))
    buffer.put(bytes(32))
    leaf = 0xB81000 + 4 * (REPLAYABLE_VECTOR // 32)
    replaying.card.bars[0].write32(leaf, 1)
    assert not pending(replaying, REPLAYABLE_VECTOR)
    replaying.card.bars[0].write32(GET, 1)
    assert pending(replaying, REPLAYABLE_VECTOR)
    replaying.card.bars[0].write32(leaf, 1)
    replaying.card.bars[0].write32(GET, 2)
    assert not pending(replaying, REPLAYABLE_VECTOR)


def test_without_a_buffer_or_the_right_a_fault_stops_the_channel(replaying):
    replaying.card.engines.replayable.enable(None)
    replaying.push(*launch(replaying))
    assert replaying.error[0] == MMU_FAULT
    assert rd(replaying, SIZE) == 0


@pytest.mark.parametrize("allowed", [True, False])
def test_a_copys_fault_is_offered_to_the_cpu(bench, allowed):
    """The firmware gives it to the client that registered a buffer; see the GSP's tests."""
    offered = []
    bench.card.engines.offer_fault = lambda packet: offered.append(packet) or True
    if allowed:
        handle_faults(bench)
    bench.push(*bad_copy(bench, write=True))
    if not allowed:
        assert (offered, bench.error[0]) == ([], MMU_FAULT)
        return
    assert bench.failed == []
    (packet,) = offered
    words = struct.unpack("<8I", packet)
    assert words[:4] == (INSTANCE, 0, 0x1234_5000, 0)
    # a write by HUB client CE0 that may be handled, not replayed
    assert words[7] == VALID | 1 << 30 | 1 << 20 | 1 << 16 | 1 << 8
    bench.card.engines.cancel_faults()
    bench.card.clock.sleep_us(10)
    assert bench.error == (
        MMU_FAULT,
        "channel 0x00000005, intr 00000000. MMU Fault: ENGINE CE0 HUBCLIENT_CE0 faulted @ 0x0_12345000. "
        "Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE",
    )


def mapped(bench, va):
    """Map a page of the channel's, far from the others, to the VRAM of its page 0x30."""
    put = bench.card.vram.write
    put(PD0 + 16 * (va >> 21), struct.pack("<QQ", 0, 2 | NEW_TABLE >> 12 << 8))
    put(NEW_TABLE + 8 * (va >> 12 & 511), struct.pack("<Q", 1 | 0x230000 >> 12 << 8))


def test_a_copy_whose_fault_was_handled_is_made(bench):
    """By CLEAR_FAULTED of another channel, as on Turing."""
    bench.card.engines.offer_fault = lambda packet: True
    handle_faults(bench)
    bench.poke(0x30678, b"managed memory")
    bench.push(*bad_copy(bench), *bench.incr(HOST, 0x5C, 0x8000, 0, 7, 0, 1))
    other = bench.second(7)
    mapped(bench, 0x1234_5678)
    # a doorbell changes nothing, nor does a clearing that names another channel
    bench.ring()
    bench.submit(other, *bench.incr(HOST, 0x84, 6))
    assert (bench.word(0x8000), bench.failed) == (0, [])
    assert "waits after read" in bench.card.witness.unfinished()[0].text
    bench.poke(0x4000, struct.pack("<2I", *bench.incr(HOST, 0x84, bench.channel.runlist << 16 | 5)))
    bench.poke(0x1808, struct.pack("<II", 0x4000, 2 << 10))
    bench.card.vram.write(0x106000 + 0x28C, struct.pack("<I", 2))
    bench.ring(other.runlist << 16 | 7)
    assert (bench.peek(0x10000, 14), bench.word(0x8000), bench.failed) == (b"managed memory", 7, [])
    assert not bench.card.witness.unfinished()


@pytest.mark.parametrize("of_host", [True, False])
def test_the_channel_ram_shows_a_fault_and_clears_it(bench, of_host):
    """As UVM does on Ampere: the bit, its reset, the runlist's own doorbell. A second fault waits again."""
    bench.card.engines.offer_fault = lambda packet: True
    handle_faults(bench)
    engine = next(one for one in rows.find("ga102").engines if one.runlist == bench.channel.runlist)
    register, doorbell = engine.channel_ram_base + 4 * 5, engine.runlist_base + 0x90
    enabled, faulted, reset = 1 << 1, 1 << 4 if of_host else 1 << 5, 0x11 if of_host else 0x21
    assert rd(bench, register) == enabled
    if of_host:
        bench.push(*bench.incr(HOST, 0x5C, 0x1234_5000, 0, 9, 0, 1))
    else:
        bench.push(*bad_copy(bench, write=True))
    for _ in range(2):
        assert rd(bench, register) == enabled | faulted
        bench.card.bars[0].write32(register, reset)
        bench.card.bars[0].write32(doorbell, 5)
        bench.card.clock.sleep_us(50)
    mapped(bench, 0x1234_5678)
    bench.card.bars[0].write32(register, reset)
    assert rd(bench, register) == enabled
    bench.card.bars[0].write32(doorbell, 5)
    bench.card.clock.sleep_us(50)
    assert bench.failed == []
    assert bench.word(0x30000) == 9 if of_host else bench.peek(0x30678, 16) == bench.peek(0x10000, 16)


def test_a_channel_that_waits_after_a_fault_and_is_taken_away(bench):
    """Its schedule is stopped and started, and it still waits; then it is freed, and nothing is left."""
    bench.card.engines.offer_fault = lambda packet: True
    handle_faults(bench)
    bench.push(*bad_copy(bench))
    for enable in (False, True):
        bench.channel.scheduled = enable
        bench.card.engines.schedule(bench.channel, enable=enable)
    bench.card.clock.sleep_us(2_000)
    assert bench.gp_get == 0
    assert bench.card.witness.unfinished()
    bench.card.engines.remove(bench.channel)
    assert not bench.card.witness.unfinished()
    bench.card.engines.cancel_faults()
    bench.card.clock.sleep_us(50)
    assert bench.failed == []


@pytest.mark.parametrize(
    ("words", "report"),
    [
        ((CE, True), "ENGINE CE0 HUBCLIENT_CE0 faulted @ 0x0_12345000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE"),
        ((HOST, False), "ENGINE HOST0 HUBCLIENT_HOST faulted @ 0x0_00300000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ"),
    ],
)  # fmt: skip
def test_a_fault_is_told_as_nvidias_driver_logs_it(bench, words, report):
    seen = []
    bench.card.engines.faulted = lambda running, fault: seen.append(fault.report) or False
    subchannel, write = words
    if subchannel == CE:
        bench.push(*bad_copy(bench, write=write))
    else:
        bench.push(*bench.incr(HOST, 0x5C, 0x30_0000, 0, 1, 0, 0))
    assert seen == [f"MMU Fault: {report}"]


def test_the_registers_beside_the_fault_buffers(replaying):
    # dev_vm.h: PAGE_FAULT_CTRL keeps its filter; ACCESS_COUNTER_NOTIFY_BUFFER's PUT, SIZE and INFO are the chip's
    control, low, size, get, put, info = 0xB83070, 0xB83108, 0xB83110, 0xB83114, 0xB83118, 0xB8311C
    for register in (control, put, size, info):
        before = rd(replaying, register)
        replaying.card.bars[0].write32(register, 3)
        assert rd(replaying, register) == (3 if register == control else before)
    replaying.card.bars[0].write32(low, 1)
    assert rd(replaying, get) == rd(replaying, put) == 0
    assert "no access is counted" in replaying.card.log.find("unmodelled", "mmu")[-1].text
