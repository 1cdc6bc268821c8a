"""Virtual cards as a transport: list them, and open one by name, in a slot or in a virtual enclosure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ringup.cards import Found, Via
from ringup.errors import DeviceLost, NoSuchCard, missing_package

if TYPE_CHECKING:
    from ringup.silicon.asm2464pd import Enclosure
    from ringup.silicon.pci.slot import SlotCard

ENCLOSURES = {  # by name of the bridge: its firmware, and a text for listings
    "asm2464pd": ("open", "open firmware"),
    "asm2464pd-patched": ("patched", "patched stock firmware"),
    "asm2464pd-stock": ("stock", "stock firmware"),
}
# a machine whose NVIDIA kernel driver has the card, instead of a bridge: the text for listings
KERNEL, KERNEL_TEXT = "nvidia", "behind a model of NVIDIA's kernel driver"
CARD_OPTIONS = (
    "vram_bytes", "bar0_bytes", "engine", "strict", "clock", "beside", "code_folder", "for_other_drivers",
)  # fmt: skip


@contextmanager
def _packages(doing: str) -> Iterator[None]:
    """Raise an error of the tree where a package of the extra `virtual` is not installed."""
    try:
        yield
    except ImportError as error:
        if reason := missing_package(error, doing, "virtual"):
            raise reason from error
        raise


@_packages("listing virtual cards")
def find() -> Iterable[Found]:
    """List the virtual cards, both in a slot and in enclosures. An accelerator has no plug for an enclosure's slot."""
    # a listing must not cost the models
    from ringup.silicon.amd.board.chips import CHIPS, every
    from ringup.silicon.nv.chips import CHIPS as NVIDIA
    from ringup.silicon.nv.kernel.rows import DOORBELLS

    products = {name: row.product for chips in (every(), NVIDIA) for name, row in chips.items()}
    return [
        *(Found(f"virtual:{name}", f"{product}, a device model") for name, product in products.items()),
        *(Found(f"virtual:{name}@{KERNEL}", f"{products[name]} {KERNEL_TEXT}") for name in NVIDIA if name in DOORBELLS),
        *(
            Found(f"virtual:{name}@{bridge}", f"{row.product} behind a model of an ASM2464PD, {text}")
            for name, row in CHIPS.items()
            for bridge, (_, text) in ENCLOSURES.items()
        ),
    ]


@_packages("opening a virtual card")
def open(
    rest: str, *, card: SlotCard | None = None, enclosure: Enclosure | None = None, **options: Any
) -> SlotCard | Via:
    """Open the device called `virtual:REST` and return it: `card`, or else a new card made with `options` (those of
    `ringup.silicon.card` or `ringup.silicon.nvidia_card`, whose `code_folder` is below the user's cache here).

    With `@nvidia` behind an NVIDIA card, return the route through the device nodes of a modelled kernel driver. Then
    `options` may include `release`, the driver's.

    With a bridge (`REST` is `CARD@BRIDGE`), return the route through a USB port of a virtual host. `options` may then
    include those of `Enclosure`; `enclosure` is an existing one, plugged in or not. Raises `CardBusy`, which names the
    holder, for a card in a slot that is already open.
    """
    name, at, bridge = rest.partition("@")
    _known(name)
    if bridge == KERNEL:
        return _behind_driver(name, card, options)
    if at:
        return _through(name, bridge, card, enclosure, options)
    if enclosure is not None:
        raise ValueError(f"virtual:{rest} sits in a slot: an enclosure is for virtual:{rest}@asm2464pd")
    if card is not None and (options or card.name != f"virtual:{name}"):
        raise ValueError(f"virtual:{rest} cannot be opened on {card.name} with options {sorted(options)}")
    card = card or _made(name, options)
    card.hold()
    return card


