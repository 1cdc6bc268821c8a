"""A card as it is found, whichever vendor's: nothing of it is started or stopped before somebody asks for that.

For commands that show what a card is, report on one that was left running, reset it, or shut it down.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Protocol

from ringup.autogen.linux import pci
from ringup.drivers.rung import Rung
from ringup.drivers.transport.config_space import ask, find_capability, power_state
from ringup.drivers.transport.link import Link, best_link_of, link_of
from ringup.drivers.transport.seam import Device
from ringup.errors import DeviceLost, NotSupported, RingupError

HELD = "driven by another process"
D3HOT = 3
SLEEP_US = 10_000  # D0 to D3hot. Source: PCI power management specification 1.2, table 5-6


class AsFound(ABC):
    """One card as found. `own`: this process holds it, and may write to it; else its device refuses writes."""

    VENDOR: ClassVar[int]
    MAKER: ClassVar[str]

    def __init__(self, device: Device, *, own: bool = True) -> None:
        """Wake the card if this process holds it. Raises `DeviceLost`, `NotSupported` for another vendor's card."""
        self.device, self.own = device, own
        if device.lost:
            raise DeviceLost(f"looking at {device.name}: nothing answers at its place on the bus: it {device.why_lost}")
        vendor = ask(device.config, pci.PCI_VENDOR_ID, 2, f"looking at {device.name}")
        if vendor != self.VENDOR:
            raise NotSupported(
                f"{device.name}: vendor {vendor:#06x} made it; this is for cards of {self.MAKER} ({self.VENDOR:#06x})"
            )
        self.found_asleep = power_state(device.config) != 0
        if own:
            self._wake()

    @abstractmethod
    def _wake(self) -> None:
        """Bring the function to D0, and let it decode memory; its bus mastering is off then."""

    @property
    def pci_ids(self) -> tuple[int, int, int, int, int]:
        """Vendor, device, revision, subsystem vendor, subsystem."""

        def read(offset: int, size_bytes: int) -> int:
            return ask(self.device.config, offset, size_bytes, f"reading the ids of {self.device.name}")

        return (
            read(pci.PCI_VENDOR_ID, 2),
            read(pci.PCI_DEVICE_ID, 2),
            read(pci.PCI_REVISION_ID, 1),
            read(pci.PCI_SUBSYSTEM_VENDOR_ID, 2),
            read(pci.PCI_SUBSYSTEM_ID, 2),
        )

    @property
    def links(self) -> tuple[Link, Link]:
        """Speed and width of the card's own end of its link, now and at best."""
        return link_of(self.device), best_link_of(self.device)


class LeftMemory(Protocol):
    """The memory of a card that nobody has started, by vram_pa. `visible_bytes`: what can be read without writing to
    the card.
    """

    size_bytes: int
    visible_bytes: int

    def read(self, vram_pa: int, size_bytes: int) -> bytes:
        """Return bytes."""
        ...

    def write(self, vram_pa: int, data: bytes) -> None:
        """Store bytes; they have reached memory when this returns."""
        ...


class LeftCard(Protocol):
    """What every vendor's card can do that nobody has started."""

    device: Device
    own: bool
    found_asleep: bool

    @property
    def pci_ids(self) -> tuple[int, int, int, int, int]:
        """Vendor, device, revision, subsystem vendor, subsystem."""
        ...

    @property
    def links(self) -> tuple[Link, Link]:
        """Speed and width of the card's own end of its link, now and at best."""
        ...

    @property
    def memory(self) -> LeftMemory:
        """The card's memory. Raises `NotSupported` where only the card's holder may look."""
        ...

    def state(self) -> str:
        """Return in which state the card was found."""
        ...

    def offered(self) -> tuple[str, ...]:
        """Return the names of the resets of the whole card that the path to it offers, gentle ones first."""
        ...

    def reset(self, first: str | None = None) -> list[Rung]:
        """Reset the whole card by the rungs of `offered` from `first` on; return those tried. Left: a cold card, bus
        mastering off.

        Raises a `ValueError` for a rung that is not offered, `DeviceLost`, `DeviceHung` when none helped.
        """
        ...

    def rest(self, *, sleep: bool = True) -> Rest:
        """Shut the card down; `sleep`: put it to D3hot. Raises `DeviceLost`, `DeviceHung` when its work cannot be
        stopped.
        """
        ...

    def examine(self, holder: str = "") -> LeftReport:
        """Report on the card as found. Never raises for what the card does."""
        ...


