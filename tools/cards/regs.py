"""`ringup regs`: find a chip's registers, show their bits and addresses, decode a value; read one of a present
card.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterable

from ringup.autogen.regdb import Chip, Place, Register, RegisterField, chip_names, open_chip
from ringup.errors import HeaderError
from ringup.tools.command_line.card_argument import add_card_arguments, card_name, is_card
from ringup.tools.common.json_text import json_text
from ringup.tools.common.wrong_usage import WrongUsage

FULL_LIMIT = 4  # registers shown with their fields
LINE_LIMIT = 40  # registers shown in one line each

LOG = logging.getLogger(__name__)

_PREFIXES = ("reg", "mm", "smn", "ix", "cfg")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Add the command to `ringup`'s parser."""
    parser = subparsers.add_parser(
        "regs",
        help="look up a chip's registers, decode a value, read one of a card",
        description="Find registers of a chip, show their fields, decode a value. With a card's name "
        "instead of the chip's, "
        "read that register "
        "of the card, without starting it. Without --write, nothing is written, and no register is read whose reading "
        "has side effects.",
    )
    parser.add_argument(
        "chip", nargs="?", help="such as navi31, or a card such as virtual:navi31; without it, the chips are listed"
    )
    parser.add_argument(
        "query",
        nargs="?",
        help="a register, a part of its name, a pattern with * and ?, or REGISTER=VALUE; without it, the chip's blocks",
    )
    parser.add_argument("--block", help="only this block, such as gc; without a query, show its line")
    parser.add_argument("--all", action="store_true", help="show every match with its fields")
    parser.add_argument(
        "--write", action="store_true", help="of a card: allow REGISTER=VALUE to write, and reads with side effects"
    )
    add_card_arguments(parser, positional=False, json="for programs: one JSON document")
    parser.set_defaults(run=run)
    return parser


def run(args: argparse.Namespace) -> int:
    """Answer the query on standard output. Raises `WrongUsage` for a value that the register cannot hold."""
    if card := _card(args):
        # a look-up must not import the drivers
        from ringup.tools.cards import read_registers

        return read_registers.run(args, *card)
    if args.write:
        raise WrongUsage("--write is for registers of a card: name a card instead of the chip")
    if args.chip is None:
        if args.block is not None:
            raise HeaderError(f"--block {args.block} needs a chip; `ringup regs` lists them")
        return _list_chips(as_json=args.json)
    chip = open_chip(args.chip)
    LOG.info("%s has %d blocks", chip.row.name, len(chip.row.places))
    _check_block(chip, args.block)
    if args.query is None:
        return _list_blocks(chip, args.block, as_json=args.json)
    query, is_value, value_text = args.query.partition("=")
    hits, others = _hits(chip, query, args.block, exactly=bool(is_value))
    LOG.info("%d registers match %s, in %s", len(hits), query, ", ".join(sorted({hit.place.file for hit in hits})))
    if not is_value:
        _write(_hits_text(chip, hits, others, everything=args.all), _json(chip, hits), as_json=args.json)
        return 0
    try:
        value = value_of(value_text, hits[0])
    except ValueError as error:
        raise WrongUsage(str(error)) from error
    # rows of one name in several blocks or kinds usually share a layout: decode each layout once
    layouts = list({hit.fields: hit for hit in reversed(hits)}.values())[::-1]
    lines = [line for hit in layouts for line in register_text(hit, value)]
    _write(lines, _json(chip, layouts, value), as_json=args.json)
    return 0


def _card(args: argparse.Namespace) -> tuple[str, str | None] | None:
    """Return the card and the query; None if a chip is named."""
    if args.card_option:
        if args.query is not None and args.chip is not None:
            raise WrongUsage(f"{args.chip} and {args.card_option}: give a card or a chip, not both")
        return card_name(argparse.Namespace(card_option=args.card_option)), args.chip
    if args.chip is None or not is_card(args.chip):
        return None
    return args.chip, args.query


def _check_block(chip: Chip, block: str | None) -> None:
    if block is not None and block not in {place.block for place in chip.row.places}:
        known = ", ".join(dict.fromkeys(place.block for place in chip.row.places))
        raise HeaderError(f"{chip.row.name} has no block {block}; it has {known}")