def _behind_driver(name: str, card: SlotCard | None, options: dict[str, Any]) -> Via:
    """Make the machine whose kernel driver has the card, and return the route through its nodes."""
    from ringup.silicon import nvidia_card, nvidia_cards
    from ringup.silicon.nv.card import VirtualNvidia
    from ringup.silicon.nv.kernel.system import RELEASES, VirtualKernel

    if name not in nvidia_cards():
        raise NoSuchCard(f"virtual:{name}@{KERNEL}: NVIDIA's driver drives NVIDIA's cards only")
    release = options.pop("release", RELEASES[0])
    if card is None:
        card = nvidia_card(name, **_with_code_folder(options))
    elif options:
        raise ValueError(f"virtual:{name}@{KERNEL} cannot be opened on {card.name} with options {sorted(options)}")
    if not isinstance(card, VirtualNvidia) or card.name != f"virtual:{name}":
        raise ValueError(f"virtual:{name}@{KERNEL} cannot be opened on {card.name}")
    kernel = VirtualKernel(card, release)
    return Via("nvidia", "0", {"model": kernel, "owned": True, "name": f"virtual:{name}@{KERNEL}"})


def _known(name: str) -> None:
    """Raise `NoSuchCard`, which lists the known names, for an unknown one."""
    from ringup.silicon import cards, nvidia_cards

    known = [*cards(), *nvidia_cards()]
    if name not in known:
        raise NoSuchCard(f"no virtual card {name!r}; there are: {', '.join(known)}")


def _made(name: str, options: dict[str, Any]) -> SlotCard:
    from ringup.silicon import card, nvidia_card, nvidia_cards

    make = nvidia_card if name in nvidia_cards() else card
    return make(name, **_with_code_folder(options))


def _with_code_folder(options: dict[str, Any]) -> dict[str, Any]:
    """Return a card's options. Translated shader programs are kept below the user's cache unless the options say where,
    or None for nowhere.
    """
    from ringup.silicon.shader.host.code_cache import users_folder

    return {"code_folder": users_folder(), **options}


def _through(
    name: str, bridge: str, card: SlotCard | None, enclosure: Enclosure | None, options: dict[str, Any]
) -> Via:
    """Make the card, the enclosure and the USB host that do not exist yet, and return the route to the card."""
    from ringup.silicon import card as make
    from ringup.silicon import nvidia_cards
    from ringup.silicon.amd.board.chips import CHIPS
    from ringup.silicon.amd.card import VirtualRadeon
    from ringup.silicon.asm2464pd import Enclosure, VirtualUsbHost

    if bridge not in ENCLOSURES:
        raise NoSuchCard(f"no virtual bridge {bridge!r}; there are: {', '.join(ENCLOSURES)}")
    if name in nvidia_cards():
        raise NoSuchCard(f"virtual:{name}@{bridge}: the model of the enclosure takes a Radeon only")
    if name not in CHIPS:
        raise NoSuchCard(f"virtual:{name}@{bridge}: a module of a server's board does not fit into an enclosure's slot")
    if enclosure is None:
        of_card = {key: options.pop(key) for key in CARD_OPTIONS if key in options}
        if card is not None and of_card:
            raise ValueError(f"virtual:{name}@{bridge} cannot be opened on {card.name} with options {sorted(of_card)}")
        card = card or make(name, enumerated=False, **_with_code_folder(of_card))
        if not isinstance(card, VirtualRadeon):
            raise ValueError(f"virtual:{name}@{bridge} cannot be opened on {card.name}")
        enclosure = Enclosure(card, ENCLOSURES[bridge][0], **options)
    elif card is not None or options:
        raise ValueError(f"virtual:{name}@{bridge} cannot be opened in an existing enclosure with a card or options")
    if enclosure.card is None or enclosure.card.chip.name != name:
        raise ValueError(f"virtual:{name}@{bridge} cannot be opened in an enclosure without that card")
    if enclosure.host is None:
        VirtualUsbHost().plug(enclosure)
    if enclosure.host is None:
        raise DeviceLost(f"virtual:{name}@{bridge}: it left the bus as it was plugged in; plug it in again")
    return Via(
        "usb",
        enclosure.port,
        {
            "backend": enclosure.host,
            "clock": enclosure.machine,
            "name": f"virtual:{name}@{bridge}",
            "firmware": enclosure.card.firmware,
            "witness": enclosure.witness,
        },
    )
