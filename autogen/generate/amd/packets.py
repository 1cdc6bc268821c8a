"""Make `amd/pm4*.py` and `amd/sdma_packets.py`: the packets that `wanted_packets.toml` asks for."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ringup.autogen.generate.amd.pm4 import (
    GENERATIONS,
    HEADERS,
    Pm4Sources,
    compare_helpers,
    enumerants,
    events,
    read_sources,
    struct_enumerants,
    word,
    word_parts,
)
from ringup.autogen.generate.amd.sdma import FOLDER, SdmaHeader, read_header, sdma_module
from ringup.autogen.generate.emit.facts import Rejected
from ringup.autogen.generate.emit.packets import ConstantGroup, Module, Version, WordRow, emit
from ringup.errors import HeaderError

Specs = Mapping[str, Mapping[str, Any]]
WANTED = Path(__file__).with_name("wanted_packets.toml")


def read_wanted(path: Path = WANTED) -> dict[str, Any]:
    """Read the manifest of packets."""
    try:
        wanted = tomllib.loads(path.read_text("utf-8"))
        for table in ("gc", "sdma"):
            wanted["versions"][table] = {
                key: [tuple(version) for version in rows] for key, rows in wanted["versions"][table].items()
            }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise HeaderError(f"manifest {path.name}: {error!r}") from error
    return wanted


def opcode_facts(sources: Pm4Sources) -> tuple[ConstantGroup, dict[str, dict[int, str]], tuple[Rejected, ...]]:
    """Return opcodes by name, a table of names by generation, and disagreements between headers.

    nvd.h and soc15d.h decide; kfd_pm4_opcodes.h and sid.h are only compared.
    """
    rows: dict[str, tuple[str, int, str]] = {}
    rejected: list[Rejected] = []
    tables: dict[str, dict[int, str]] = {}
    for generation, header in HEADERS.items():
        tables[generation] = {}
        for name, value in sources.opcodes(header).items():
            known = rows.setdefault(name, (name, value, ""))
            if known[1] != value:
                raise HeaderError(f"PACKET3_{name} is {value:#x} in {header} and {known[1]:#x} elsewhere")
            tables[generation].setdefault(value, name)

    seconds = {"sid.h": sources.opcodes("sid.h"), "kfd_pm4_opcodes.h": sources.kfd_opcodes()}
    for file, opcodes in seconds.items():
        for name, value in opcodes.items():
            if name in rows and rows[name][1] != value:
                rejected.append(Rejected(f"PACKET3_{name}", file, f"{value:#x} here, {rows[name][1]:#x} is used"))
    group = ConstantGroup("opcodes: nvd.h and soc15d.h, PACKET3_*", list(rows.values()), hexadecimal=True)
    return group, tables, tuple(rejected)


def _origin(notes: Mapping[str, str]) -> str:
    """Return the source of a word's fields, by generation if it differs."""
    if len(set(notes.values())) == 1:
        return next(iter(notes.values()))
    return "; ".join(f"{generation}: {note}" for generation, note in notes.items())


def all_words(sources: Pm4Sources, specs: Specs) -> dict[str, dict[str, WordRow]]:
    """Return the words of each generation by name."""
    words: dict[str, dict[str, WordRow]] = {}
    for generation in GENERATIONS:
        words[generation] = {
            name: word(name, spec, word_parts(sources, spec, generation))
            for name, spec in specs.items()
            if generation in spec.get("only", GENERATIONS)
        }
    for name in specs:
        origin = _origin({generation: of[name].note for generation, of in words.items() if name in of})
        for of in words.values():
            if name in of:
                of[name] = replace(of[name], note=origin)
    return words


def _opcode_table(tables: Mapping[str, Mapping[int, str]], versions: Mapping[str, Sequence[Version]]) -> str:
    lines = ["# opcode to name, by version", "OPCODES: dict[tuple[int, ...], dict[int, str]] = {"]
    aliases: list[str] = []
    same: dict[tuple[tuple[int, str], ...], Version] = {}
    for generation, table in tables.items():
        rows = tuple(sorted(table.items()))
        others = list(versions[generation])
        if rows not in same:
            same[rows] = others.pop(0)
            entries = "".join(f'        0x{number:X}: "{name}",\n' for number, name in rows)
            lines.append(f"    {same[rows]}: {{\n{entries}    }},")
        key = ", ".join(map(str, same[rows]))
        aliases += [f"OPCODES[{', '.join(map(str, version))}] = OPCODES[{key}]" for version in others]
    return "\n".join([*lines, "}", *aliases])


