"""Make `autogen/qcom`: the Adreno registers, packets and descriptors in `wanted_qcom.toml`, and the chips'
databases.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ringup.autogen.generate.emit.facts import Rejected
from ringup.autogen.generate.emit.packets import ConstantGroup, FieldRow, Module, Version, WordRow, emit, field_name
from ringup.autogen.generate.qualcomm.registers import (
    WHOLE,
    Sources,
    databases,
    disagreements,
    is_selector,
    note_of,
    read_sources,
    select_one,
)
from ringup.autogen.generate.qualcomm.rnn import Database, EnumValue, Register
from ringup.errors import HeaderError

WANTED = Path(__file__).with_name("wanted_qcom.toml")
GENERATIONS: dict[str, Version] = {"A6XX": (6,), "A7XX": (7,)}
PLAIN = frozenset(("uint", "hex", "boolean"))  # types that add nothing to the bits
SOURCE = "Mesa's src/freedreno/registers"


@dataclass(frozen=True)
class Wanted:
    """One module of the manifest."""

    name: str
    doc: str
    files: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    registers: tuple[str, ...] = ()
    enums: tuple[str, ...] = ()
    opcodes: str = ""
    leave_out: tuple[str, ...] = ()


def _wanted(name: str, row: dict[str, Any]) -> Wanted:
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    return Wanted(name, **fields)


def read_wanted(path: Path = WANTED) -> list[Wanted]:
    """Read the manifest of Qualcomm modules."""
    try:
        rows: dict[str, dict[str, Any]] = tomllib.loads(path.read_text("utf-8"))
        return [_wanted(name, row) for name, row in rows.items()]
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise HeaderError(f"manifest {path.name}: {error!r}") from error


def _matching(patterns: Iterable[str], names: Iterable[str], what: str, module: str) -> set[str]:
    """Return the names that match; a pattern without a match is an error."""
    known = list(dict.fromkeys(names))
    found: set[str] = set()
    for pattern in patterns:
        hits = {name for name in known if fnmatchcase(name, pattern)}
        if not hits:
            raise HeaderError(f"wanted_qcom.toml, {module}: no {what} matches {pattern}; take it out or correct it")
        found |= hits
    return found


def _chosen(database: Database, wanted: Wanted) -> list[Register]:
    """Return the registers that a module wants, of either generation."""
    of_files = [register for register in database.registers if register.where.partition(":")[0] in wanted.files]
    domains = _matching(wanted.domains, (register.domain for register in of_files), "domain", wanted.name)
    domains -= _matching(wanted.leave_out, domains, "domain", wanted.name)
    of_domains = [register for register in of_files if register.domain in domains]
    names = _matching(wanted.registers, (register.name for register in of_domains), "register", wanted.name)
    return [
        register
        for register in of_domains
        if register.name in names and any(database.applies(register, {"chip": chip}) for chip in GENERATIONS)
    ]


def word_name(register: Register) -> str:
    """Return a class name as in Mesa's C headers, without the generation.

    Selectors come first, then the domain unless it is the chip's.
    """
    parts = [condition.variants for condition in register.conditions if is_selector(condition)]
    if register.domain != "A6XX":
        parts.append(register.domain)
    return "_".join([*parts, register.name])


def word_row(database: Database, register: Register, chip: str) -> WordRow:
    """Return the register as in the chip's generation."""
    fields: dict[str, FieldRow] = {}
    for bits in register.fields:
        if not database.holds(bits.condition, {"chip": chip}):
            continue
        notes = [] if bits.type in PLAIN and not bits.shr else [note_of(bits)]
        if bits.condition and is_selector(bits.condition):
            notes.append(f"only {bits.condition.variants}")
        name = field_name(bits.name or WHOLE)
        if name in fields:
            raise HeaderError(f"{register.where}: {register.name} has two fields {name} in {chip}")
        fields[name] = FieldRow(bits.hi, bits.lo, "; ".join(note for note in notes if note))
    place: tuple[int, ...] = (register.offset, 0)
    if register.dimensions:
        if len(register.dimensions) > 1 or register.dimensions[0].offsets:
            raise HeaderError(f"{register.where}: {register.name} is no plain array; a module's places cannot say it")
        place += (register.dimensions[0].stride, register.dimensions[0].count)
    note = "" if register.described else "the source gives no width"
    return WordRow(word_name(register), fields, place, register.width_bits, note)


def _words(database: Database, registers: Iterable[Register], chip: str) -> list[WordRow]:
    by_name: dict[str, list[Register]] = {}
    for register in registers:
        if database.applies(register, {"chip": chip}):
            by_name.setdefault(word_name(register), []).append(register)
    return [word_row(database, select_one(database, same), chip) for same in by_name.values()]


