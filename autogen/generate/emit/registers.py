"""Write typed register modules: a `Word` class per register, places and field changes by version."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ringup.autogen.generate.emit.register_facts import FieldFacts, RegisterFacts
from ringup.autogen.generate.emit.spelling import HEAD, field_name
from ringup.autogen.structs import near
from ringup.errors import HeaderError

Version = tuple[int, ...]
Bits = dict[str, tuple[int, int]]  # field name: high and low bit
Changes = dict[str, tuple[int, int] | None]  # None: the field does not exist

IMPORT = "from ringup.autogen.layout import Field, Word"
LINE_LENGTH = 120
# Order of preference if a header reaches a register in several ways.
KINDS = ("reg", "mm", "smn", "ix", "cfg", "")


def emit_registers(
    module_doc: str,
    versions: Mapping[Version, Sequence[RegisterFacts]],
    names: Iterable[str],
    source: str,
    same: Mapping[Version, Version] | None = None,
) -> str:
    """Return the text of a module for the registers `names`, in that order.

    `versions` are the registers of each version's own header; `same` maps versions that share another's header to it. A
    class has the fields with the fewest differences to the other versions; if several layouts tie, those of the lowest
    version. CHANGES has the differences. PLACES has (offset, segment) in the unit of the facts, with segment None if
    there is no base to add, and (offset, segment, stride, count) for arrays. A version that lacks a register has no
    place for it; one that lacks them all has no row. A name that every version lacks raises `HeaderError`.
    """
    ascending = sorted(versions)
    chosen = {version: _by_name(versions[version]) for version in ascending}
    names = list(dict.fromkeys(names))
    for name in names:
        if not any(name in rows for rows in chosen.values()):
            known = dict.fromkeys(sorted({known for rows in chosen.values() for known in rows}))
            raise HeaderError(f"no version of {source} has a register {name}{near(name, known)}")
    lines = [HEAD.format(doc=module_doc, source=source), IMPORT]
    bases: dict[str, Bits] = {}
    for name in names:
        rows = [found[name] for found in chosen.values() if name in found]
        bases[name] = _base([_bits(facts) for facts in rows])
        lines.append(_class(name, bases[name], max(facts.width_bits for facts in rows)))
    every = {version: [rows[name] for name in names if name in rows] for version, rows in chosen.items()}
    wanted = {version: rows for version, rows in every.items() if rows}
    differences = {version: _differences(rows, bases) for version, rows in wanted.items()}
    lines += ["", "", _places(wanted), "", _changes(differences)]
    aliases = sorted((version, other) for version, other in (same or {}).items() if other in wanted)
    lines += [""] * bool(aliases)
    for version, other in aliases:
        lines.append(f"PLACES[{_key(version)}] = PLACES[{_key(other)}]")
        if differences[other]:
            lines.append(f"CHANGES[{_key(version)}] = CHANGES[{_key(other)}]")
    return "\n".join(lines) + "\n"


def _by_name(registers: Iterable[RegisterFacts]) -> dict[str, RegisterFacts]:
    rows: dict[str, RegisterFacts] = {}
    for facts in registers:
        other = rows.get(facts.name)
        if other is None or _rank(facts) < _rank(other):
            rows[facts.name] = facts
    return rows


def _rank(facts: RegisterFacts) -> int:
    return KINDS.index(facts.kind) if facts.kind in KINDS else len(KINDS)


def _bits(facts: RegisterFacts) -> Bits:
    bits: Bits = {}
    for field in facts.fields:
        if field.mask is not None:
            raise HeaderError(
                f"{facts.name}.{field.name} has bits with gaps, which a Field cannot say: {field.mask:#x}"
            )
        name = field_name(field.name)
        if bits.setdefault(name, (field.hi, field.lo)) != (field.hi, field.lo):
            name = _other_case(name, field, bits, facts)
            bits[name] = (field.hi, field.lo)
    return bits


def _other_case(name: str, field: FieldFacts, bits: Bits, facts: RegisterFacts) -> str:
    """Return a free name for a field whose name differs from another's only in case."""
    name += "_"
    if name in bits:
        raise HeaderError(f"{facts.name}.{field.name}: two other fields differ from it by case only")
    return name


def _class(name: str, fields: Bits, width: int) -> str:
    taken, overlaps, bits = 0, False, fields.items()
    for hi, lo in fields.values():
        mask = (2 << hi) - (1 << lo)
        overlaps |= bool(taken & mask)
        taken |= mask
    options = (f", width={width}" if width != 32 else "") + (", overlaps=True" if overlaps else "")
    rows = [
        f"    {field} = Field({hi}, {lo})" if hi != lo else f"    {field} = Field({hi})" for field, (hi, lo) in bits
    ]
    return "\n".join([f"\n\nclass {name}(Word{options}):", *(rows or ["    pass"])])


def _places(wanted: Mapping[Version, Sequence[RegisterFacts]]) -> str:
    placed = [facts for rows in wanted.values() for facts in rows if facts.offset is not None]
    segmented = all(facts.segment is not None for facts in placed)
    pairs = all(facts.count == 1 for facts in placed)
    kind = "tuple[int, int]" if pairs and segmented else "tuple[int, int | None]" if pairs else "tuple[int | None, ...]"
    lines = [f"PLACES: dict[tuple[int, ...], dict[type[Word], {kind}]] = {{"]
    for version, rows in wanted.items():
        lines.append(f"    {version}: {{")
        lines += [f"        {facts.name}: {_place(facts)}," for facts in rows if facts.offset is not None]
        lines.append("    },")
    return "\n".join([*lines, "}"])


def _place(facts: RegisterFacts) -> str:
    segment = facts.segment
    if segment is not None and segment < 0:
        raise HeaderError(f"{facts.name} at {facts.offset}: its header names no segment, so it has no place")
    array = f", {facts.stride:#x}, {facts.count}" if facts.count != 1 else ""
    return f"({_hex(facts.offset)}, {segment}{array})"


def _hex(value: int | None) -> str:
    return f"0x{value or 0:X}"


def _differences(rows: Sequence[RegisterFacts], bases: Mapping[str, Bits]) -> dict[str, Changes]:
    """Return by register the fields that differ from the class."""
    found: dict[str, Changes] = {}
    for facts in rows:
        if changes := _change(bases[facts.name], _bits(facts)):
            found[facts.name] = changes
    return found


def _change(base: Bits, here: Bits) -> Changes:
    changes: Changes = {name: bits for name, bits in here.items() if base.get(name) != bits}
    return changes | {name: None for name in base if name not in here}


def _base(layouts: Sequence[Bits]) -> Bits:
    return min(layouts, key=lambda base: sum(len(_change(base, here)) for here in layouts))


def _changes(differences: Mapping[Version, Mapping[str, Changes]]) -> str:
    lines = ["CHANGES: dict[tuple[int, ...], dict[type[Word], dict[str, tuple[int, int] | None]]] = {"]
    if not any(differences.values()):
        return lines[0] + "}"
    for version, words in differences.items():
        if not words:
            continue
        lines.append(f"    {version}: {{")
        for name, fields in words.items():
            items = [f'"{field}": {bits}' for field, bits in fields.items()]
            whole = f"        {name}: {{{', '.join(items)}}},"
            if len(whole) <= LINE_LENGTH:
                lines.append(whole)
            else:
                lines += [f"        {name}: {{", *(f"            {item}," for item in items), "        },"]
        lines.append("    },")
    return "\n".join([*lines, "}"])


def _key(version: Version) -> str:
    return ", ".join(map(str, version))
