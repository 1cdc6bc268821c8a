"""The channel RAM: a register for each channel of a runlist, by which software sees and clears its fault.

Sources: dev_runlist.h and dev_ram.h of NVIDIA's open kernel modules (NV_CHRAM_CHANNEL, NV_RUNLIST_INTERNAL_DOORBELL);
uvm_ampere_host.c (what UVM does after it has handled a fault of a copy or of the host). Turing has no such registers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ringup.autogen.nv import fifo
from ringup.silicon.nv.common.registers import Registers
from ringup.silicon.nv.host.host import Host
from ringup.silicon.nv.rm.boards.facts import Board

WORD = 4
DOORBELL = 0x90
# the host's unit, as faults name it
HOST_UNIT = "HOST"


def wire(registers: Registers, board: Board, host: Host) -> None:
    """Map the channel RAM and the doorbell of each runlist, if the chip has them."""
    if not board.per_runlist_channels:
        return
    bases = {engine.runlist: (engine.runlist_base, engine.channel_ram_base) for engine in board.engines}
    for runlist, (base, ram) in bases.items():
        registers.window(
            ram,
            WORD * board.channels,
            f"NV_CHRAM_CHANNEL of runlist {runlist}",
            partial(_read, host, runlist),
            partial(_write, host, runlist),
        )
        registers.window(
            base + DOORBELL, WORD, f"NV_RUNLIST_INTERNAL_DOORBELL of runlist {runlist}", _nothing, _bell(host, runlist)
        )


def _nothing(offset: int, size_bytes: int) -> bytes:
    return bytes(size_bytes)


def _bell(host: Host, runlist: int) -> Callable[[int, bytes], None]:
    def ring(offset: int, data: bytes) -> None:
        host.doorbell(runlist << 16 | fifo.NV_RUNLIST_INTERNAL_DOORBELL(int.from_bytes(data, "little")).chid)

    return ring


def _read(host: Host, runlist: int, offset: int, size_bytes: int) -> bytes:
    """Return what a channel is doing: whether it is enabled, and whose fault it waits after."""
    number = offset // WORD
    fault = host.fault_of(runlist, number)
    of_host = fault is not None and fault.client.unit == HOST_UNIT
    word = fifo.NV_CHRAM_CHANNEL(
        enable=int(host.enabled(runlist, number)),
        pbdma_faulted=int(of_host),
        eng_faulted=int(fault is not None and not of_host),
    )
    return int(word).to_bytes(4, "little")[:size_bytes]


def _write(host: Host, runlist: int, offset: int, data: bytes) -> None:
    """Clear the faulted bit. GUESS: others, with which the resource manager enables channels, change nothing here."""
    word = int.from_bytes(data, "little")
    if word in (fifo.NV_CHRAM_CHANNEL_UPDATE_RESET_PBDMA_FAULTED, fifo.NV_CHRAM_CHANNEL_UPDATE_RESET_ENG_FAULTED):
        host.clear_fault(runlist, offset // WORD)
