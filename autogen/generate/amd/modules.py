"""Everything made from amdgpu's register headers: the databases of the chips and the typed modules."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path

from ringup.autogen.generate.amd.chips import databases, read_chips, read_headers
from ringup.autogen.generate.amd.registers import RegisterHeaders
from ringup.autogen.generate.emit.facts import Rejected
from ringup.autogen.generate.emit.register_facts import RegisterFacts
from ringup.autogen.generate.emit.registers import Version, emit_registers
from ringup.autogen.regdb import ChipRow
from ringup.errors import HeaderError

WANTED = Path(__file__).parent / "wanted_amd.toml"


def generate_amd_registers(
    linux_root: Path, wanted: Path = WANTED
) -> tuple[dict[str, str | bytes], tuple[Rejected, ...]]:
    """Return every file by its path below `autogen/`, and what could not be read in the headers."""
    chips = read_chips()
    headers = read_headers(linux_root, chips)
    files: dict[str, str | bytes] = {**databases(chips, headers)}
    try:
        modules = tomllib.loads(wanted.read_text("utf-8"))
        for name, row in modules.items():
            stems = {_version(v): stem for v, stem in row.get("versions", {}).items()} or _stems(chips, row["blocks"])
            files[f"amd/{name}.py"] = _module(row["doc"], stems, row["names"], headers, name)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HeaderError(f"list of wanted registers {wanted.name}: {error!r}") from error
    return files, tuple(one for read in headers.values() for one in read.rejected)


def _version(text: str) -> Version:
    return tuple(int(part) for part in text.split("."))


def _stems(chips: Mapping[str, ChipRow], blocks: Sequence[str]) -> dict[Version, str]:
    """Return the header of every version that a chip has of these blocks."""
    places = [place for chip in chips.values() for place in chip.places if place.block in blocks]
    return {_version(place.version): place.file for place in places}


def _module(
    doc: str, stems: Mapping[Version, str], patterns: Sequence[str], headers: Mapping[str, RegisterHeaders], module: str
) -> str:
    versions: dict[Version, Sequence[RegisterFacts]] = {}
    same: dict[Version, Version] = {}
    owner: dict[str, Version] = {}
    for version, stem in sorted(stems.items()):
        if stem in owner:
            same[version] = owner[stem]
        else:
            owner[stem] = version
            versions[version] = headers[stem].registers
    known = dict.fromkeys(facts.name for rows in versions.values() for facts in rows)
    names = [name for pattern in patterns for name in _matches(pattern, known, module)]
    sources = ", ".join(dict.fromkeys(stem.rpartition("/")[2] for stem in sorted(stems.values())))
    return emit_registers(doc, versions, names, f"amdgpu's {sources}", same)


def _matches(pattern: str, known: Mapping[str, None], module: str) -> list[str]:
    found = [name for name in known if fnmatchcase(name, pattern)]
    if not found:
        near = ", ".join(get_close_matches(pattern, known, 3)) or "none"
        raise HeaderError(f"amd/{module}.py wants {pattern}, which no version of its headers has; near: {near}")
    return found
