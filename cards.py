"""Names of cards and the transports that reach them: `ringup.open(name)` and `ringup.cards()`.

A name is `PREFIX:REST` and means one path to one card. Transports plug in through the entry-point group `ringup.transports`: the entry's
name is the prefix, its object has the two functions of `Transport`. Nothing here knows a bus or a vendor: what a transport opens is the path
to a card, and `drivers/select.py` knows whose driver to start on it.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Any, Protocol

from ringup.errors import NoSuchCard, NotSupported, RingupError, TransportError

GROUP = "ringup.transports"
LOG = logging.getLogger(__name__)
KNOWN_PREFIXES = {  # what design.md names; a transport may add others
    "pci": "a PCI function of this machine, pci:0000:03:00.0",
    "usb": "an enclosure on a USB port, usb:2-1",
    "mac": "through the macOS shim, mac:0",
    "nvidia": "through the vendor's kernel driver, nvidia:0",
    "kfd": "through the kernel's compute node, kfd:0",
    "kgsl": "through Qualcomm's kernel node, kgsl:0",
    "msm": "through the kernel's DRM node, msm:0",
    "tcp": "a card on another machine, tcp:host:port",
    "virtual": "a device model, virtual:navi31",
    "replay": "a recorded session, replay:FILE",
}


@dataclass(frozen=True, slots=True)
class Found:
    """One card a transport sees. `skipped` says why it cannot be opened as things are; empty when it can."""

    name: str
    description: str
    skipped: str = ""


@dataclass(frozen=True)
class Via:
    """What a transport's `open` may return in a card's stead: the card is reached through another transport, `prefix`, as `rest` there."""

    prefix: str
    rest: str
    options: Mapping[str, Any]


class Transport(Protocol):
    """What an entry point of `ringup.transports` must offer."""

    def find(self) -> Iterable[Found]:
        """List the cards of this transport without touching them."""
        ...

    def open(self, rest: str, **options: Any) -> Any:
        """Open the path to the card that `rest` (the name after the first colon) means.

        Returns a `ringup.drivers.transport.seam.Device`, a card that is up already where a kernel driver does that, or a `Via`. `options` are
        the transport's own.
        """
        ...


def open(name: str, *, transport: Mapping[str, Any] | None = None, **options: Any) -> Any:
    """Bring up the card called `name` and return it.

    `transport` holds options of the transport (such as `{"wait_s": 5}`), `options` are the driver's (`firmware`, `watch`, …). Raises
    `NoSuchCard` for a name without a colon or with an unknown prefix, `NotSupported` for a prefix whose transport is not installed, and
    whatever bring-up raises.
    """
    path = connect(name, **dict(transport or {}))
    from ringup.drivers.transport.seam import Device

    if not isinstance(path, Device):
        return path
    from ringup.drivers.select import start

    return start(path, **options)


def connect(name: str, **options: Any) -> Any:
    """Open the path to the card called `name` and start no driver: BARs, configuration space, host memory, resets in your hands.

    `options` are the transport's. Raises as `open` does.
    """
    if not isinstance(name, str):
        raise TypeError(f"a card's name is a string such as 'pci:0000:03:00.0', not {name!r}")
    prefix, colon, rest = name.partition(":")
    transports = _transports()
    if not colon or not rest or (prefix not in transports and prefix not in KNOWN_PREFIXES):
        known = "; ".join(f"{key}: {text}" for key, text in KNOWN_PREFIXES.items())
        raise NoSuchCard(f"{name!r} names no card: a name is PREFIX:REST ({known})")
    if prefix not in transports:
        raise NotSupported(
            f"opening {name!r}: no installed package offers the transport {prefix!r} (entry-point group {GROUP})"
        )
    path = _load(transports[prefix]).open(rest, **options)
    if not isinstance(path, Via):
        return path
    if path.prefix not in transports:
        raise NotSupported(
            f"opening {name!r}: it is reached through the transport {path.prefix!r}, which is not installed"
        )
    return _load(transports[path.prefix]).open(path.rest, **path.options)


def cards() -> list[Found]:
    """List every card of every installed transport; a transport that fails is listed with its error and hides no other."""
    return list(_find_all())


def _find_all() -> Iterator[Found]:
    for prefix, entry in sorted(_transports().items()):
        try:
            for card in _load(entry).find():
                yield _checked(card, prefix)
        except Exception as error:  # another package's code: whatever it does, the other transports' cards are listed
            LOG.info("the transport %r failed", prefix, exc_info=error)
            yield Found(f"{prefix}:", "the transport failed", skipped=_reason(error))


def _checked(card: object, prefix: str) -> Found:
    if not isinstance(card, Found):
        raise TransportError(f"the transport {prefix!r} lists {card!r:.60}, which is no `ringup.cards.Found`")
    return card


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, RingupError) else f"{type(error).__name__}: {error}"


def _transports() -> dict[str, EntryPoint]:
    return {entry.name: entry for entry in entry_points(group=GROUP)}


def _load(entry: EntryPoint) -> Transport:
    """Import a transport. Raises `TransportError` whatever goes wrong: a package that cannot be imported may fail in any way."""
    loading = f"loading the transport {entry.name!r} ({entry.value})"
    LOG.debug("%s", loading)
    try:
        transport: Transport = entry.load()
    except Exception as error:
        raise TransportError(f"{loading}: {_reason(error)}") from error
    lacking = [name for name in ("find", "open") if not callable(getattr(transport, name, None))]
    if lacking:
        raise TransportError(f"{loading}: {transport!r:.60} has no function {' or '.join(lacking)}")
    return transport


class _Callable(ModuleType):
    """The package attribute `ringup.cards` is this module once it is imported, and `ringup.cards()` is public: calling the one is the other."""

    def __call__(self) -> list[Found]:
        return cards()


sys.modules[__name__].__class__ = _Callable