def pm4_modules(sources: Pm4Sources, wanted: Mapping[str, Any]) -> tuple[dict[str, str], tuple[Rejected, ...]]:
    """Return `amd/pm4.py`, `amd/pm4_queues.py` and `amd/pm4_events.py`, and where sources disagree or are
    incomplete.
    """
    versions: Mapping[str, Sequence[Version]] = wanted["versions"]["gc"]
    specs: Specs = {**wanted["pm4"], **wanted["pm4_queues"]}
    words = all_words(sources, specs)
    opcodes, tables, rejected = opcode_facts(sources)
    event_group, event_table = events(sources)
    windows = [(name, value, "") for name, value in sources.windows().items()]
    groups = [
        opcodes,
        ConstantGroup("register windows of the SET_*_REG packets, dwords", windows, hexadecimal=True),
        *enumerants(sources, wanted["pm4"]),
        *struct_enumerants(sources, wanted["pm4"]),
    ]
    texts = {
        "amd/pm4.py": _module(
            "Packets of AMD's command processor: opcodes, and the words whose bits mean something.",
            {
                generation: [row for name, row in of.items() if name in wanted["pm4"]]
                for generation, of in words.items()
            },
            versions,
            groups,
            [_opcode_table(tables, versions)],
        ),
        "amd/pm4_queues.py": _module(
            "Packets of AMD's command processor that map, unmap and ask for queues.",
            {g: [row for name, row in of.items() if name in wanted["pm4_queues"]] for g, of in words.items()},
            versions,
            struct_enumerants(sources, wanted["pm4_queues"]),
            [],
        ),
    }
    doc = "Event types of EVENT_WRITE and RELEASE_MEM."
    texts["amd/pm4_events.py"] = emit(Module(doc, "Mesa's src/amd/registers", {}, [event_group], [event_table]))
    return texts, rejected + compare_helpers(sources, words, specs)


def _module(
    doc: str,
    words: Mapping[str, Sequence[WordRow]],
    versions: Mapping[str, Sequence[Version]],
    groups: Sequence[ConstantGroup],
    tables: Sequence[str],
) -> str:
    aliases = {other: versions[generation][0] for generation in words for other in versions[generation][1:]}
    return emit(
        Module(
            f"{doc}\n\nA word is called by its packet and dword; a comment gives the sources of its fields.",
            "Linux's amdgpu and amdkfd, Mesa's src/amd/registers and wanted_packets.toml",
            {versions[generation][0]: rows for generation, rows in words.items()},
            groups,
            tables,
            "dword within the packet, the header is 0; by version of the graphics core",
            aliases,
        )
    )


def make_packets(
    linux_root: Path, mesa_root: Path, manifest: Path = WANTED
) -> tuple[dict[str, str | bytes], tuple[Rejected, ...]]:
    """Read the headers and make all modules; also return what was not read and where sources disagree."""
    wanted = read_wanted(manifest)
    headers: dict[str, SdmaHeader] = {
        file: read_header(linux_root / FOLDER / file) for file in wanted["versions"]["sdma"]
    }
    pm4, rejected = pm4_modules(read_sources(linux_root, mesa_root), wanted)
    sdma = sdma_module(headers, wanted["versions"]["sdma"], wanted["sdma"]["packets"])
    rejected += tuple(one for header in headers.values() for one in header.rejected)
    return {**pm4, "amd/sdma_packets.py": sdma}, rejected


def generate_packets(linux_root: Path, mesa_root: Path) -> tuple[Mapping[str, str | bytes], tuple[Rejected, ...]]:
    """Return the packet modules by their path below `autogen/`, and what could not be read in the headers."""
    return make_packets(linux_root, mesa_root)
