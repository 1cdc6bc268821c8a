"""Names of cards and the transports that open them: `ringup.open(name)` and `ringup.cards()`.

A name is `PREFIX:REST` and identifies one path to one card. Transports register in the entry-point group
`ringup.transports`: the entry's name is the prefix, its object has the two functions of `Transport`. This module knows
no bus and no vendor. A transport opens the path to a card, and `drivers/select.py` selects the driver to start on it.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from importlib.metadata import EntryPoint, distributions, entry_points
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

from ringup.errors import NoSuchCard, NotSupported, RingupError, TransportError

if TYPE_CHECKING:
    from ringup.drivers.card import Card

C = TypeVar("C")

GROUP = "ringup.transports"
LOG = logging.getLogger(__name__)
OWN = "ringup."
# The exceptions that another package's code may raise. If one transport raises one, the cards of the other transports
# are still listed. Ctrl-C is not caught.
THEIRS = (Exception, SystemExit)
MAX_CARDS = 4096
# The prefixes of ringup's own transports; other packages may add to them.
KNOWN_PREFIXES = {
    "pci": "a PCI function of this machine, pci:0000:03:00.0",
    "usb": "an enclosure on a USB port, usb:2-1",
    "kfd": "a Radeon that stays with the kernel's amdgpu, kfd:0",
    "nvidia": "a card that stays with NVIDIA's kernel driver, nvidia:0",
    "virtual": "a device model, virtual:navi31",
    "replay": "a recorded session, replay:FILE",
}
# Prefixes reserved for transports that do not exist yet: the macOS shim, kernel nodes, another machine.
RESERVED_PREFIXES = frozenset(("mac", "kgsl", "msm", "tcp"))


@dataclass(frozen=True, slots=True)
class Found:
    """One card that a transport finds. `skipped` says why it cannot be opened at present; empty if it can."""

    name: str
    description: str
    skipped: str = ""


@dataclass(frozen=True)
class Via:
    """What a transport's `open` may return instead of a card: another transport that reaches it.

    The card is `rest` of the transport `prefix`. `options` are those of that transport.
    """

    prefix: str
    rest: str
    options: Mapping[str, Any]


class Transport(Protocol):
    """The functions that an entry point of `ringup.transports` must have."""

    def find(self) -> Iterable[Found]:
        """List the cards of this transport without accessing them."""
        ...

    def open(self, rest: str, **options: Any) -> Any:
        """Open the path to the card `rest` (the name after the first colon).

        Returns a `ringup.drivers.transport.seam.Device`, a `Driven` if a kernel's driver has started the card, a card
        that is already up, or a `Via`. `options` are the transport's own.
        """
        ...


@overload
def open(name: str, *, kind: type[C], transport: Mapping[str, Any] | None = None, **options: Any) -> C: ...
@overload
def open(name: str, *, transport: Mapping[str, Any] | None = None, **options: Any) -> Card: ...
def open(
    name: str, *, kind: type[Any] | None = None, transport: Mapping[str, Any] | None = None, **options: Any
) -> Any:
    """Bring up the card called `name` and return it.

    `kind` is the class that the card must have, such as `ringup.Radeon`: another card is refused, and type checkers
    know the returned type. `transport` holds options of the transport (such as `{"wait_s": 5}`), `options` are the
    driver's (`firmware`, `watch`, …). Raises `NoSuchCard` for a name without a colon or with an unknown prefix,
    `NotSupported` for a prefix whose transport is not installed or a card that is not of `kind`, and the errors of
    bring-up.
    """
    path = connect(name, **dict(transport or {}))
    from ringup.drivers.transport.seam import Device, Driven

    if isinstance(path, (Device, Driven)):
        from ringup.drivers.select import start

        return start(path, kind, **options)
    if kind is not None and not isinstance(path, kind):
        path.close()
        raise NotSupported(f"opening {name}: it is a {type(path).__name__}, not a {kind.__name__}")
    return path


def connect(name: str, **options: Any) -> Any:
    """Open the path to the card called `name` without a driver: BARs, configuration space, host memory and resets.

    `options` are the transport's. Raises the same errors as `open`.
    """
    if not isinstance(name, str):
        raise TypeError(f"a card's name is a string such as 'pci:0000:03:00.0', not {name!r}")
    prefix, colon, rest = name.partition(":")
    transports = _transports()
    if not colon or not rest or prefix not in {*transports, *KNOWN_PREFIXES, *RESERVED_PREFIXES}:
        known = "; ".join(f"{key}: {text}" for key, text in KNOWN_PREFIXES.items())
        raise NoSuchCard(f"{name!r} names no card: a name is PREFIX:REST ({known})")
    if prefix not in transports:
        raise NotSupported(
            f"opening {name!r}: no installed package offers the transport {prefix!r} (entry-point group {GROUP})"
        )
    path = _open(transports[prefix], rest, options)
    if not isinstance(path, Via):
        return path
    if path.prefix not in transports:
        raise NotSupported(
            f"opening {name!r}: it is reached through the transport {path.prefix!r}, which is not installed"
        )
    return _open(transports[path.prefix], path.rest, path.options)


def cards() -> list[Found]:
    """List every card of every installed transport. A transport that fails is listed with its error."""
    return list(_find_all())


def prefixes() -> set[str]:
    """Return the prefixes that installed transports offer."""
    return set(_transports())


def _find_all() -> Iterator[Found]:
    for prefix, entry in sorted(_transports().items()):
        count = 0
        try:
            for card in _load(entry).find():
                yield _checked(card, prefix)
                count += 1
                if count == MAX_CARDS:
                    raise TransportError(f"the transport {prefix!r} lists more than {MAX_CARDS} cards")
        except THEIRS as error:
            LOG.info("the transport %r failed", prefix, exc_info=error)
            yield Found(f"{prefix}:", "the transport failed", skipped=_reason(error))
    for name, reason in _damaged():
        yield Found(f"{name}:", "the package's entry points cannot be read", skipped=reason)


def _checked(card: object, prefix: str) -> Found:
    if not isinstance(card, Found) or not all(isinstance(text, str) for text in astuple(card)):
        raise TransportError(f"the transport {prefix!r} lists {_shown(card)}, which is not a `ringup.cards.Found`")
    return card


def _shown(value: object) -> str:
    try:
        return f"{value!r:.60}"
    except THEIRS:
        return f"a {type(value).__name__}"


def _reason(error: BaseException) -> str:
    try:
        text = str(error)
    except THEIRS as further:
        text = f"its message cannot be read: {type(further).__name__}"
    return text if isinstance(error, RingupError) else f"{type(error).__name__}: {text}"


def _transports() -> dict[str, EntryPoint]:
    """Return the transports by prefix.

    If two offer the same prefix, ringup's own wins, else the one whose module name sorts first.
    """
    try:
        found = list(entry_points(group=GROUP))
    # One package's file is damaged: read each package's separately.
    except THEIRS:
        found = [entry for _, entries, _ in _by_package() for entry in entries]
    ranked = sorted(found, key=lambda entry: (not entry.value.startswith(OWN), entry.value), reverse=True)
    return {entry.name: entry for entry in ranked}


def _damaged() -> Iterator[tuple[str, str]]:
    """Yield the packages whose entry points cannot be read, and why."""
    try:
        entry_points(group=GROUP)
    except THEIRS:
        yield from ((name, reason) for name, _, reason in _by_package() if reason)


def _by_package() -> Iterator[tuple[str, list[EntryPoint], str]]:
    """Yield each installed package, its transports, and why they cannot be read."""
    for package in distributions():
        name = "a package"
        try:
            # A damaged package may have no name: then its folder gives one.
            name = str(package.metadata["Name"] or getattr(package, "_path", name))
            entries = [entry for entry in package.entry_points if entry.group == GROUP]
        except THEIRS as error:
            yield name, [], _reason(error)
        else:
            yield name, entries, ""


def _load(entry: EntryPoint) -> Transport:
    """Import a transport.

    Raises `TransportError` for any error: a package that cannot be imported may fail in any way.
    """
    loading = f"loading the transport {entry.name!r} ({entry.value})"
    LOG.debug("%s", loading)
    try:
        transport: Transport = entry.load()
        lacking = [name for name in ("find", "open") if not callable(getattr(transport, name, None))]
    except THEIRS as error:
        raise TransportError(f"{loading}: {_reason(error)}") from error
    if lacking:
        raise TransportError(f"{loading}: {_shown(transport)} has no function {' or '.join(lacking)}")
    return transport


def _open(entry: EntryPoint, rest: str, options: Mapping[str, Any]) -> Any:
    """Let a transport open its path. An unexpected exception of another package's transport gets a note with its
    name.
    """
    transport = _load(entry)
    try:
        return transport.open(rest, **options)
    except SystemExit as error:
        raise TransportError(f"opening {entry.name}:{rest}: the transport ended Python with {error.code!r}") from error
    except Exception as error:
        if not isinstance(error, RingupError) and not entry.value.startswith(OWN):
            error.add_note(f"the transport {entry.name!r} ({entry.value}) raised it")
        raise


class _Callable(ModuleType):
    """Make this module callable.

    The package attribute `ringup.cards` is this module once it is imported, and `ringup.cards()` is public. So calling
    the module must list the cards.
    """

    def __call__(self) -> list[Found]:
        return cards()


sys.modules[__name__].__class__ = _Callable
