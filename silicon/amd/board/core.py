"""The whole graphics core: GRBM, RLC, command processor, scheduler firmware and dispatcher on one set of registers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ringup.silicon.amd.common.parts import Board, Hub, InterruptSink
from ringup.silicon.amd.gc.cp.mes import Mes, SdmaQueues
from ringup.silicon.amd.gc.cp.processor import Cp
from ringup.silicon.amd.gc.direct_load import DirectLoad
from ringup.silicon.amd.gc.dispatch import Dispatcher
from ringup.silicon.amd.gc.grbm import NAVI31, GcRow, Grbm, Slot
from ringup.silicon.amd.gc.rlc import Rlc
from ringup.silicon.amd.gc.sq import Sequencers
from ringup.silicon.common.cells import Cells
from ringup.silicon.shader.common.state import Engine, WaveState


class GraphicsCore:
    """All blocks of the core. Implements `parts.DoorbellClient`, `parts.FirmwareTarget` and `parts.Resettable`.

    `cells` are the core's registers, already on the bus; the caller resets them before this block. The PSP calls
    `autoload`. `sdma`: copy engines among the core's registers; `copiers`: those that are blocks of their own.
    """

    def __init__(
        self,
        board: Board,
        cells: Cells,
        hub: Hub,
        interrupts: InterruptSink,
        engine: Engine,
        *,
        row: GcRow = NAVI31,
        sdma: tuple[SdmaQueues, ...] = (),
        copiers: tuple[SdmaQueues, ...] = (),
        strict: bool = True,
    ) -> None:
        self.grbm = Grbm(board, cells, row)
        self.rlc = Rlc(board, cells, row.generation)
        self._direct = DirectLoad(board, cells)
        self.dispatcher = Dispatcher(board, self.grbm, hub, interrupts, engine, strict=strict)
        self.cp = Cp(board, self.grbm, self.rlc, hub, interrupts, self.dispatcher)
        if row.generation.mes is None:
            self.cp.run_list.copiers = copiers
        self.sequencers = Sequencers(cells, self.grbm, self._waves, self._kill_waves)
        if row.generation.mes is not None:
            self.mes = self.cp.scheduler = Mes(self.cp, sdma)
        self._sdma, self._reset_cp = sdma, self.grbm.on_soft_reset
        self.grbm.on_soft_reset = self._soft_reset

    def _soft_reset(self, mask: int) -> None:
        """Reset what GRBM_SOFT_RESET names: parts of the command processor, and the SDMA engines that share its
        registers.
        """
        self._reset_cp(mask)
        for number, engine in enumerate(self._sdma):
            if self.grbm.cells.field("GRBM_SOFT_RESET", f"SOFT_RESET_SDMA{number}", mask):
                engine.soft_reset()

    def _waves(self) -> Iterator[tuple[Slot, WaveState]]:
        """Yield every wave that has not ended, with its queue."""
        for slot, queue in self.cp.queues.items():
            for grid in queue.grids:
                if grid.run is not None:
                    yield from ((slot, wave) for wave in grid.run.waves)

    def _kill_waves(self, vmid: int | None) -> None:
        for queue in self.cp.queues.values():
            queue.kill_waves(vmid)

    @property
    def busy_ns(self) -> int:
        """Virtual time for which waves have run, since power-on."""
        return self.dispatcher.busy_ns

    def reset(self) -> None:
        """Return to the state after power-on, except for the registers."""
        self.cp.reset()
        self.rlc.reset()
        self._direct.reset()
        self.grbm.reset()

    def doorbell(self, index: int, value: int, size_bytes: int) -> bool:
        """Handle a doorbell of any queue."""
        return self.cp.doorbell(index, value, size_bytes)

    def firmware_loaded(self, fw_type: int, image: bytes) -> None:
        """Take an image that the PSP has accepted."""
        self.rlc.firmware_loaded(fw_type, image)

    def autoload(self, fw_types: Iterable[int] = ()) -> None:
        """Boot with the loaded firmware, as the PSP's AUTOLOAD_RLC command requests."""
        self.rlc.autoload(fw_types)
