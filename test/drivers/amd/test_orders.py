"""Accesses whose order matters because a real card acts between them. Each test checks the state at that
very moment.
"""

from __future__ import annotations

import struct

import pytest

import ringup
from ringup.autogen.amd.gc import GRBM_SOFT_RESET
from ringup.autogen.amd.gc_cp import CP_VMID_RESET
from ringup.autogen.amd.gc_hqd import CP_HQD_ACTIVE
from ringup.autogen.amd.gc_vm import GCVM_CONTEXT0_CNTL
from ringup.autogen.amd.mmhub import MMVM_CONTEXT0_CNTL
from ringup.drivers.amd.bus.doorbells import DOORBELL_BAR, NAVI10, Doorbell
from ringup.drivers.amd.bus.registers import Block
from ringup.drivers.amd.gfx.hqd import Place
from ringup.drivers.amd.gfx.mqd import QueueSpec, compute_mqd
from ringup.drivers.amd.gfx.reset import CP_RESET_US, reset_command_processors, soft_reset
from ringup.drivers.amd.gfx.sdma import RESET_STEP_US, SdmaEngine, SdmaQueue
from ringup.drivers.amd.lifecycle import shutdown
from ringup.drivers.amd.lifecycle.inspect import Bare
from ringup.drivers.amd.submission import queue_maker
from ringup.errors import DeviceFault, OutOfMemory

MIB = 1 << 20
RING, RPTR, WPTR, EOP, FENCE = 0x0000, 0x4000, 0x4008, 0x5000, 0x7000  # in VMID 8's host memory
MASTER = 4  # of the command register
VALID, RIGHTS = 1, 0x70  # amdgpu_vm.h, AMDGPU_PTE_*
LOADER_READY = 1 << 31  # psp_v13_0.c, psp_v13_0_wait_for_bootloader: of C2PMSG_35


@pytest.fixture
def up(virtual_card):
    """(virtual card, card): an open navi31."""
    radeon = virtual_card(vram_bytes=256 * MIB)
    with ringup.open(radeon.name, transport={"card": radeon}) as card:
        yield radeon, card


def on_activation(monkeypatch, act):
    """Call `act` right after the register write that activates a compute queue."""
    write = Block.write

    def watched(block, word, *args):
        write(block, word, *args)
        if isinstance(word, CP_HQD_ACTIVE) and word.active:
            act()

    monkeypatch.setattr(Block, "write", watched)


def spec_of(card):
    """Return the description of the first compute queue of a card whose graphics core is started."""
    return QueueSpec(
        ring_va=card.USER + RING,
        rptr_va=card.USER + RPTR,
        wptr_va=card.USER + WPTR,
        eop_va=card.USER + EOP,
        ring_dwords=256,
        eop_bytes=4096,
        mqd_va=card.gmc.fb_base + card.MQD_PA,
        vmid=card.VMID,
        doorbell_index=NAVI10.compute_index(0),
    )


def test_a_doorbell_that_is_rung_as_soon_as_a_queue_is_active_is_heard(hands, monkeypatch):
    card = hands().start()
    va = card.USER + FENCE
    card.put(RING, 0xC006_4900, 0x0000_0514, 0x2200_0000, va & 0xFFFF_FFFF, va >> 32, 7, 0, 0)  # RELEASE_MEM: soc15d.h
    card.put(WPTR, 8, 0)
    spec = spec_of(card)
    bell = Doorbell(card.radeon.bars[DOORBELL_BAR], spec.doorbell_index)
    on_activation(monkeypatch, lambda: bell.ring(8))
    card.gfx.queue(Place(0, 0), spec, card.vram(card.MQD_PA, 4096), card.hdp.flush).map()
    card.radeon.clock.sleep_us(200)
    assert card.get(FENCE) == 7


def test_an_address_space_has_its_tables_when_it_is_switched_on(hands, monkeypatch):
    card, seen, write = hands(), [], Block.write
    card.gmc.start_mmhub()
    card.map_page(card.VMID, card.USER_VRAM, 0x30_0000 | VALID | RIGHTS)
    card.vram(0x30_0000, 4)[:] = b"here"

    def watched(block, word, *args):
        write(block, word, *args)
        if isinstance(word, MMVM_CONTEXT0_CNTL) and word.enable_context:
            card.radeon.settle()
            seen.append(card.radeon.mmhub.read(card.VMID, card.USER_VRAM, 4, "MP0"))

    monkeypatch.setattr(Block, "write", watched)
    card.gmc.set_context(card.VMID, card.root(card.VMID))
    assert seen == [b"here"]


