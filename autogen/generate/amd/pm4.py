"""Collect the words of AMD's PM4 packets from the kernel's headers, Mesa's packet database and committed facts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ringup.autogen.generate.emit.facts import Rejected, StructFacts
from ringup.autogen.generate.emit.packets import ConstantGroup, FieldRow, WordRow, field_name
from ringup.errors import HeaderError

AMDGPU = Path("drivers/gpu/drm/amd/amdgpu")
KFD = Path("drivers/gpu/drm/amd/amdkfd")
MESA = Path("src/amd/registers")
GENERATIONS = {"gfx11": "gfx11", "gfx12": "gfx12", "gfx9": "gfx940"}  # our name: Mesa's; the first is the base
# The header whose opcodes and helpers the driver uses in each generation.
HEADERS = {"gfx11": "nvd.h", "gfx12": "nvd.h", "gfx9": "soc15d.h"}

_OPCODE = re.compile(r"^#[ \t]*define[ \t]+PACKET3_(\w+)[ \t]+(0x[0-9a-fA-F]{1,2})[ \t]*(?:/\*.*)?$", re.MULTILINE)
_WINDOW = re.compile(r"^#[ \t]*define[ \t]+PACKET3_(\w+_(?:START|END))[ \t]+(0x[0-9a-fA-F]+)[ \t]*$", re.MULTILINE)
_IT = re.compile(r"^[ \t]*IT_(\w+)[ \t]*=[ \t]*(0x[0-9a-fA-F]+),", re.MULTILINE)
_HELPER = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+(\w+)(?:\(x\)[ \t]+\(\(x\)[ \t]*<<[ \t]*(\d+)\)|[ \t]+\(1[ \t]*<<[ \t]*(\d+)\))",
    re.MULTILINE,
)
_RANGE = re.compile(r"(\w+)=(\d+)(?::(\d+))?")


@dataclass(frozen=True, slots=True)
class Part:
    """Fields of one word from one source; `values` are the enumerants of a field."""

    fields: dict[str, tuple[int, int]]
    source: str
    values: dict[str, tuple[tuple[str, int], ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Pm4Sources:
    """The contents of the source files, read once."""

    text: dict[str, str]
    structs: Mapping[str, StructFacts]
    constants: Mapping[str, Sequence[tuple[str, int]]]
    pkt3: dict[str, Any]
    registers: dict[str, dict[str, Any]]

    def opcodes(self, header: str) -> dict[str, int]:
        """Return the packet opcodes of a header by name."""
        return {name: int(value, 16) for name, value in _OPCODE.findall(self.text[header])}

    def kfd_opcodes(self) -> dict[str, int]:
        """Return the opcodes with amdkfd's numbers."""
        return {name: int(value, 16) for name, value in _IT.findall(self.text["kfd_pm4_opcodes.h"])}

    def windows(self) -> dict[str, int]:
        """Return where the register windows of the SET_*_REG packets start and end, in dwords."""
        return {name: int(value, 16) for name, value in _WINDOW.findall(self.text["nvd.h"])}

    def helpers(self, header: str) -> dict[str, int]:
        """Return the lowest bit that each `NAME(x)` or flag of a header sets.

        Only `((x) << n)` and `(1 << n)` are read; such simple expressions need no evaluator.
        """
        found: dict[str, int] = {}
        for name, shift, flag in _HELPER.findall(self.text[header]):
            found.setdefault(name, int(shift or flag))
        return found


def read_sources(linux_root: Path, mesa_root: Path) -> Pm4Sources:
    """Read every file that packets come from."""
    from ringup.autogen.generate.c.clang import read  # loads libclang

    text = {name: _text(linux_root / AMDGPU / name) for name in ("nvd.h", "soc15d.h", "sid.h")}
    text["kfd_pm4_opcodes.h"] = _text(linux_root / KFD / "kfd_pm4_opcodes.h")
    headers = [linux_root / KFD / name for name in ("kfd_pm4_headers_ai.h", "kfd_pm4_headers_aldebaran.h")]
    unit = read(headers, prelude="typedef unsigned int uint32_t;\ntypedef int int32_t;\n", from_files=headers).unit
    constants: dict[str, list[tuple[str, int]]] = {}
    for constant in unit.constants.values():
        if isinstance(constant.value, int) and constant.enum:
            constants.setdefault(constant.enum, []).append((constant.name, constant.value))
    registers = {name: _json(mesa_root / MESA / f"{name}.json") for name in GENERATIONS.values()}
    return Pm4Sources(text, unit.structs, constants, _json(mesa_root / MESA / "pkt3.json"), registers)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError as error:
        raise HeaderError(f"no packets in {path.name}: {error.strerror}; unpack the Linux source package") from error


def _json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise HeaderError(f"Mesa's {path.name} cannot be read: {error}; unpack Mesa's source package") from error
    if not isinstance(data, dict) or not {"register_types", "register_mappings", "enums"} <= data.keys():
        raise HeaderError(f"Mesa's {path.name} is no register database: it lacks register_types, mappings or enums")
    return data


