"""The thermal monitor (THM 13.0): the die's temperature, and interrupts when it crosses the thresholds.

Source: smu_v13_0.c, thm_13_0_2 headers.
"""

from __future__ import annotations

from ringup.autogen.amd import ih as ids
from ringup.silicon.amd.common.parts import Board, InterruptSink
from ringup.silicon.amd.smu.power import Power
from ringup.silicon.common.cells import Cells
from ringup.silicon.common.clock import Timer
from ringup.silicon.common.faults import FaultKind

INTERRUPT_CLIENT = 0x0F  # SOC21_IH_CLIENTID_THM
CHECK_US = 10_000  # interval of the threshold checks
STEPS_PER_DEGREE = 8  # THM_TCON_CUR_TMP.CUR_TEMP counts 0.125 °C
FAULTS = (FaultKind("thermal_trip", "the die reports a temperature over its high threshold", "how many times"),)
CONTROL, ENABLE = "THM_THERMAL_INT_CTRL", "THM_THERMAL_INT_ENA"


class Thm:
    """The block. It checks thresholds while a driver has enabled their interrupts."""

    def __init__(self, board: Board, power: Power, interrupts: InterruptSink) -> None:
        self.board, self._power, self._interrupts = board, power, interrupts
        self.cells = Cells(board.chip, "thm")
        board.space.attach(self.cells)
        board.faults.know(*FAULTS)
        self.cells.on_read("THM_TCON_CUR_TMP", self._current)
        self.cells.on_read("CG_MULT_THERMAL_STATUS", self._status)
        self.cells.on_write(ENABLE, self._enabled)
        self._timer: Timer | None = None
        self._hot = False

    def reset(self) -> None:
        """Return to power-on: threshold checks are off."""
        self.cells.reset()
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._hot = None, False

    def _temperature(self) -> float:
        self._power.advance()
        return self._power.temperature

    def _current(self) -> int:
        return self.cells.replace("THM_TCON_CUR_TMP", 0, CUR_TEMP=round(self._temperature() * STEPS_PER_DEGREE))

    def _status(self) -> int:
        return self.cells.replace(
            "CG_MULT_THERMAL_STATUS", 0, ASIC_MAX_TEMP=round(self._temperature()), CTF_TEMP=round(self._temperature())
        )

    def _enabled(self, value: int) -> None:
        """Handle a write to the enables. THERM_INTH_CLR and _INTL_CLR acknowledge; any non-zero write keeps the checks
        running.
        """
        if value and self._timer is None:
            self._timer = self.board.clock.after(CHECK_US, self._check_thresholds)
        if not value and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_thresholds(self) -> None:
        self._timer = self.board.clock.after(CHECK_US, self._check_thresholds)
        tripped = self.board.faults.take("thermal_trip")
        temperature = self._temperature()
        high, low = self.cells.get(CONTROL, "DIG_THERM_INTH"), self.cells.get(CONTROL, "DIG_THERM_INTL")
        if (tripped or (high and temperature > high)) and not self._hot:
            self._hot = True
            self._raise(ids.THM_9_0__SRCID__THM_DIG_THERM_L2H, "THERM_INTH_MASK")
        elif self._hot and not tripped and temperature <= max(low, high - 2):
            self._hot = False
            self._raise(ids.THM_9_0__SRCID__THM_DIG_THERM_H2L, "THERM_INTL_MASK")

    def _raise(self, source_id: int, mask: str) -> None:
        if self.cells.get(CONTROL, "THERM_IH_HW_ENA") and not self.cells.get(CONTROL, mask):
            self._interrupts.interrupt(INTERRUPT_CLIENT, source_id)
