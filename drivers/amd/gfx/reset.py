"""Soft reset of the graphics core's command processor and shaders: the rung between one queue and the whole card.

It kills every queue and wave; memory, its hub and the firmware stay. Source: amdgpu gfx_v11_0.c, gfx_v11_0_soft_reset;
gfx_v9_4_3.c, gfx_v9_4_3_soft_reset, without its stop of the RLC, which nothing starts again.
GUESS: gfx12 takes the same steps. Its registers have the same fields, but gfx_v12_0.c has no soft reset of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ringup.autogen.amd import gc_cp, gc_hqd
from ringup.autogen.amd.gc import GRBM_SOFT_RESET
from ringup.autogen.amd.gc_pipe import SPI_COMPUTE_QUEUE_RESET
from ringup.drivers.amd.bus.registers import Block
from ringup.drivers.amd.gfx.core import TIMEOUT_US, Gfx, awake
from ringup.drivers.amd.gfx.hqd import RESET_WAVES, Place, selected
from ringup.errors import DeviceHung, DeviceTimeout

CP_RESET_US = 50_000  # GUESS: in reset, and behind it; far longer than the microsecond of gfx_v11_0_soft_reset
SETTLE_US = 50  # behind the reset. Source: gfx_v9_4_3_soft_reset
MUTEX_CLIENT = 4  # the driver's number among those who may use CP_VMID_RESET. Source: gfx_v11_0_request_gfx_index_mutex
EVERY_VMID_BUT_0, EVERY_PIPE = 0xFFFE, 0xFF
_RESET = ("soft_reset_cp", "soft_reset_gfx", "soft_reset_cpf", "soft_reset_cpc", "soft_reset_cpg")


def reset_command_processors(cores: Sequence[Gfx]) -> None:
    """Reset the command processors of a card's cores, which must have no queue mapped, so that their micro engines
    start as after the firmware's load; `Gfx.place_programs` comes next. The cores get their time together.

    The firmware that the run-list controller loaded stays in place. A generation that does not need it
    (`CoreRow.restarts_by_reset`) is left alone. UNKNOWN: amdgpu loads firmware again before it starts a halted micro
    engine; user-space drivers of these cards start it without.
    """
    if not cores[0].row.restarts_by_reset:
        return
    # the clocks of a predecessor that died may still be gated
    with awake(cores):
        for asserted in (1, 0):
            for core in cores:
                gc = core.block
                gc.write(gc.make(GRBM_SOFT_RESET, soft_reset_cp=asserted, soft_reset_cpc=asserted))
                # the write has arrived when the read returns
                gc.read(GRBM_SOFT_RESET)
            cores[0].block.registers.clock.sleep_us(CP_RESET_US)


def soft_reset(gfx: Gfx) -> None:
    """Reset and restart the core. Queues must be mapped again. Raises `DeviceHung` when it does not come back."""
    try:
        with gfx.safe_mode():
            _kill_queues(gfx)
            _pulse(gfx)
    except DeviceTimeout as error:
        raise DeviceHung(f"soft reset of the graphics core: {error}; reset the card") from error
    gfx.place_programs()
    gfx.start()
    left = gfx.active_queues()
    if left:
        raise DeviceHung(
            f"compute queues {', '.join(map(str, left))} outlived a soft reset of the graphics core; reset the card"
        )


def _kill_queues(gfx: Gfx) -> None:
    gc = gfx.block
    places = [Place(pipe, queue) for pipe in range(gfx.pipes) for queue in range(gfx.row.queues)]
    for place in places:
        with selected(gc, place):
            gc.write(gc.make(gc_hqd.CP_HQD_DEQUEUE_REQUEST, dequeue_req=RESET_WAVES))
            gc.write(gc.make(SPI_COMPUTE_QUEUE_RESET, reset=1))
    if gfx.row.vmid_reset:
        _reset_vmids(gc)
    for place in places:
        with selected(gc, place):
            gc.wait(gc_hqd.CP_HQD_ACTIVE, lambda word: not word.active, TIMEOUT_US, f"killing compute queue {place}")
            gc.write(gc.make(gc_hqd.CP_HQD_DEQUEUE_REQUEST))


def _reset_vmids(gc: Block) -> None:
    with _index_mutex(gc):
        gc.write(
            gc.make(
                gc_cp.CP_VMID_RESET, reset_request=EVERY_VMID_BUT_0, pipe0_queues=EVERY_PIPE, pipe1_queues=EVERY_PIPE
            )
        )
        # the reads give the queues time to let go. Source: gfx_v11_0_soft_reset
        for _ in range(3):
            gc.read(gc_cp.CP_VMID_RESET)


def _pulse(gfx: Gfx) -> None:
    """Hold the reset lines for a moment, clear the queues' registers and wait until the killed VMIDs are done."""
    gc = gfx.block
    if not gfx.row.vmid_reset:
        # the micro engine takes no more packets. Source: gfx_v9_4_3_soft_reset
        gfx.halt()
    for asserted in (1, 0):
        gc.update(GRBM_SOFT_RESET, **dict.fromkeys(_RESET, asserted))
        # the write has arrived when the read returns
        gc.read(GRBM_SOFT_RESET)
    if not gfx.row.vmid_reset:
        gc.registers.clock.sleep_us(SETTLE_US)
        return
    gc.update(gc_cp.CP_SOFT_RESET_CNTL, cmp_hqd_reg_reset=1)
    gc.write(gc.make(gc_cp.CP_MEC_RS64_CNTL))
    gc.wait(gc_cp.CP_VMID_RESET, lambda word: not int(word), TIMEOUT_US, "waiting for the reset of all VMIDs")


@contextmanager
def _index_mutex(gc: Block) -> Iterator[None]:
    """Hold the mutex that firmware and driver take before CP_VMID_RESET. It is requested until it is granted."""
    mine = gc.make(gc_cp.CP_GFX_INDEX_MUTEX, request=1, clientid=MUTEX_CLIENT)
    clock = gc.registers.clock
    end_us = clock.now_us + TIMEOUT_US
    while True:
        gc.write(mine)
        seen = gc.read(gc_cp.CP_GFX_INDEX_MUTEX)
        if seen == mine:
            break
        if clock.now_us >= end_us:
            raise DeviceTimeout(f"taking CP_GFX_INDEX_MUTEX: {seen!r} for {TIMEOUT_US / 1000:g} ms")
        clock.sleep_us(1)
    try:
        yield
    finally:
        gc.write(mine.replace(request=0))