def test_tables_are_in_vram_when_an_address_space_is_switched_on(virtual_card, monkeypatch):
    radeon, seen, write = virtual_card(vram_bytes=256 * MIB), [], Block.write
    radeon.bars[0].mappable = False

    def watched(block, word, *args):
        if isinstance(word, (MMVM_CONTEXT0_CNTL, GCVM_CONTEXT0_CNTL)) and word.enable_context:
            radeon.settle()
            seen.append(radeon.hdp.holds)
        write(block, word, *args)

    monkeypatch.setattr(Block, "write", watched)
    radeon.hdp.drain_us = None
    ringup.open(radeon.name, transport={"card": radeon}).close()
    assert seen
    assert not any(seen)


def pulses(radeon, monkeypatch):
    """Record when writes of GRBM_SOFT_RESET arrive, on a bus that delays writes until a read pushes them."""
    radeon.settle()
    radeon.path.posted.delay_ns, grbm, times = None, radeon.gc.grbm, []
    reset = grbm.on_soft_reset

    def watched(mask):
        times.append(radeon.clock.now_us)
        reset(mask)

    monkeypatch.setattr(grbm, "on_soft_reset", watched)
    return times


@pytest.mark.parametrize(("make", "min_us"), [("core", CP_RESET_US), ("engine", RESET_STEP_US)])
def test_a_reset_line_is_held_as_long_as_the_driver_sleeps(hands, monkeypatch, make, min_us):
    """The write that raises the line arrives before the sleep, not after it."""
    card = hands().start()
    block = SdmaEngine(card.gc, card.radeon.chip.external_ips[0][2], 0)
    block.start()
    times = pulses(card.radeon, monkeypatch)
    if make == "core":
        reset_command_processors([card.gfx])
    else:
        block.reset()
    card.radeon.settle()
    assert len(times) == 2
    assert times[1] - times[0] >= min_us


def test_a_soft_reset_reads_where_the_kernels_does(hands, monkeypatch):
    """Three reads give killed queues time, and one read follows each edge of the reset lines. Source: gfx_v11_0.c,
    gfx_v11_0_soft_reset.
    """
    card, events = hands().start(), []
    for name, real in (("read", Block.read), ("write", Block.write)):

        def watched(block, word, *args, real=real, name=name):
            events.append((name, word if isinstance(word, type) else type(word)))
            return real(block, word, *args)

        monkeypatch.setattr(Block, name, watched)
    soft_reset(card.gfx)
    at = events.index(("write", CP_VMID_RESET))
    assert events[at + 1 : at + 4] == [("read", CP_VMID_RESET)] * 3
    pulse = [events[at + 1] for at, event in enumerate(events) if event == ("write", GRBM_SOFT_RESET)]
    assert pulse == [("read", GRBM_SOFT_RESET)] * 2


class Window:
    """A place in VRAM as the host writes it: through the host data path."""

    def __init__(self, card, vram_pa):
        self.bar, self.at = card.radeon.bars[0], vram_pa

    def __setitem__(self, part, data):
        self.bar.write_block(self.at, data)


def test_a_queues_descriptor_is_in_vram_when_the_queue_becomes_active(hands, monkeypatch):
    """The engine then loads shader registers from the descriptor. The model keeps them elsewhere. Source: the flush of
    amdgpu_gfx_enable_kcq.
    """
    card, seen = hands().start(), []
    card.radeon.hdp.drain_us = None
    spec = spec_of(card)
    image = compute_mqd(card.gc.version, spec)
    on_activation(monkeypatch, lambda: seen.append(bytes(card.vram(card.MQD_PA, len(image)))))
    card.gfx.queue(Place(0, 0), spec, Window(card, card.MQD_PA), card.hdp.flush).map()
    assert seen == [image]


def test_a_card_that_may_write_again_has_no_interrupt_ring_of_before(virtual_card, monkeypatch):
    """The old ring's memory belongs to another process now: the last owner died, and bus mastering ended when its files
    were closed.
    """
    radeon, seen = virtual_card(vram_bytes=256 * MIB), []
    ringup.open(radeon.name, transport={"card": radeon})
    radeon.kill_holder()
    radeon.config.write(4, radeon.config.read(4, 2) & ~MASTER, 2)
    assert radeon.ih.cells.get("IH_RB_CNTL", "RB_ENABLE")
    write = radeon.config.write

    def watched(offset, value, size_bytes=4):
        before = radeon.gpu.masters_bus
        write(offset, value, size_bytes)
        if radeon.gpu.masters_bus and not before:
            seen.append(radeon.ih.cells.get("IH_RB_CNTL", "RB_ENABLE"))

    monkeypatch.setattr(radeon.config, "write", watched)
    with ringup.open(radeon.name, transport={"card": radeon}) as card:
        assert card.info.found == "dirty"
    assert seen
    assert not any(seen)
    radeon.violations.clear()


