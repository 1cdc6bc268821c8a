"""Read amdgpu's SDMA packet headers: `SDMA_PKT_<packet>_<dword>_<field>_{offset,mask,shift}` and the opcodes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from ringup.autogen.generate.emit.facts import Rejected
from ringup.autogen.generate.emit.packets import ConstantGroup, FieldRow, Module, Version, WordRow, emit, field_name
from ringup.errors import HeaderError

FOLDER = Path("drivers/gpu/drm/amd/amdgpu")
MAX_BYTES = 4 << 20  # the largest has 330 kB

_PACKET = re.compile(r"\*\* Definitions for (\w+) packet")
_GROUP = re.compile(r"/\*define for (\w+) word\*/")
_NUMBER = re.compile(r"#define[ \t]+(\w+)[ \t]+(0[xX][0-9a-fA-F]+|\d+)[ \t]*$")
_NAMED = re.compile(r"#[ \t]*define[ \t]+(\w+)(\(\w+\))?[ \t]+(.+?)[ \t]*$")


@dataclass(frozen=True, slots=True)
class SdmaField:
    """A field of a packet, by the dword group in its macro's name. Bits count from the packet's first."""

    group: str
    name: str
    hi: int
    lo: int


@dataclass(frozen=True)
class SdmaHeader:
    """Packets and plain numbers of one header."""

    packets: dict[str, tuple[SdmaField, ...]]
    numbers: dict[str, int]
    rejected: tuple[Rejected, ...]


def read_header(path: Path) -> SdmaHeader:
    """Read one `*_sdma_pkt_open.h` as text: it contains only numbers and the setters that use them."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise HeaderError(
            f"no SDMA packets in {path.name}: {error.strerror}; unpack the Linux source package"
        ) from error
    if len(data) > MAX_BYTES:
        raise HeaderError(f"{path.name}: {len(data)} bytes, an SDMA packet header has at most {MAX_BYTES}")
    numbers: dict[str, int] = {}
    # macro stem to packet and dword group
    places: dict[str, tuple[str, str]] = {}
    rejected: list[Rejected] = []
    packet = group = ""
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        if match := _PACKET.match(line):
            packet, group = match[1], ""
        elif match := _GROUP.match(line):
            group = match[1]
        elif match := _NUMBER.match(line):
            numbers[match[1]] = int(match[2], 0)
            if match[1].endswith("_offset"):
                places[match[1][: -len("_offset")]] = (packet, group)
        elif (match := _NAMED.match(line)) and not (match[2] and f"{packet}_{group}_" in match[3]):
            rejected.append(Rejected(match[1], f"{path.name}:{number}", "neither a number nor a packet's setter"))
    packets: dict[str, list[SdmaField]] = {}
    for stem, (packet, group) in places.items():
        prefix = f"{packet}_{group}_"
        try:
            dword, mask, shift = (numbers.pop(f"{stem}_{end}") for end in ("offset", "mask", "shift"))
        except KeyError as error:
            rejected.append(Rejected(stem, path.name, f"no {error.args[0]}"))
            continue
        if not stem.startswith(prefix) or mask & mask + 1 or not mask or mask << shift >> 32:
            rejected.append(
                Rejected(stem, path.name, f"mask {mask:#x} at {shift} of dword {dword} of {packet} {group}")
            )
            continue
        lo = dword * 32 + shift
        packets.setdefault(packet, []).append(SdmaField(group, stem[len(prefix) :], lo + mask.bit_length() - 1, lo))
    return SdmaHeader({name: tuple(fields) for name, fields in packets.items()}, numbers, tuple(rejected))


def field_names(variants: Iterable[Sequence[SdmaField]]) -> dict[tuple[str, str], str]:
    """Return the attribute of each (dword group, field) of a packet.

    A field has its own name if only one dword of the packet has that name, in every generation. Otherwise the group is
    prefixed: `src_addr_lo_addr`.
    """
    shared: set[str] = set()
    keys: dict[tuple[str, str], None] = {}
    for fields in variants:
        counts = Counter(field.name.lower() for field in fields)
        shared |= {name for name, count in counts.items() if count > 1}
        keys |= dict.fromkeys((field.group, field.name) for field in fields)
    groups: dict[str, set[str]] = {}
    for group, name in keys:
        groups.setdefault(name.lower(), set()).add(group)
    shared |= {name for name, of in groups.items() if len(of) > 1}
    return {(group, name): field_name(f"{group}_{name}" if name.lower() in shared else name) for group, name in keys}


def _word(packet: str, fields: Sequence[SdmaField], names: Mapping[tuple[str, str], str], width: int) -> WordRow:
    dwords = max(field.hi for field in fields) // 32 + 1
    rows = {names[field.group, field.name]: FieldRow(field.hi, field.lo) for field in fields}
    return WordRow(packet, rows, (dwords,), width)


def sdma_module(
    headers: Mapping[str, SdmaHeader], versions: Mapping[str, Sequence[Version]], wanted: Sequence[str]
) -> str:
    """Return `amd/sdma_packets.py`."""
    known = list(dict.fromkeys(name for header in headers.values() for name in header.packets))
    for pattern in wanted:
        if not any(fnmatchcase(name, pattern) for name in known):
            raise HeaderError(f"wanted_packets.toml: no SDMA packet matches {pattern}; take it out or correct it")
    chosen = [name for name in known if any(fnmatchcase(name, pattern) for pattern in wanted)]
    words: dict[Version, list[WordRow]] = {}
    aliases: dict[Version, Version] = {}
    for file, header in headers.items():
        first, *others = versions[file]
        aliases |= dict.fromkeys(others, first)
        words[first] = []
        for name in chosen:
            if name not in header.packets:
                continue
            every = [other.packets[name] for other in headers.values() if name in other.packets]
            width = max(field.hi for fields in every for field in fields) // 32 * 32 + 32
            words[first].append(_word(name, header.packets[name], field_names(every), width))
    groups, tables = _opcodes(headers, versions)
    doc = (
        "Packets of AMD's SDMA engines; a class spans the whole packet, bit 32*n is the first of dword n.\n\n"
        "A field has the header's name where one dword of the packet has it; else its dword's name stands in front."
    )
    places_doc = "size of the packet in dwords, its payload beyond the fields not counted; by version of the SDMA block"
    return emit(Module(doc, f"Linux's amdgpu: {', '.join(headers)}", words, groups, tables, places_doc, aliases))


def _opcodes(
    headers: Mapping[str, SdmaHeader], versions: Mapping[str, Sequence[Version]]
) -> tuple[list[ConstantGroup], list[str]]:
    """Return the numbers on which all headers agree, and a table of the others by version."""
    values: dict[str, set[int]] = {}
    for header in headers.values():
        for name, value in header.numbers.items():
            values.setdefault(name, set()).add(value)
    agreed = {name: min(numbers) for name, numbers in values.items() if len(numbers) == 1}
    groups = [
        ConstantGroup(title, [(name, value, "") for name, value in agreed.items() if name.startswith(prefix)])
        for title, prefix in (("opcodes", "SDMA_OP_"), ("sub-opcodes", "SDMA_SUBOP_"), ("AQL headers", "HEADER_"))
    ]
    lines = ["# opcodes that differ by version", "OPCODES: dict[tuple[int, ...], dict[str, int]] = {"]
    for file, header in headers.items():
        row = {name: value for name, value in header.numbers.items() if len(values[name]) > 1}
        text = ", ".join(f'"{name}": {value}' for name, value in row.items())
        lines += [f"    {version}: {{{text}}}," for version in versions[file]]
    return groups, ["\n".join([*lines, "}"])]
