"""The AMD chips: the headers that describe each (`chips.toml`), and the database files made from them."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

from ringup.autogen.generate.amd.registers import RegisterHeaders, read_block
from ringup.autogen.generate.emit.regdb import write_block, write_chip
from ringup.autogen.regdb import ChipRow, Place
from ringup.errors import HeaderError

ASIC_REG = Path("drivers/gpu/drm/amd/include/asic_reg")
TABLE = Path(__file__).parent / "chips.toml"


def read_chips(table: Path = TABLE) -> dict[str, ChipRow]:
    """Return the chips of the table; a place's `file` is the header's stem, `folder/name`."""
    try:
        rows = tomllib.loads(table.read_text("utf-8"))
        sources = rows.pop("sources")
        return {name: _chip(name, row, sources) for name, row in rows.items()}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise HeaderError(f"chip table {table.name}: {error!r}") from error


def _chip(name: str, row: dict[str, Any], sources: dict[str, str]) -> ChipRow:
    places = []
    for block, (version, header, source) in row["blocks"].items():
        bases = tuple(tuple(instance) for instance in row.get("bases", {}).get(block, ()))
        origin = sources[source] + (f"; bases: {sources[row['bases_source']]}" if bases else "")
        places.append(Place(block, version, header, bases, origin, sources[source].startswith("guess")))
    return ChipRow(name, row["target"], "amd", tuple(places), row.get("note", ""))


def read_headers(linux_root: Path, chips: dict[str, ChipRow]) -> dict[str, RegisterHeaders]:
    """Read every header that the chips name once; return them by stem."""
    asic_reg = linux_root / ASIC_REG
    if not asic_reg.is_dir():
        raise HeaderError(f"no {ASIC_REG} in {linux_root}: that is no Linux source with amdgpu; give its root folder")
    stems = sorted({place.file for chip in chips.values() for place in chip.places})
    return {stem: read_block(asic_reg / stem) for stem in stems}


def databases(chips: dict[str, ChipRow], headers: dict[str, RegisterHeaders]) -> dict[str, bytes]:
    """Return the database files by path below `autogen/`. Headers with equal contents share one file."""
    files: dict[str, bytes] = {}
    paths: dict[str, str] = {}
    same: dict[bytes, str] = {}
    for stem, read in headers.items():
        blob = write_block(read.registers)
        path = same.setdefault(blob, f"amd/{stem.rpartition('/')[2]}.bin")
        paths[stem] = path
        files[f"regs/{path}"] = blob
    for chip in chips.values():
        places = tuple(replace(place, file=paths[place.file]) for place in chip.places)
        files[f"regs/chips/{chip.name}.bin"] = write_chip(replace(chip, places=places))
    return files