def _alive(database: Database, values: Iterable[EnumValue]) -> dict[str, tuple[EnumValue, ...]]:
    """Return each name's values in any generation."""
    alive: dict[str, tuple[EnumValue, ...]] = {}
    for value in values:
        if any(database.holds(value.condition, {"chip": chip}) for chip in GENERATIONS):
            alive[value.name] = (*alive.get(value.name, ()), value)
    return alive


def _enum_groups(database: Database, names: Iterable[str]) -> list[ConstantGroup]:
    """Return the constants of enums. A name with different values in two enums gets its enum's name as prefix."""
    numbers: dict[str, set[int]] = {}
    wanted = list(names)
    for name in wanted:
        for key, values in _alive(database, database.enums[name]).items():
            numbers.setdefault(key, set()).update(value.value for value in values)
    groups = []
    for name in wanted:
        rows = []
        for key, values in _alive(database, database.enums[name]).items():
            if len({value.value for value in values}) > 1:
                raise HeaderError(f"enum {name}: {key} has several values within {', '.join(GENERATIONS)}")
            spelled = key if len(numbers[key]) == 1 else f"{name}_{key}"
            rows.append((spelled, values[0].value, values[0].condition.variants if values[0].condition else ""))
        if rows:
            groups.append(ConstantGroup(f"enum {name}", rows))
    return groups


def _opcodes(database: Database, enum: str) -> tuple[ConstantGroup, str]:
    """Return the opcodes as constants, and the table by generation for a decoder."""
    rows: dict[str, tuple[str, int, str]] = {}
    tables: list[str] = []
    for chip, version in GENERATIONS.items():
        table: dict[int, str] = {}
        for value in database.enums[enum]:
            if database.holds(value.condition, {"chip": chip}):
                rows.setdefault(
                    value.name, (value.name, value.value, value.condition.variants if value.condition else "")
                )
                # The first name of a number is the usual one, but a marked one beats an unmarked one.
                if value.value not in table or value.condition:
                    table[value.value] = value.name
        entries = "".join(f'        0x{number:X}: "{name}",\n' for number, name in sorted(table.items()))
        tables.append(f"    {version}: {{\n{entries}    }},\n")
    text = (
        "# opcode to name, by generation\nOPCODES: dict[tuple[int, ...], dict[int, str]] = {\n" + "".join(tables) + "}"
    )
    return ConstantGroup(f"opcodes, enum {enum}", list(rows.values()), hexadecimal=True), text


def module_text(database: Database, wanted: Wanted) -> str:
    """Return one generated module."""
    registers = _chosen(database, wanted)
    versions = {version: _words(database, registers, chip) for chip, version in GENERATIONS.items()}
    used = [
        bits.type
        for register in registers
        for bits in register.fields
        if bits.type in database.enums and any(database.holds(bits.condition, {"chip": c}) for c in GENERATIONS)
    ]
    asked = _matching(wanted.enums, database.enums, "enum", wanted.name)
    enums = [name for name in database.enums if name in asked or name in used]
    groups = _enum_groups(database, enums)
    tables = []
    places_doc = "dword offset, 0 and, of an array, stride and count; by generation"
    if wanted.opcodes:
        if wanted.opcodes not in database.enums:
            raise HeaderError(f"wanted_qcom.toml, {wanted.name}: no enum {wanted.opcodes}")
        group, table = _opcodes(database, wanted.opcodes)
        groups.insert(0, group)
        tables.append(table)
        places_doc = "dword behind the packet's header, 0 and, of an array, stride and count; by generation"
    return emit(Module(wanted.doc, f"{SOURCE} ({', '.join(wanted.files)})", versions, groups, tables, places_doc))


@dataclass(frozen=True)
class Qualcomm:
    """Files by their path below `autogen/`, and what was not read or where the sources disagree."""

    files: dict[str, str | bytes]
    rejected: tuple[Rejected, ...]


def make_qualcomm(linux_root: Path, mesa_root: Path, manifest: Path = WANTED) -> Qualcomm:
    """Read both trees and make all files."""
    sources: Sources = read_sources(linux_root, mesa_root)
    files: dict[str, str | bytes] = {}
    for wanted in read_wanted(manifest):
        files[f"qcom/{wanted.name}.py"] = module_text(sources.mesa, wanted)
    files.update(databases(sources))
    return Qualcomm(files, (*sources.mesa.rejected, *sources.linux.rejected, *disagreements(sources)))


def generate_qualcomm(linux_root: Path, mesa_root: Path) -> tuple[Mapping[str, str | bytes], tuple[Rejected, ...]]:
    """Return every generated file of Qualcomm by its path below `autogen/`, and what could not be read in the
    sources.
    """
    made = make_qualcomm(linux_root, mesa_root)
    return made.files, made.rejected
