"""Heat watched by the card itself: the thermal monitor (THM) interrupts when the die crosses a threshold, the power
controller when it throttles or a fan fails. The controller slows the card down and, at the last limit, switches it off
by itself; these interrupts only tell.

Entries arrive in the interrupt ring.
Source: amdgpu smu_v13_0.c, smu_v13_0_set_irq_state; smu13_driver_if_v13_0_0.h, IH_INTERRUPT_ID_TO_DRIVER.
"""

from __future__ import annotations

from ringup.autogen.amd.mp import MP1_SMN_IH_SW_INT, MP1_SMN_IH_SW_INT_CTRL
from ringup.autogen.amd.thm import THM_THERMAL_INT_CTRL, THM_THERMAL_INT_ENA
from ringup.drivers.amd.bus.registers import Block

# IH_INTERRUPT_ID_TO_DRIVER of smu13_driver_if_v13_0_0.h and of its siblings; their modules are large and this is all
# that is wanted of them
IH_INTERRUPT_ID_TO_DRIVER = 0xFE
MAX_C = 255  # SMU_THERMAL_MAXIMUM_ALERT_TEMP of smu_v13_0.c: eight bits of the register
CREDITS = 5  # interrupts under way at once: smu_v13_0_set_irq_state


class Thermal:
    """The watch over one card's heat. Needs the interrupt ring to be heard; nothing else up."""

    def __init__(self, thm: Block | None, mp1: Block) -> None:
        """`thm`: the thermal monitor, None where its thresholds are the firmware's."""
        self._thm, self._mp1 = thm, mp1

    def start(self, high_c: int, low_c: int = 0) -> None:
        """Interrupt when the die gets hotter than `high_c` degrees Celsius, and when it has cooled to `low_c` again."""
        if not 0 <= low_c < high_c:
            raise ValueError(f"the thermal watch takes a lower bound below an upper one, not {low_c} and {high_c}")
        if self._thm is not None:
            self._watch(self._thm, high_c, low_c)
        self._mp1.update(MP1_SMN_IH_SW_INT, id=IH_INTERRUPT_ID_TO_DRIVER, valid=0)
        self._mp1.update(MP1_SMN_IH_SW_INT_CTRL, int_mask=0)

    def _watch(self, thm: Block, high_c: int, low_c: int) -> None:
        thm.update(
            THM_THERMAL_INT_CTRL,
            max_ih_credit=CREDITS,
            therm_ih_hw_ena=1,
            therm_inth_mask=0,
            therm_intl_mask=0,
            therm_trigger_mask=0,
            dig_therm_inth=min(high_c, MAX_C),
            dig_therm_intl=min(low_c, MAX_C),
        )
        thm.write(thm.make(THM_THERMAL_INT_ENA, therm_inth_clr=1, therm_intl_clr=1, therm_trigger_clr=1))

    def stop(self) -> None:
        """Interrupt no more. The card protects itself as before."""
        if self._thm is not None:
            self._thm.update(THM_THERMAL_INT_CTRL, therm_inth_mask=1, therm_intl_mask=1)
            self._thm.write(self._thm.make(THM_THERMAL_INT_ENA))
        self._mp1.update(MP1_SMN_IH_SW_INT_CTRL, int_mask=1)