def _hits(chip: Chip, query: str, block: str | None, *, exactly: bool) -> tuple[list[Register], int]:
    """Return the registers that match a query, and how many more contain its text.

    A full name, in upper or lower case and with or without the header's prefix, matches only that register.
    """
    spellings = _spellings(query)
    try:
        exact = _named(chip, spellings, block)
    except HeaderError:
        # a damaged block may contain it; a part of a name is searched in the others
        if exactly:
            raise
        exact = []
    if exact:
        return exact, 0 if exactly else len(chip.find(exact[0].name, block)) - len(exact)
    found = [] if exactly or not query else chip.find(query, block)
    if not found:
        where = f"{chip.row.name}'s block {block}" if block else chip.row.name
        advice = _advice(chip, query, spellings, block, exactly=exactly)
        raise HeaderError(f"no register {query or '(empty name)'} in {where}; {advice}")
    return found, 0


def exactly(chip: Chip, name: str, block: str | None) -> list[Register]:
    """Return the registers of exactly that name, in upper or lower case and with or without the header's prefix. Raises
    `HeaderError` without a match.
    """
    return _hits(chip, name, block, exactly=True)[0]


def _spellings(query: str) -> list[str]:
    return [query, query.upper()] + [query[len(p) :] for p in _PREFIXES if query.startswith(p)]


def _named(chip: Chip, spellings: list[str], block: str | None) -> list[Register]:
    """Return the registers of the first spelling that matches. Raises `HeaderError` if none matches and a block is
    damaged.
    """
    damage = None
    for spelling in spellings:
        try:
            if found := chip.registers(spelling, block):
                return found
        except HeaderError as error:
            damage = error
    if damage is not None:
        raise damage
    return []


def _advice(chip: Chip, query: str, spellings: list[str], block: str | None, *, exactly: bool) -> str:
    """Return suggestions for a query without a match."""
    pattern = any(sign in query for sign in "*?[")
    if exactly and pattern:
        return f"a value needs one register: `ringup regs {chip.row.name} '{query}'` lists those of the pattern"
    if block is not None:
        try:
            elsewhere, say = _named(chip, spellings, None), "it is"
            if not elsewhere and not exactly and query:
                elsewhere, say = chip.find(query), "there are some"
        except HeaderError:
            # damage in other blocks does not matter
            elsewhere, say = [], ""
        if elsewhere:
            return f"{say} in {', '.join(dict.fromkeys(one.place.block for one in elsewhere))}"
    near = [] if pattern else chip.suggest(query, block=block)
    if near:
        return f"near: {', '.join(near)}"
    return "try a shorter part of the name" if pattern else "try a part of the name, or * and ?"


def value_of(text: str, register: Register) -> int:
    """Return the number in `text`. Raises `ValueError` for other text, and for a number that is too wide."""
    try:
        value = int(text, 0)
    except ValueError:
        raise ValueError(f"{text!r} is not a number for {register.name}; write 0x1f, 31 or 0b11111") from None
    width_bits = register.row.width_bits
    if value < 0 or value >> width_bits:
        raise ValueError(f"{register.name} holds {width_bits} bits, not {text}")
    return value


def _write(lines: Iterable[str], document: object, *, as_json: bool) -> None:
    if as_json:
        print(json_text(document, indent=1))
    else:
        for line in lines:
            print(line)


def _list_chips(*, as_json: bool) -> int:
    """List the chips. Raises `HeaderError` after the list if files of some are damaged, and if there are none."""
    lines, names, damage = [], [], []
    for name in chip_names():
        try:
            row = open_chip(name).row
        except HeaderError as error:
            damage.append(str(error))
            continue
        names.append(name)
        line = f"{row.name:14} {row.target:9} {row.vendor:5} {len(row.places):3} blocks  {row.note}"
        lines.append(line.rstrip())
    _write(lines, names, as_json=as_json)
    if damage or not names:
        raise HeaderError("; ".join(damage) or "the register database is empty: install ringup again")
    return 0


def _list_blocks(chip: Chip, block: str | None, *, as_json: bool) -> int:
    """List a chip's blocks. Raises `HeaderError` after the list if files of some are damaged."""
    lines, documents, damage = [], [], {}
    for place in chip.row.places:
        if block not in (None, place.block):
            continue
        count = None
        try:
            count = len(chip.file(place))
        except HeaderError as error:
            damage[str(error)] = place
        shown = f"{count:6} registers" if count is not None else "damaged         "
        sure = "" if not place.guess else "  (version is a guess)"
        lines.append(f"{place.block:8} {place.version:9} {shown}, {place.file}{sure}")
        documents.append(_block_json(place, count))
    _write(lines, documents, as_json=as_json)
    if damage:
        raise HeaderError("; ".join(damage))
    return 0


def _block_json(place: Place, count: int | None) -> dict[str, object]:
    return {
        "block": place.block,
        "version": place.version,
        "registers": count,
        "file": place.file,
        "bases": place.bases,
        "source": place.source,
        "guess": place.guess,
    }


