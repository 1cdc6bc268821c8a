"""Run-list controller (RLC) as the host sees it: which firmware the graphics core has, the boot after autoload, safe mode.

Source: amdgpu gfx_v11_0.c (wait_for_rlc_autoload_complete, set_safe_mode, rlc_start), psp_gfx_if.h (firmware types).
"""

from __future__ import annotations

from collections.abc import Iterable

from ringup.autogen.amd import psp
from ringup.silicon.amd.parts import Board
from ringup.silicon.cells import Cells

AUTOLOAD_US = 50  # from the command to BOOTLOAD_COMPLETE; metal's time is unknown: some drivers wait 100 ms, one does not wait at all
SAFE_MODE_US = 10
# Firmware without which an engine does not run; any one of a row's types will do.
NEEDED = {
    "gfx": ((psp.GFX_FW_TYPE_CP_PFP, psp.GFX_FW_TYPE_RS64_PFP), (psp.GFX_FW_TYPE_CP_ME, psp.GFX_FW_TYPE_RS64_ME)),
    "mec": ((psp.GFX_FW_TYPE_CP_MEC, psp.GFX_FW_TYPE_RS64_MEC),),
    "mes": ((psp.GFX_FW_TYPE_CP_MES, psp.GFX_FW_TYPE_RS64_MES),),
    "kiq": ((psp.GFX_FW_TYPE_CP_MES_KIQ, psp.GFX_FW_TYPE_RS64_KIQ),),
}
STORAGE = ("RLC_*", "GFX_IMU_*")


class Rlc:
    """The controller. It boots when the PSP has loaded all images and says so (`autoload`)."""

    def __init__(self, board: Board, cells: Cells) -> None:
        self.board, self.cells = board, cells
        self.loaded: set[int] = set()
        self._booted = False
        cells.storage(STORAGE)
        cells.read_only("RLC_RLCS_BOOTLOAD_STATUS")
        cells.on_write("RLC_SAFE_MODE", self._safe_mode)
        cells.on_read("RLC_GPM_STAT", self._power_status)
        cells.on_read("RLC_STAT", lambda: 0)

    def reset(self) -> None:
        """Forget the firmware; the registers are GRBM's to reset."""
        self.loaded.clear()
        self._booted = False

    def firmware_loaded(self, fw_type: int, image: bytes) -> None:
        """Take an image that the PSP has accepted; it runs after the next autoload."""
        self.loaded.add(fw_type)

    def autoload(self, fw_types: Iterable[int] = ()) -> None:
        """Boot the graphics core with what is loaded. The engines' controls are set up first: what a driver writes meanwhile stays."""
        self.loaded.update(fw_types)
        self.cells["RLC_RLCS_BOOTLOAD_STATUS"] = 0
        for name in (
            "CP_MEC_RS64_CNTL",
            "CP_ME_CNTL",
        ):  # out of halt with their code cached; pipes start when made active
            self.cells[name] = 0
        self.board.clock.after(AUTOLOAD_US, self._boot)

    def _boot(self) -> None:
        self._booted = True
        self.cells.put("RLC_RLCS_BOOTLOAD_STATUS", bootload_complete=1, gfx_init_done=1, rlc_gpm_iram_loaded=1)
        self.cells.put("RLC_CNTL", rlc_enable_f32=1)

    @property
    def booted(self) -> bool:
        """Whether the graphics core works at all."""
        return self._booted

    def missing(self, engine: str) -> str:
        """Say why `engine` (a key of NEEDED) cannot run, empty if it can."""
        if not self._booted:
            return "the graphics core has not been booted (RLC autoload)"
        if all(self.loaded.intersection(types) for types in NEEDED[engine]):
            return ""
        return f"the firmware of {engine} has not been loaded"

    def _safe_mode(self, value: int) -> None:
        """CMD falls when the message has been taken."""
        if self.cells.field("RLC_SAFE_MODE", "cmd", value):
            self.board.clock.after(SAFE_MODE_US, self._safe_mode_taken)

    def _safe_mode_taken(self) -> None:
        self.cells.put("RLC_SAFE_MODE", cmd=0, response=0)

    def _power_status(self) -> int:
        on = int(self._booted)
        return self.cells.replace("RLC_GPM_STAT", 0, gfx_power_status=on, gfx_clock_status=on, cmp_power_status=on)
