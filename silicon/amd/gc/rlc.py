"""The run-list controller (RLC) as the host sees it: which firmware the graphics core has, boot after autoload, safe
mode.

Source: amdgpu gfx_v11_0.c (wait_for_rlc_autoload_complete, set_safe_mode, rlc_start), psp_gfx_if.h (firmware types).
"""

from __future__ import annotations

from collections.abc import Iterable

from ringup.autogen.amd import psp
from ringup.silicon.amd.common.parts import Board
from ringup.silicon.amd.gc.generation import RDNA3, Generation
from ringup.silicon.amd.psp.images import kind_of
from ringup.silicon.amd.psp.parts import UNIFIED_MES
from ringup.silicon.common.cells import Cells

# from the command to BOOTLOAD_COMPLETE; UNKNOWN: metal's time. Some drivers wait 100 ms, one does not wait at all
AUTOLOAD_US = 50
SAFE_MODE_US = 10
KIQ_CODE = (psp.GFX_FW_TYPE_CP_MES_KIQ, psp.GFX_FW_TYPE_RS64_KIQ)
# Firmware that an engine needs to run: one type of each row. Pipes have their own stacks.
NEEDED: dict[str, tuple[tuple[int, ...], ...]] = {
    # not needed to boot: a driver that omits them works on metal; power gating loses registers without them
    "power gating": ((psp.GFX_FW_TYPE_RLC_RESTORE_LIST_GPM_MEM,), (psp.GFX_FW_TYPE_RLC_RESTORE_LIST_SRM_MEM,)),
    "gfx": ((psp.GFX_FW_TYPE_CP_PFP, psp.GFX_FW_TYPE_RS64_PFP), (psp.GFX_FW_TYPE_CP_ME, psp.GFX_FW_TYPE_RS64_ME)),
    "mec": ((psp.GFX_FW_TYPE_CP_MEC, psp.GFX_FW_TYPE_RS64_MEC),),
    "mes": (
        (psp.GFX_FW_TYPE_CP_MES, psp.GFX_FW_TYPE_RS64_MES), (psp.GFX_FW_TYPE_MES_STACK, psp.GFX_FW_TYPE_RS64_MES_STACK),
    ),
    "kiq": (
        KIQ_CODE, (psp.GFX_FW_TYPE_MES_KIQ_STACK, psp.GFX_FW_TYPE_RS64_KIQ_STACK),
    ),
} | {
    f"gfx pipe {pipe}": ((psp.GFX_FW_TYPE_RS64_PFP_P0_STACK + pipe,), (psp.GFX_FW_TYPE_RS64_ME_P0_STACK + pipe,))
    for pipe in range(2)
}  # fmt: skip
# RS64 engines have a stack for each pipe
STACKS: dict[str, tuple[tuple[int, ...], ...]] = {
    f"mec pipe {pipe}": ((psp.GFX_FW_TYPE_RS64_MEC_P0_STACK + pipe,),) for pipe in range(4)
}
NAMES = {
    value: name.removeprefix("GFX_FW_TYPE_") for name, value in vars(psp).items() if name.startswith("GFX_FW_TYPE_")
}


