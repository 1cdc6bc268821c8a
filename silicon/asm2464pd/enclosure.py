"""An enclosure on a desk: the bridge with its firmware, a slot with or without a card, a supply of its own, and a USB
plug.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ringup.silicon.asm2464pd import rom
from ringup.silicon.asm2464pd.firmware_open import OpenFirmware
from ringup.silicon.asm2464pd.hardware import timing
from ringup.silicon.asm2464pd.hardware.chip import Chip
from ringup.silicon.asm2464pd.hardware.flash import SpiFlash, filled
from ringup.silicon.asm2464pd.hardware.flash_controller import FlashController
from ringup.silicon.asm2464pd.hardware.flash_image import PATCHED, Config, synthetic_image
from ringup.silicon.asm2464pd.hardware.running_firmware import Answer, Descriptors, Firmware, Setup, Silence
from ringup.silicon.asm2464pd.hardware.timing import SPEEDS, Speed
from ringup.silicon.asm2464pd.hardware.xdata import Job
from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.common.witness import Witness, seen

if TYPE_CHECKING:
    from ringup.silicon.amd.card import VirtualRadeon
    from ringup.silicon.asm2464pd.host import VirtualUsbHost

FIRMWARES = ("open", "patched", "stock", "rom")  # rom: an empty flash leaves the bridge in its loader
STOCK_ID = bytes(
    (18, 1, 0, 2, 0, 0, 0, 64, 0x4C, 0x17, 0x63, 0x24, 1, 0, 0, 0, 0, 1)
)  # what a bridge in USB4 mode shows: 174C:2463


class Tunnel:
    """What is left of a bridge on USB while it runs as a USB4 device: a descriptor, and nothing behind it. UNKNOWN:
    whether anything answers.
    """

    def __init__(self, firmware: Firmware) -> None:
        self._firmware = firmware

    def descriptors(self, speed: Speed) -> Descriptors:
        """Return the stock identity with the firmware's configuration."""
        texts = self._firmware.descriptors(speed)
        return Descriptors(STOCK_ID, texts.configuration, {})

    def boot(self) -> Job[bool]:
        """Show on the bus."""
        yield timing.CONTROL_CPU_US
        return True

    def bus_reset(self) -> None:
        """Nothing is kept."""

    def after_status_us(self, setup: Setup) -> float:
        """Return 0."""
        return 0.0

    def control(self, setup: Setup, data: bytes) -> Job[Answer]:
        """Answer nothing."""
        yield timing.CONTROL_CPU_US
        return Silence.NO_REPLY


class Enclosure:
    """`chip` is the bridge, `faults` what can go wrong (`faults.inject("stall", 3)`), `violations` what metal punishes,
    `log` what happened.

    A `VirtualUsbHost` plugs it in. Its card is not enumerated: that is the driver's work here.
    """

    SHOWS_WITHIN_US = 5_000_000  # a firmware that waits for a card that does not come tries for 2 s
    RETURNS_US = 1_500_000  # a device that goes and comes back

    def __init__(
        self,
        card: VirtualRadeon | None = None,
        firmware: str = "open",
        speed: str = "super_plus",
        *,
        powered: bool = True,
        usb4: bool = False,
        training_ms: float = timing.TRAINING_US / 1_000,
        spoils_full_windows: bool = True,
        image: bytes = b"",
        config: Config | None = None,
        clock: VirtualClock | None = None,
        **options: Any,
    ) -> None:
        """`firmware`: one of `FIRMWARES`; `speed`: one of `SPEEDS`; `powered`: its supply is on; `usb4`: the host took
        it as a USB4 device.

        `training_ms`: from a detected card to its link; `spoils_full_windows`: see `SramEngine`. `image`, `config`:
        what the flash holds, made to suit `firmware` when left out. `clock`: the machine's, where there is no card.
        `options`: those of `OpenFirmware`.
        """
        if firmware not in FIRMWARES or speed not in SPEEDS:
            raise ValueError(
                f"firmware is one of {', '.join(FIRMWARES)}, speed of {', '.join(SPEEDS)}: {firmware}, {speed}"
            )
        self.card = card
        self.machine = card.clock.machine if card is not None else clock or VirtualClock()
        self.chip = Chip(card, self.machine)
        self.chip.speed = SPEEDS[speed]
        self.chip.link.slot_powered = powered
        self.chip.link.training_us = 1_000 * training_ms
        self.chip.sram_engine.spoils_full_windows = spoils_full_windows
        self.chip.on_restart = self._restart
        self.chip.on_detach = self._off_the_bus
        self.chip.on_power_lost = self._supply_failed
        self.faults, self.log, self.violations = self.chip.faults, self.chip.log, self.chip.violations
        bridge = partial(seen, self.violations, "bridge")
        sources = [(card.witness.mistakes, card.witness.unfinished)] if card is not None else []
        self.witness = Witness([bridge, *(one for one, _ in sources)], [one for _, one in sources])
        self.flash = _flash(self.chip, firmware, image, config)
        self.flash_controller = FlashController(self.chip, self.flash)
        self.strap = False  # the boot strap is held: the next start stays in the loader
        self._usb4, self._options = usb4, options
        self.firmware = self._load()
        self.on_attach: Callable[[], None] = lambda: None  # the host's: the device shows on the bus
        self.on_detach: Callable[[], None] = lambda: None
        self.leave_bus: Callable[[], None] = lambda: None
        self.connected = False
        self.host: VirtualUsbHost | None = None  # where it is plugged in, and the port there
        self.port = ""

    # --- the plug -----------------------------------------------------------------------------------------------
    def connect(self) -> None:
        """Get a bus: the bridge starts."""
        self.connected = True
        self.chip.reset(power=True)
        self._start()

    def disconnect(self) -> None:
        """Lose the bus, and with it the power of bridge and slot."""
        self.connected = False
        self.chip.reset(power=True)

    def return_later(self) -> None:
        """Come back by itself after `RETURNS_US`."""
        self.machine.after(self.RETURNS_US, self.connect)

    def _load(self) -> Firmware:
        """Do what the mask ROM does: start what the flash holds."""
        found = rom.load(self.chip, self.flash, lambda: OpenFirmware(self.chip, **self._options), strap=self.strap)
        return Tunnel(found) if self._usb4 else found

    def _start(self) -> None:
        self.firmware = self._load()
        self.chip.cpu.run(self.firmware.boot(), self._booted)

    def _booted(self, shows: bool) -> None:
        if shows and self.connected:
            self.on_attach()

    def _off_the_bus(self) -> None:
        """Leave the bus, whether the host has enumerated it or is about to."""
        self.leave_bus()
        self.on_detach()

    def _supply_failed(self) -> None:
        """Lose power on the whole board: off the bus until it is plugged in again."""
        self._off_the_bus()
        self.disconnect()

    def _restart(self) -> None:
        """The CPU restarts: off the bus, registers lost, and again from the start."""
        self._off_the_bus()
        self.chip.reset(power=False)
        self.chip.clock.after(timing.RESTART_US, self._start)

    # --- the slot -----------------------------------------------------------------------------------------------
    def unplug_card(self) -> None:
        """Take the card out, or its power away, while USB stays."""
        self.chip.link.unplug_card()

    def plug_card(self) -> None:
        """Put it back."""
        self.chip.link.plug_card()


def _flash(chip: Chip, firmware: str, image: bytes, config: Config | None) -> SpiFlash:
    if firmware == "rom" and not image:
        return SpiFlash(chip.faults)
    default = PATCHED if firmware == "patched" else Config()
    return filled(chip.faults, image or synthetic_image(firmware), config or default)