# --- shutting down ----------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class Rest:
    """How a card was shut down. `power`: its power state, and for one that is awake the reason."""

    found: str
    rungs: list[Rung] = field(default_factory=list)
    power: str = ""


def settle(device: Device, *, sleep: bool) -> str:
    """Put the function to D3hot if `sleep` and if it keeps its configuration there; return its power state in words."""
    config, doing = device.config, f"putting {device.name} to sleep"
    if not sleep:
        return f"D{power_state(config)}, as asked"
    at = find_capability(config, pci.PCI_CAP_ID_PM)
    if at is None:
        return "D0: the function has no power management"
    control = ask(config, at + pci.PCI_PM_CTRL, 2, doing)
    if not control & pci.PCI_PM_CTRL_NO_SOFT_RESET:
        return "D0: in D3hot this card forgets its BARs, which only the kernel may take from it"
    config.write(at + pci.PCI_PM_CTRL, control & ~pci.PCI_PM_CTRL_STATE_MASK | D3HOT, 2)
    device.clock.sleep_us(SLEEP_US)
    state = ask(config, at + pci.PCI_PM_CTRL, 2, doing) & pci.PCI_PM_CTRL_STATE_MASK
    return "D3hot" if state == D3HOT else f"D{state}: it did not go to sleep"


def from_first(device: Device, offered: tuple[str, ...], first: str) -> tuple[str, ...]:
    """Return the rungs from `first` on. Raises a `ValueError` for one that is not offered."""
    if first not in offered:
        raise ValueError(f"{device.name} has no reset {first!r}; it has {', '.join(offered)}")
    return offered[offered.index(first) :]


# --- reports ----------------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class LeftReport:
    """What is known of the card. `str()` is for people, `as_dict()` for JSON.

    `unknown`: what could not be read, and why; `lost` is empty while the card answers.
    """

    name: str
    state: str = ""
    holder: str = ""
    power: str = ""
    link: str = ""
    faults: list[str] = field(default_factory=list)
    registers: dict[str, dict[str, str]] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    lost: str = ""
    doubts: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        state = "lost while it was looked at; what follows is of before" if self.lost else self.state
        yield f"{self.name}: {state}" + (f", {self.holder}" if self.holder else "")
        yield f"  power {self.power}, link {self.link or 'unknown'}"
        yield from self._of_maker()
        for title, entries in self._lists():
            if entries:
                yield f"{title}:"
                yield from (f"  {entry}" for entry in entries)
        for block, words in self._tables().items():
            if words:
                yield f"{block}:"
                yield from (f"  {name} {value}" for name, value in words.items())
        if self.unknown:
            yield "not known:"
            yield from (f"  {entry}" for entry in self.unknown)

    def _of_maker(self) -> Iterator[str]:
        """Yield lines that only one vendor's cards have."""
        return iter(())

    def _lists(self) -> Iterator[tuple[str, list[str]]]:
        """Yield lists with their titles."""
        yield "silent, or not what the driver was written for", self.doubts
        yield "faults", self.faults

    def _tables(self) -> dict[str, dict[str, Any]]:
        """Return names and values by their title."""
        return dict(self.registers)

    def bus(self, card: AsFound) -> None:
        """Take in what the bus tells."""
        asleep = " (it slept, and was woken)" if card.found_asleep and card.own else ""
        self.power = f"D{power_state(card.device.config)}{asleep}"
        now, able = card.links
        self.link = f"generation {now.generation} x{now.lanes} of generation {able.generation} x{able.lanes}"

    def take(self, device: Device, steps: Iterable[tuple[str, Callable[[], None]]]) -> None:
        """Take steps of an examination by their names. One that fails is noted, and the others are taken; a card that
        is lost ends them.
        """
        for what, step in steps:
            try:
                step()
            except DeviceLost as error:
                self.unknown.append(f"{what}: {error}")
                self.lost = str(error)
                return
            except (RingupError, ValueError) as error:
                # a read-only device refuses with a `ValueError` what would need a write
                self.unknown.append(f"{what}: {error}")
        if device.lost:
            self.lost = f"{self.name} {device.why_lost}"