class Rlc:
    """The controller. It boots when the PSP has loaded all images and calls `autoload`; without autoload, when its own
    image is loaded.
    """

    def __init__(self, board: Board, cells: Cells, generation: Generation = RDNA3) -> None:
        self.board, self.cells, self._generation = board, cells, generation
        stacks = STACKS if generation.mec.active else {}
        self._needed = NEEDED | stacks | {"rlc": tuple((kind,) for kind in generation.boot)}
        self._loaded: set[int] = set()
        # whether the KIQ's pipe runs the scheduler's firmware too, and not the KIQ's own
        self.unified_mes = False
        # results of `missing`, until something changes
        self._missing: dict[tuple[str, int | None], str] = {}
        self._booted = False
        cells.on_write("RLC_SAFE_MODE", self._safe_mode)
        cells.on_read("RLC_GPM_STAT", self._power_status)
        cells.on_read("RLC_STAT", lambda: 0)

    def reset(self) -> None:
        """Forget the firmware. GRBM resets the registers."""
        self._loaded.clear()
        self._missing.clear()
        self._booted = self.unified_mes = False

    def firmware_loaded(self, fw_type: int, image: bytes) -> None:
        """Record an image that the PSP has accepted; it runs after the next autoload."""
        self._loaded.add(fw_type)
        if fw_type in KIQ_CODE:
            self.unified_mes = kind_of(image) == UNIFIED_MES
        self._missing.clear()
        if not self._generation.autoload and fw_type == psp.GFX_FW_TYPE_RLC_G:
            self._booted = True
            self.cells.put("RLC_CNTL", rlc_enable_f32=1)

    def autoload(self, fw_types: Iterable[int] = ()) -> None:
        """Boot the graphics core with the loaded firmware. The engines' control registers are set first, so later
        writes of the driver survive.
        """
        self._loaded.update(fw_types)
        self._missing.clear()
        self.cells["RLC_RLCS_BOOTLOAD_STATUS"] = 0
        # engines with code leave halt; their pipes start when made active. An engine without code stays halted
        for name, engine in (("CP_MEC_RS64_CNTL", "mec"), ("CP_ME_CNTL", "gfx")):
            if not self._lacks(engine):
                self.cells[name] = 0
        self.board.clock.after(AUTOLOAD_US, self._boot)

    def _boot(self) -> None:
        lacking = self._lacks("rlc")
        if lacking:
            # GUESS: autoload works through the table of contents and stops at a missing part
            self.board.log.note("rlc", "violation", "autoload stops: {} not loaded", ", ".join(lacking))
            return
        if unsaved := self._lacks("power gating"):
            self.board.log.note("rlc", "boot", "{} not loaded: power gating would lose registers", ", ".join(unsaved))
        self._booted = True
        self._missing.clear()
        self.cells.put("RLC_RLCS_BOOTLOAD_STATUS", bootload_complete=1, gfx_init_done=1, rlc_gpm_iram_loaded=1)
        self.cells.put("RLC_CNTL", rlc_enable_f32=1)

    @property
    def booted(self) -> bool:
        """Whether the graphics core has booted."""
        return self._booted

    def missing(self, engine: str, pipe: int | None = None) -> str:
        """Describe why `engine` (a key of NEEDED), or one of its pipes, cannot run; empty if it can."""
        known = self._missing.get((engine, pipe))
        if known is None:
            known = self._missing[engine, pipe] = self._find_missing(engine, pipe)
        return known

    def _find_missing(self, engine: str, pipe: int | None) -> str:
        if not self._booted:
            return "the graphics core has not been booted (RLC autoload)"
        lacking = self._lacks(engine) + (self._lacks(f"{engine} pipe {pipe}") if pipe is not None else [])
        return f"its firmware has not been loaded: {', '.join(lacking)}" if lacking else ""

    def _lacks(self, engine: str) -> list[str]:
        """List the rows of an engine that are not loaded."""
        rows = self._needed.get(engine, ())
        return [NAMES[types[-1]] for types in rows if not self._loaded.intersection(types)]

    def _safe_mode(self, value: int) -> None:
        """Clear CMD once the message has been taken."""
        if self.cells.field("RLC_SAFE_MODE", "cmd", value):
            self.board.clock.after(SAFE_MODE_US, self._safe_mode_taken)

    def _safe_mode_taken(self) -> None:
        self.cells.put("RLC_SAFE_MODE", cmd=0, response=0)

    def _power_status(self) -> int:
        on = int(self._booted)
        return self.cells.replace("RLC_GPM_STAT", 0, gfx_power_status=on, gfx_clock_status=on, cmp_power_status=on)
