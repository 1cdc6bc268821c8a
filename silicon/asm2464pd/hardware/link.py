"""Power, reset and training of the slot behind the bridge, controlled by registers and shown in B450 and page 1 4092.

Source: asm2464pd-firmware main.c (pcie_power_on, pcie_power_off), registers.h, and its pull request 81 (measured).
"""

from __future__ import annotations

from collections.abc import Callable

from ringup.silicon.asm2464pd.hardware import timing
from ringup.silicon.asm2464pd.hardware.fabric import Fabric
from ringup.silicon.asm2464pd.hardware.xdata import Xdata
from ringup.silicon.common.clock import Timer, VirtualClock
from ringup.silicon.common.faults import Faults
from ringup.silicon.common.log import EventLog

LTSSM, SUBSTATE, PERST, WIDTH_CAP, TRAINING, LINK_UP = 0xB450, 0xB455, 0xB480, 0xB431, 0xE764, 0xE765
SLOT_3V3, LANES, LANES_UP = 0xC656, 0xC659, 0xB432
LINK_INFO = 0x4092  # in page 1: lanes and generation
DETECT_QUIET, DETECT_ACTIVE, POLLING = 0x00, 0x01, 0x10
KEEP_TRYING = 0x1C  # E764 of the open firmware
SLOT_3V3_ON, LANES_ON, IN_RESET, UP = 0x20, 0x01, 0x01, 0x02
WIDTHS = {0x0E: 1, 0x0C: 2, 0x00: 4}  # B431: maximum number of lanes
SWITCHES = (PERST, TRAINING, SLOT_3V3, LANES)
# GUESS: period in which detection alternates between quiet and active
EVENT_US = 12_000.0


class Link:
    """The slot's link. It trains while 3.3 V and lanes are on, training is enabled, reset is released, and a powered
    card is present.

    `trained_code`: the value of B450 in L0: 78 with VID ADD1, 48 with a stock 174C. `training_us`: from detection to
    L0, longer for a slow card. `training_codes`: the values of E764 that train.
    """

    def __init__(self, xdata: Xdata, fabric: Fabric, clock: VirtualClock, faults: Faults, log: EventLog) -> None:
        self._xdata, self._fabric, self._clock, self._faults, self._log = xdata, fabric, clock, faults, log
        self.trained_code = 0x78
        self.training_us = timing.TRAINING_US
        self.training_codes: tuple[int, ...] = (KEEP_TRYING,)
        self.generation, self.lanes = 3, 2
        # the enclosure's power supply is on
        self.slot_powered = True
        self.on_change: Callable[[], None] = lambda: None
        self._rail_since_ns: int | None = None
        self._timer: Timer | None = None
        # whether detection shows active, not quiet
        self._active = False
        self._trained = False
        fabric.on_lost = self._card_lost
        for register in SWITCHES:
            xdata.on_write(register, lambda value: self._switched())
        for address in (LTSSM, SUBSTATE, LANES_UP, LINK_UP):
            xdata.read_only(address)
        xdata.read_only(LINK_INFO, page=1)
        xdata.storage(0xB451, 0xB454)
        xdata.storage(WIDTH_CAP, WIDTH_CAP)
        xdata.on_read(LTSSM, self._state)

    @property
    def up(self) -> bool:
        """Whether it is in L0."""
        return self._fabric.linked

    def reset(self) -> None:
        """Turn everything off: rails, lanes, training."""
        self._rail_since_ns = None
        self._drop()

    def unplug_card(self) -> None:
        """Remove the card from the slot, or its power: the link goes down and detects nothing."""
        self.slot_powered = False
        self._drop()

    def plug_card(self) -> None:
        """Put the card back; it trains as soon as the registers allow it."""
        self.slot_powered = True
        self._switched()

    def _card_lost(self) -> None:
        """Take the link down after the card has disappeared from it. It stays down until the switches are
        used again.
        """
        if self._trained and not self.up:
            self._drop()

    @property
    def _wanted(self) -> bool:
        get = self._xdata.get
        return (
            bool(get(SLOT_3V3) & SLOT_3V3_ON)
            and bool(get(LANES) & LANES_ON)
            and get(TRAINING) in self.training_codes
            and not get(PERST) & IN_RESET
        )

    def _switched(self) -> None:
        if not self._xdata.get(SLOT_3V3) & SLOT_3V3_ON:
            self._rail_since_ns = None
        elif self._rail_since_ns is None:
            self._rail_since_ns = self._clock.now_ns
        if not self._wanted:
            self._drop()
        elif not self.up and self._timer is None:
            self._detect()

    def _detect(self) -> None:
        assert self._rail_since_ns is not None
        if self._fabric.card is None or not self.slot_powered or self._faults.get("link_never_trains") is not None:
            # nothing detected: keep trying
            self._timer = self._clock.after(EVENT_US, self._retry_detect)
            return
        waited_us = (self._clock.now_ns - self._rail_since_ns) / 1_000
        self._timer = self._clock.after(max(0.0, timing.DETECT_US - waited_us), self._poll)

    def _retry_detect(self) -> None:
        self._timer = None
        self._active = not self._active
        if self._wanted and not self.up:
            self._detect()

    def _poll(self) -> None:
        self._xdata.put(LTSSM, POLLING)
        self._timer = self._clock.after(self.training_us, self._train)

    def _train(self) -> None:
        self._timer, self._trained = None, True
        xdata = self._xdata
        lanes = min(self.lanes, WIDTHS.get(xdata.get(WIDTH_CAP), 4))
        xdata.put(LTSSM, self.trained_code)
        xdata.put(SUBSTATE, 0x19)
        xdata.put(LANES_UP, 0x07)
        xdata.put(LINK_UP, xdata.get(LINK_UP) | UP)
        xdata.put(LINK_INFO, lanes << 4 | self.generation, page=1)
        self._log.note("bridge", "link", "the slot's link is up: generation {}, {} lanes", self.generation, lanes)
        self._fabric.link_up(self.generation, lanes)
        self.on_change()

    def _drop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        xdata, was_up, self._trained = self._xdata, self._trained, False
        xdata.put(LTSSM, DETECT_QUIET)
        xdata.put(SUBSTATE, 0x10)
        xdata.put(LANES_UP, 0)
        xdata.put(LINK_UP, xdata.get(LINK_UP) & ~UP)
        xdata.put(LINK_INFO, 0, page=1)
        if was_up:
            self._log.note("bridge", "link", "the slot's link is down")
            self._fabric.link_down()
            self.on_change()

    def _state(self) -> int:
        """Return the value of B450; detection shows as quiet or active."""
        stored = self._xdata.get(LTSSM)
        return DETECT_ACTIVE if stored == DETECT_QUIET and self._timer is not None and self._active else stored