def _hits_text(chip: Chip, hits: list[Register], others: int, *, everything: bool) -> list[str]:
    lines: list[str] = []
    if everything or len(hits) <= FULL_LIMIT:
        for hit in hits:
            lines += register_text(hit)
        if others > 0:
            lines.append(f"{others} more names contain {hits[0].name}: ringup regs {chip.row.name} '*{hits[0].name}*'")
        return lines
    shown = hits[:LINE_LIMIT]
    width = max(len(hit.name) for hit in shown)
    lines += [f"{hit.name:{width}}  {_place_text(hit)}" for hit in shown]
    if len(hits) > len(shown):
        lines.append(f"... and {len(hits) - len(shown)} of {len(hits)} more: use --all, --block or a longer name")
    return lines


def _place_text(register: Register) -> str:
    """Return the address of a register, as far as it is known."""
    row, place = register.row, register.place
    where = f"{place.block} {place.version}"
    if row.offset is None:
        return f"{where}  no offset in the headers"
    unit = "dword " if row.unit_bytes == 4 else ""
    parts = [f"{row.kind} {unit}{row.offset:#x}".strip()]
    if row.segment is not None:
        parts.append(f"segment {row.segment}" if row.segment >= 0 else "segment unknown")
    addresses = [address for i in range(max(1, len(place.bases))) if (address := register.address(i)) is not None]
    if addresses and (row.segment is not None or row.unit_bytes != 1):
        parts.append("byte " + " ".join(f"{address:#x}" for address in addresses))
    if row.count != 1:
        times = "an unknown number" if row.count == 0 else str(row.count)
        parts.append(f"{times} of them, {row.stride * row.unit_bytes:#x} bytes apart")
    parts += [text for text in (row.variant, row.note) if text]
    return f"{where}  " + ", ".join(parts)


def register_text(register: Register, value: int | None = None) -> list[str]:
    """Return lines with a register's address and fields; with the fields of `value` if it is given."""
    fields = register.fields
    title = register.name if value is None else f"{register.name} = {value:#x}"
    lines = [f"{title}  {_place_text(register)}"]
    width = max((len(field.name) for field in fields), default=0)
    known = 0
    for field in fields:
        known |= field.mask
        bits = f"{field.hi}:{field.lo}" if field.hi != field.lo else f"{field.hi}"
        lines.append(f"  {bits:>6}  {_field_text(field, width, value)}".rstrip())
    if value is not None and value & ~known:
        lines.append(f"  {'':6}  bits without a field: {value & ~known:#x}")
    if not fields:
        lines.append("          no fields in the headers")
    return lines


def _field_text(field: RegisterField, width: int, value: int | None) -> str:
    contiguous = field.mask == (2 << field.hi) - (1 << field.lo)
    extra = [] if contiguous else [f"mask {field.mask:#x}"]
    extra += [text for text in (field.variant, field.note) if text]
    if value is None:
        extra += [f"{number:#x} {name}" for name, number in field.values]
        return f"{field.name:{width}}  {'; '.join(extra)}"
    seen = field.of(value)
    extra = [field.named(seen), *extra]
    return f"{field.name:{width}}  {seen:#x}  {'; '.join(text for text in extra if text)}"


def _json(chip: Chip, hits: list[Register], value: int | None = None) -> list[dict[str, object]]:
    return [register_json(chip, hit, value) for hit in hits]


def register_json(chip: Chip, register: Register, value: int | None) -> dict[str, object]:
    """Return the same as plain values."""
    row, place = register.row, register.place
    document: dict[str, object] = {
        "chip": chip.row.name,
        "block": place.block,
        "version": place.version,
        "version_is_a_guess": place.guess,
        "name": row.name,
        "kind": row.kind,
        "offset": row.offset,
        "segment": row.segment if row.segment is None or row.segment >= 0 else "unknown",
        "unit_bytes": row.unit_bytes,
        "width_bits": row.width_bits,
        "stride": row.stride,
        "count": row.count,
        "variant": row.variant,
        "note": row.note,
        "addresses": [register.address(i) for i in range(max(1, len(place.bases)))],
        "fields": [_field_json(field, value) for field in register.fields],
    }
    if value is not None:
        document["value"] = value
    return document


def _field_json(field: RegisterField, value: int | None) -> dict[str, object]:
    document: dict[str, object] = {
        "name": field.name,
        "hi": field.hi,
        "lo": field.lo,
        "mask": field.mask,
        "values": dict(field.values),
        "variant": field.variant,
        "note": field.note,
    }
    if value is not None:
        document["value"] = field.of(value)
        document["value_name"] = field.named(field.of(value))
    return document