def test_a_reset_from_the_bus_ends_when_the_boot_loader_is_through(virtual_card, monkeypatch):
    """Until then, the boot loader trains memory and sets the hubs up, and no driver may write the hubs. Source: amdgpu
    psp_v13_0_wait_for_bootloader.
    """
    radeon = virtual_card(vram_bytes=256 * MIB)
    bare = Bare(ringup.connect(radeon.name, card=radeon))
    cells, power_on = radeon.psp.cells, radeon.psp._power_on

    def trains_memory():
        cells["MP0_SMN_C2PMSG_35"] = 0
        radeon.clock.after(1_000_000, power_on)

    monkeypatch.setattr(radeon.psp, "_power_on", trains_memory)
    assert [rung.name for rung in shutdown.reset(bare)] == ["slot"]
    assert cells["MP0_SMN_C2PMSG_35"] & LOADER_READY


@pytest.mark.parametrize("make", ["new_compute_queue", "new_copy_queue", "new_aql_queue"])
def test_a_queue_that_cannot_be_made_is_never_on(up, monkeypatch, make):
    """Every step that can fail comes before the queue is mapped: its memory is freed, and no engine reads it."""
    radeon, card = up

    def running():
        radeon.settle()
        return card.blocks.gfx.active_queues(), [q.number for e in radeon.sdma for q in e.queues if q.ring is not None]

    def fails(*args, **kwargs):
        raise OutOfMemory("nothing left")

    before = running()
    with monkeypatch.context() as patched:
        patched.setattr(queue_maker, "Timeline", fails)
        with pytest.raises(OutOfMemory):
            getattr(card, make)()
    assert running() == before
    getattr(card, make)()
    assert running() != before


@pytest.mark.parametrize("kind", ["compute", "copy", "aql"])
def test_a_queue_is_mapped_again_when_its_pointers_in_memory_are_0(up, kind):
    """An active engine reads the write pointer from memory. With the old value it would execute the ring's earlier
    contents.
    """
    _, card = up
    queue, seen = getattr(card, kind), []
    queue.submit(queue.stream()).wait()
    page, map_queue, (rptr_at, wptr_at) = queue.memory.page.view, queue.hardware.map, queue.pointers_at

    def watched():
        seen.append(struct.unpack_from("<Q", page, rptr_at) + struct.unpack_from("<Q", page, wptr_at))
        map_queue()

    assert struct.unpack_from("<Q", page, wptr_at) != (0,)
    queue.hardware.map = watched
    card.reset("engine" if isinstance(queue.hardware, SdmaQueue) else "queue")
    assert seen == [(0, 0)]
    queue.submit(queue.stream()).wait()


@pytest.mark.parametrize("kind", ["compute", "copy", "aql"])
def test_the_write_pointer_in_memory_is_stored_before_its_doorbell_is_rung(up, monkeypatch, kind):
    """A queue that the pipe had switched out is loaded with the write pointer in memory."""
    radeon, card = up
    queue, doorbells, seen = getattr(card, kind), radeon.bars[DOORBELL_BAR], []
    page, at, ring = queue.memory.page.view, 4 * queue.doorbell.index, doorbells.write64

    def watched(offset, value):
        if offset == at:
            seen.append((value, *struct.unpack_from("<Q", page, queue.pointers_at[1])))
        ring(offset, value)

    monkeypatch.setattr(doorbells, "write64", watched)
    for _ in range(3):
        queue.submit(queue.stream()).wait()
    assert len(seen) == 3
    # the doorbell of HSA's queues gets the number of the last packet, not their count
    assert all(rung == stored - (kind == "aql") for rung, stored in seen)


def test_code_cannot_be_overwritten_once_it_is_loaded(up, opencl):
    radeon, card = up
    program = card.load(opencl("__kernel void nothing(__global int *p) { p[0] = 1; }", card.info.target))
    stream = card.copy.stream()
    stream.append(stream.sdma.fence(program.base_va, 0))
    with pytest.raises(DeviceFault, match="write"):
        card.copy.submit(stream).wait()
    radeon.violations.clear()
