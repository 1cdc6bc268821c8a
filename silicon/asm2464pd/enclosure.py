"""An enclosure: the bridge with its firmware, a slot with or without a card, a power supply, and a USB plug."""

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
from ringup.silicon.common.witness import Witness, observations

if TYPE_CHECKING:
    from ringup.silicon.amd.card import VirtualRadeon
    from ringup.silicon.asm2464pd.host import VirtualUsbHost

# rom: an empty flash leaves the bridge in its loader
FIRMWARES = ("open", "patched", "stock", "rom")
# the device descriptor of a bridge in USB4 mode: 174C:2463
STOCK_ID = bytes((18, 1, 0, 2, 0, 0, 0, 64, 0x4C, 0x17, 0x63, 0x24, 1, 0, 0, 0, 0, 1))


class Tunnel:
    """The bridge's remaining USB device while it runs as a USB4 device: it has a descriptor and does nothing. UNKNOWN:
    whether it answers requests.
    """

    def __init__(self, firmware: Firmware) -> None:
        self._firmware = firmware

    def descriptors(self, speed: Speed) -> Descriptors:
        """Return the stock identity with the firmware's configuration."""
        texts = self._firmware.descriptors(speed)
        return Descriptors(STOCK_ID, texts.configuration, {})

    def boot(self) -> Job[bool]:
        """Start and appear on the bus."""
        yield timing.CONTROL_CPU_US
        return True

    def bus_reset(self) -> None:
        """Keep no state."""

    def after_status_us(self, setup: Setup) -> float:
        """Return 0."""
        return 0.0

    def control(self, setup: Setup, data: bytes) -> Job[Answer]:
        """Never reply."""
        yield timing.CONTROL_CPU_US
        return Silence.NO_REPLY


class Enclosure:
    """An enclosure. `chip` is the bridge; `faults` injects faults (`faults.inject("stall", 3)`); `violations` lists
    what metal punishes; `log` lists events.

    A `VirtualUsbHost` plugs it in. Its card is not enumerated: the driver does that.
    """

    # a firmware without a card tries for 2 s
    SHOWS_WITHIN_US = 5_000_000
    # how long a device that returns by itself stays away
    RETURNS_US = 1_500_000

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
        """Make an enclosure.

        `firmware`: one of `FIRMWARES`. `speed`: one of `SPEEDS`. `powered`: its power supply is on. `usb4`: the host
        runs it as a USB4 device. `training_ms`: time from detecting a card to link up. `spoils_full_windows`: see
        `SramEngine`. `image`, `config`: contents of the flash; by default those for `firmware`. `clock`: that of the
        machine, if there is no card. `options`: those of `OpenFirmware`.
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
        bridge = partial(observations, self.violations, "bridge")
        sources = [(card.witness.mistakes, card.witness.unfinished)] if card is not None else []
        self.witness = Witness([bridge, *(one for one, _ in sources)], [one for _, one in sources])
        self.flash = _flash(self.chip, firmware, image, config)
        self.flash_controller = FlashController(self.chip, self.flash)
        # the boot strap is set: the next start stays in the loader
        self.strap = False
        self._usb4, self._options = usb4, options
        self.firmware = self._load()
        # hook of the host: the device appears on the bus
        self.on_attach: Callable[[], None] = lambda: None
        self.on_detach: Callable[[], None] = lambda: None
        self.leave_bus: Callable[[], None] = lambda: None
        self.connected = False
        # the host that it is plugged into; `port` is the port there
        self.host: VirtualUsbHost | None = None
        self.port = ""

    # --- the plug -----------------------------------------------------------------------------------------------
    def connect(self) -> None:
        """Connect to a bus: the bridge starts."""
        self.connected = True
        self.chip.reset(power=True)
        self._start()

    def disconnect(self) -> None:
        """Disconnect from the bus: bridge and slot lose power."""
        self.connected = False
        self.chip.reset(power=True)

    def return_later(self) -> None:
        """Reconnect without help after `RETURNS_US`."""
        self.machine.after(self.RETURNS_US, self.connect)

    def _load(self) -> Firmware:
        """Do what the mask ROM does: load the firmware in the flash."""
        found = rom.load(self.chip, self.flash, lambda: OpenFirmware(self.chip, **self._options), strap=self.strap)
        return Tunnel(found) if self._usb4 else found

    def _start(self) -> None:
        self.firmware = self._load()
        self.chip.cpu.run(self.firmware.boot(), self._booted)

    def _booted(self, shows: bool) -> None:
        if shows and self.connected:
            self.on_attach()

    def _off_the_bus(self) -> None:
        """Leave the bus, whether the host has enumerated the device or is about to."""
        self.leave_bus()
        self.on_detach()

    def _supply_failed(self) -> None:
        """Lose power on the whole board: the device stays off the bus until it is plugged in again."""
        self._off_the_bus()
        self.disconnect()

    def _restart(self) -> None:
        """Restart the CPU: leave the bus, lose the registers, boot again."""
        self._off_the_bus()
        self.chip.reset(power=False)
        self.chip.clock.after(timing.RESTART_US, self._start)

    # --- the slot -----------------------------------------------------------------------------------------------
    def unplug_card(self) -> None:
        """Remove the card, or its power, while USB stays."""
        self.chip.link.unplug_card()

    def plug_card(self) -> None:
        """Put the card back."""
        self.chip.link.plug_card()


def _flash(chip: Chip, firmware: str, image: bytes, config: Config | None) -> SpiFlash:
    if firmware == "rom" and not image:
        return SpiFlash(chip.faults)
    default = PATCHED if firmware == "patched" else Config()
    return filled(chip.faults, image or synthetic_image(firmware), config or default)