def committed(text: str, source: str) -> Part:
    """Read `name=hi:lo other=bit` from the manifest."""
    fields: dict[str, tuple[int, int]] = {}
    for item in text.split():
        match = _RANGE.fullmatch(item)
        if match is None:
            raise HeaderError(f"wanted_packets.toml: field {item!r} is not name=hi:lo or name=bit")
        fields[match[1]] = (int(match[2]), int(match[3] or match[2]))
    return Part(fields, source)


def from_struct(sources: Pm4Sources, place: str) -> Part:
    """Return the bit-fields of dword `ordinal` of a packet's C struct; `place` is `struct:ordinal`, counted from 1."""
    name, _, ordinal = place.partition(":")
    struct = sources.structs.get(name)
    if struct is None:
        raise HeaderError(f"wanted_packets.toml: kfd_pm4_headers_*.h have no struct {name}")
    first = (int(ordinal) - 1) * 32
    fields: dict[str, tuple[int, int]] = {}
    for member in _leaves(sources, struct, 0):
        member_name, offset, width = member
        if first <= offset < first + 32 and not member_name.startswith("reserved"):
            fields[member_name] = (offset - first + width - 1, offset - first)
    if not fields:
        raise HeaderError(f"wanted_packets.toml: struct {name} has no bit-field in dword {ordinal}")
    return Part(fields, name)


def _leaves(sources: Pm4Sources, struct: StructFacts, base: int) -> list[tuple[str, int, int]]:
    """Return (name, bit offset, width) of all bit-fields, including those of named inner structs."""
    found: list[tuple[str, int, int]] = []
    for member in struct.members:
        offset = base + member.offset_bits
        if member.width_bits is not None:
            found.append((member.name, offset, member.width_bits))
        elif member.type.is_struct and not member.type.dims and "TYPE_3_HEADER" not in member.type.base:
            found += _leaves(sources, sources.structs[member.type.base], offset)
    return found


def from_pkt3(sources: Pm4Sources, name: str, generation: str) -> Part:
    """Return the layout that pkt3.json gives dword `name` in a generation.

    gfx940 counts as gfx9 there if the file has no entry of its own for it.
    """
    chips = (GENERATIONS[generation], "gfx9") if generation == "gfx9" else (GENERATIONS[generation],)
    for chip in chips:
        for mapping in sources.pkt3["register_mappings"]:
            if mapping["name"] == name and chip in mapping["chips"]:
                return _type(sources.pkt3, mapping["type_ref"], f"pkt3.json {mapping['type_ref']}")
    raise HeaderError(f"wanted_packets.toml: pkt3.json has no {name} for {generation}")


def from_register(sources: Pm4Sources, name: str, generation: str) -> Part:
    """Return the layout of a register that the dword repeats."""
    database = sources.registers[GENERATIONS[generation]]
    return _type(database, name, f"{GENERATIONS[generation]}.json {name}")


def _type(database: Mapping[str, Any], name: str, source: str) -> Part:
    if name not in database["register_types"]:
        raise HeaderError(f"wanted_packets.toml: {source}: there is no such type")
    fields: dict[str, tuple[int, int]] = {}
    values: dict[str, tuple[tuple[str, int], ...]] = {}
    for row in database["register_types"][name]["fields"]:
        lo, hi = row["bits"]
        fields[row["name"].lower()] = (hi, lo)
        entries = database["enums"].get(row.get("enum_ref"), {}).get("entries", ())
        if entries:
            values[row["name"].lower()] = tuple((entry["name"], entry["value"]) for entry in entries)
    return Part(fields, source, values)


def word_parts(sources: Pm4Sources, spec: Mapping[str, Any], generation: str) -> list[Part]:
    """Return what the sources of a word's manifest entry give for a generation."""
    own = {**spec, **spec.get(generation, {})}
    if "gfx9" in spec and generation == "gfx9" and "kfd" in spec["gfx9"]:
        # the struct describes the whole dword
        own.pop("pkt3", None)
    parts = []
    if own.get("kfd"):
        parts.append(from_struct(sources, own["kfd"]))
    if own.get("json"):
        parts.append(from_register(sources, own["json"], generation))
    if own.get("pkt3") and not (generation == "gfx9" and own["pkt3"] == "ACQUIRE_MEM_PWS_7"):
        parts.append(from_pkt3(sources, own["pkt3"], generation))
    if own.get("fields"):
        parts.append(committed(own["fields"], own.get("origin", "")))
    return parts


def word(name: str, spec: Mapping[str, Any], parts: Sequence[Part]) -> WordRow:
    """Return the word. A field from two sources must have the same bits in both."""
    fields: dict[str, FieldRow] = {}
    for part in parts:
        for key, (hi, lo) in part.fields.items():
            spelled = field_name(key)
            known = fields.setdefault(spelled, FieldRow(hi, lo))
            if (known.hi, known.lo) != (hi, lo):
                raise HeaderError(f"{name}.{spelled}: {known.hi}:{known.lo} in one source, {hi}:{lo} in {part.source}")
    note = "; ".join(dict.fromkeys(part.source for part in parts if part.source))
    return WordRow(name, fields, (int(spec["dword"]),), note=note)


