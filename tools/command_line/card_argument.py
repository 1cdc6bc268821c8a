"""How every command chooses its card: CARD, `--card NAME`, RINGUP_CARD, else the only real card."""

from __future__ import annotations

import argparse
import os
from difflib import get_close_matches

from ringup.cards import KNOWN_PREFIXES, RESERVED_PREFIXES, cards, prefixes
from ringup.drivers.transport.linux.function import ADDRESS
from ringup.errors import NoSuchCard
from ringup.tools.common.paths import add_firmware_argument
from ringup.tools.common.wrong_usage import WrongUsage

ENVIRONMENT = "RINGUP_CARD"
VIRTUAL = "virtual:"


def add_card_arguments(
    parser: argparse.ArgumentParser, *, positional: bool = True, firmware: bool = False, json: str = "print one object"
) -> None:
    """Add the card's name, `--json` with its help, and `--firmware` for commands that start the card."""
    text = f"its name, as `ringup list` shows it (default: {ENVIRONMENT}, else the only real card)"
    if positional:
        parser.add_argument("card", nargs="?", metavar="CARD", help=text)
    parser.add_argument("--card", dest="card_option", metavar="NAME", help="the same as CARD" if positional else text)
    if firmware:
        add_firmware_argument(parser)
    parser.add_argument("--json", action="store_true", help=json)


def card_name(args: argparse.Namespace) -> str:
    """Return the name of the chosen card.

    Raises `WrongUsage` if two cards are named. Raises `NoSuchCard` with suggestions for an unknown name, and if no card
    is named and there is not exactly one real card.
    """
    name = _given(args)
    if not name:
        return _only()
    if not is_card(name):
        raise NoSuchCard(_advice(name))
    return name


def named(args: argparse.Namespace) -> str:
    """Return the word that names the card, known or not, for commands that never choose one themselves. Raises
    `WrongUsage` without one.
    """
    name = _given(args)
    if not name:
        raise WrongUsage(f"which card? name it, or set {ENVIRONMENT}")
    return name


def _given(args: argparse.Namespace) -> str:
    given = {name for name in (getattr(args, "card", None), args.card_option) if name}
    if len(given) > 1:
        raise WrongUsage(f"two cards are named: {' and '.join(sorted(given))}")
    return next(iter(given), None) or os.environ.get(ENVIRONMENT, "")


def is_card(text: str) -> bool:
    """Return whether a word of the command line is a card's name: a prefix of ringup or of another
    package, and a rest.
    """
    prefix, _, rest = text.partition(":")
    return bool(rest) and prefix in {*KNOWN_PREFIXES, *RESERVED_PREFIXES, *prefixes()}


def _only() -> str:
    """Return the one real card that can be opened."""
    found = [card for card in cards() if not card.name.startswith(VIRTUAL)]
    usable = [card.name for card in found if not card.skipped]
    if len(usable) == 1:
        return usable[0]
    if usable:
        raise NoSuchCard(f"several cards can be opened, name one: {', '.join(usable)}")
    reasons = "; ".join(f"{card.name}: {card.skipped}" for card in found)
    raise NoSuchCard(
        f"no real card can be opened ({reasons or 'none was found'}); `ringup doctor` says why, "
        "virtual:navi31 is always available"
    )


def _advice(name: str) -> str:
    """Return suggestions for a word that is not a card's name."""
    if ADDRESS.fullmatch(name.lower()):
        return f"{name!r} names no card: did you mean pci:{name}?"
    known = {card.name.rpartition(":")[2]: card.name for card in cards() if card.name.partition(":")[2]}
    wanted = name.partition(":")[2] or name  # also for an unknown prefix
    chip, at, bridge = wanted.partition("@")
    near = get_close_matches(chip.lower(), known, n=1, cutoff=0.7)
    if near:
        return f"{name!r} names no card: did you mean {known[near[0]]}{at}{bridge}?"
    return (
        f"{name!r} names no card: `ringup list` shows them; a name is PREFIX:REST with PREFIX one of "
        f"{', '.join(KNOWN_PREFIXES)}"
    )