def compare_helpers(
    sources: Pm4Sources, words: Mapping[str, Mapping[str, WordRow]], specs: Mapping[str, Mapping[str, Any]]
) -> tuple[Rejected, ...]:
    """List where a helper macro of the kernel sets another bit than the word's field of that name, or a bit that no
    word has.
    """
    found: list[Rejected] = []
    for header in ("soc15d.h", "nvd.h"):
        for macro, low in sources.helpers(header).items():
            rows = _candidates(macro, header, words, specs)
            if not rows:
                found.append(Rejected(macro, header, f"sets bit {low}; no word of the manifest has it"))
            elif low not in rows.values():
                places = ", ".join(f"{place} at bit {lo}" for place, lo in rows.items())
                found.append(Rejected(macro, header, f"sets bit {low}; other sources have {places}"))
    return tuple(found)


def _candidates(
    macro: str, header: str, words: Mapping[str, Mapping[str, WordRow]], specs: Mapping[str, Mapping[str, Any]]
) -> dict[str, int]:
    """Return the fields that a helper may mean: those of words that name its prefix, in generations that use the
    header.
    """
    rows: dict[str, int] = {}
    for name, spec in specs.items():
        keys = [macro[len(prefix) :].lower() for prefix in spec.get("helpers", ()) if macro.startswith(prefix)]
        keys = [spec.get("aliases", {}).get(key, key) for key in keys] + [spec.get("flags", {}).get(macro, "")]
        for generation, of in words.items():
            row = of.get(name)
            if row is None or HEADERS[generation] != header:
                continue
            # `.._EN` in soc15d.h is `.._ena` in the struct
            for key in (*keys, *(f"{key}a" for key in keys)):
                if key in row.fields:
                    rows[f"{name}.{key}"] = row.fields[key].lo
    return rows


def enumerants(sources: Pm4Sources, specs: Mapping[str, Mapping[str, Any]]) -> list[ConstantGroup]:
    """Return the named values of pkt3.json, as PACKET_FIELD_NAME."""
    groups: list[ConstantGroup] = []
    for name, spec in specs.items():
        rows: dict[str, int] = {}
        for generation in GENERATIONS:
            if generation not in spec.get("only", GENERATIONS):
                continue
            for part in word_parts(sources, spec, generation):
                for key, values in part.values.items():
                    if key == "event_type":
                        continue  # it has its own group
                    stem = f"{name.rpartition('_')[0]}_{key.upper()}"
                    for value_name, value in values:
                        if rows.setdefault(f"{stem}_{value_name}", value) != value:
                            raise HeaderError(f"{stem}_{value_name} differs by generation; it needs a table")
        if rows:
            groups.append(ConstantGroup(f"{name}, pkt3.json", [(key, value, "") for key, value in rows.items()]))
    return groups


def struct_enumerants(sources: Pm4Sources, specs: Mapping[str, Mapping[str, Any]]) -> list[ConstantGroup]:
    """Return the named values of the kernel's packet structs that `specs` use, with the kernel's names."""
    structs = {own.get("kfd", "").partition(":")[0] for spec in specs.values() for own in (spec, spec.get("gfx9", {}))}
    stems = tuple(f"{name.removeprefix('pm4_').removesuffix('_aldebaran')}_" for name in structs if name)
    return [
        ConstantGroup(f"enum {enum}", [(name, value, "") for name, value in values])
        for enum, values in sources.constants.items()
        if enum.startswith(stems)
    ]


def events(sources: Pm4Sources) -> tuple[ConstantGroup, str]:
    """Return the event types on which all generations of Mesa's files agree, and a table of the others."""
    by_generation = {
        generation: {
            entry["name"]: entry["value"]
            for entry in sources.registers[chip]["enums"].get("VGT_EVENT_TYPE", {}).get("entries", ())
            if not entry["name"].lower().startswith("reserved")
        }
        for generation, chip in GENERATIONS.items()
    }
    numbers: dict[str, set[int]] = {}
    for rows in by_generation.values():
        for name, value in rows.items():
            numbers.setdefault(name, set()).add(value)
    agreed = [(f"EVENT_TYPE_{name}", min(values), "") for name, values in numbers.items() if len(values) == 1]
    lines = ["# event types whose number differs by generation", "EVENT_TYPES: dict[str, dict[str, int]] = {"]
    for generation, rows in by_generation.items():
        text = ", ".join(f'"{name}": {value}' for name, value in rows.items() if len(numbers[name]) > 1)
        lines.append(f'    "{generation}": {{{text}}},')
    return ConstantGroup("event types", agreed), "\n".join([*lines, "}"])
