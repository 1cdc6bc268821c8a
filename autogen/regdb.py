"""The register database at run time: every register and field of a chip's headers, found by name, opened lazily.

`regs/chips/<chip>.bin` lists a chip's blocks and the segment bases that are known; `regs/<vendor>/<block>.bin` holds the
registers of one block version and is shared by the chips that have it.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import translate
from functools import cached_property
from pathlib import Path

from ringup.autogen.regfile import CHIP_MAGIC, BlockFile, RegisterField, RegisterRow, open_frame
from ringup.errors import HeaderError

FOLDER = Path(__file__).parent / "regs"

__all__ = ["FOLDER", "Chip", "ChipRow", "Place", "Register", "RegisterField", "chip_names", "open_chip"]


@dataclass(frozen=True, slots=True)
class Place:
    """A block of a chip: its version there, the file that describes it, and where its instances lie.

    `bases` has one row per instance: the base of each segment, in units of the registers' offsets; empty when no public
    source gives it. `source` says where version and bases come from; `guess`: the version is not certain.
    """

    block: str
    version: str
    file: str
    bases: tuple[tuple[int, ...], ...] = ()
    source: str = ""
    guess: bool = False


@dataclass(frozen=True, slots=True)
class ChipRow:
    """A chip as its file has it. `target` is the compiler's name for it, such as gfx1100, or empty."""

    name: str
    target: str
    vendor: str
    places: tuple[Place, ...]
    note: str = ""


class Register:
    """One register of a chip, or an array of like ones; its fields are read when they are asked for."""

    __slots__ = ("_file", "_index", "offset", "place", "segment")

    def __init__(self, file: BlockFile, index: int, place: Place) -> None:
        self._file, self._index, self.place = file, index, place
        self.offset, self.segment = file.place(index)

    def __repr__(self) -> str:
        return f"<{self.place.block} {self.place.version} {self.row.name}>"

    @property
    def row(self) -> RegisterRow:
        """What the headers say about it: name, kind, unit, width, stride, count, variant, note."""
        return self._file.row(self._index)

    @property
    def name(self) -> str:
        """The vendor's name without its prefix."""
        return self.row.name

    @property
    def fields(self) -> tuple[RegisterField, ...]:
        """The fields, lowest bit first."""
        return self._file.fields(self._index)

    def address(self, instance: int = 0, element: int = 0) -> int | None:
        """Return the byte address in the space that its kind names; None when the base or the offset is not known."""
        if self.offset is None:
            return None
        row, base = self.row, 0
        if self.segment is not None:
            bases = self.place.bases[instance] if instance < len(self.place.bases) else ()
            if not 0 <= self.segment < len(bases):
                return None
            base = bases[self.segment]
        return (base + self.offset + element * row.stride) * row.unit_bytes


class Chip:
    """The registers of one chip. Block files are opened at the first look-up that needs them."""

    def __init__(self, row: ChipRow, folder: Path) -> None:
        self.row = row
        self._folder = folder
        self._opened: dict[str, BlockFile] = {}

    def file(self, place: Place) -> BlockFile:
        """Open the file of a block; an instance of the same version shares it."""
        file = self._opened.get(place.file)
        if file is None:
            file = self._opened[place.file] = BlockFile(self._folder / place.file)
        return file

    @cached_property
    def _tables(self) -> list[tuple[Sequence[int], int, BlockFile, Place]]:
        """The hash table and its mask of every block, flat for the search loop."""
        files = [(self.file(place), place) for place in self.row.places]
        return [(file.hash_tag, len(file.hash_tag) - 1, file, place) for file, place in files]

    def _hits(self, name: str) -> Iterator[tuple[BlockFile, int, Place]]:
        digest = zlib.crc32(name.encode())
        for tags, mask, file, place in self._tables:
            slot = digest & mask
            if tags[slot]:
                index = file.find(name, digest, slot)
                if index >= 0:
                    yield file, index, place

    def register(self, name: str) -> Register:
        """Return the register of that name, from the first block that has it; a `HeaderError` names near ones."""
        for file, index, place in self._hits(name):
            return Register(file, index, place)
        near = self.suggest(name)
        raise HeaderError(
            f"{self.row.name} has no register {name}" + (f"; near: {', '.join(near)}" if near else "; try a part of it")
        )

    def registers(self, name: str) -> list[Register]:
        """Return every register of that name: of each block, kind and variant."""
        return [Register(file, i, place) for file, index, place in self._hits(name) for i in file.same_name(index)]

    def find(self, text: str) -> list[Register]:
        """Return the registers whose name holds `text`, or matches it when it has `*` or `?`; case does not count."""
        if any(sign in text for sign in "*?["):
            matches = re.compile(translate(text), re.IGNORECASE).match
        else:
            matches = re.compile(re.escape(text), re.IGNORECASE).search
        found: list[Register] = []
        for place in self.row.places:
            file = self.file(place)
            found += [Register(file, index, place) for index, name in enumerate(file.names()) if matches(name)]
        return found

    def suggest(self, name: str, count: int = 5) -> list[str]:
        """Return up to `count` names that a typing error may have meant, nearest first."""
        from difflib import SequenceMatcher  # only wanted for a mistake

        wanted = name.upper()
        pairs = _pairs(wanted)
        scored: dict[str, float] = {}
        for place in self.row.places:
            for known in self.file(place).names():
                if abs(len(known) - len(wanted)) <= 6 and known not in scored:
                    theirs = _pairs(known.upper())
                    scored[known] = len(pairs & theirs) / (len(pairs) + len(theirs) + 1)
        best = sorted(scored, key=lambda known: (-scored[known], known))[:40]
        ratio = {known: SequenceMatcher(None, wanted, known.upper()).ratio() for known in best}
        return [known for known in sorted(best, key=lambda known: -ratio[known]) if ratio[known] > 0.6][:count]

    def verify(self) -> None:
        """Open every file of the chip; each checks its checksum when it is opened."""
        for place in self.row.places:
            self.file(place)


def _pairs(text: str) -> set[str]:
    return {text[i : i + 2] for i in range(len(text) - 1)}


def chip_names(folder: Path = FOLDER) -> list[str]:
    """Return the chips of the database, sorted."""
    return sorted(path.stem for path in (folder / "chips").glob("*.bin"))


def open_chip(name: str, folder: Path = FOLDER) -> Chip:
    """Open the database of a chip, by its name; a `HeaderError` lists the chips there are."""
    path = folder / "chips" / f"{name}.bin"
    if not path.exists():
        raise HeaderError(
            f"no chip {name} in the register database; there are: {', '.join(chip_names(folder)) or 'none'}"
        )
    data = open_frame(path, CHIP_MAGIC)
    try:
        row = json.loads(bytes(data[16:]))
        places = tuple(
            [
                Place(block, version, file, tuple([tuple(one) for one in bases]), source, bool(guess))
                for block, version, file, bases, source, guess in row["blocks"]
            ]
        )
        return Chip(ChipRow(row["name"], row["target"], row["vendor"], places, row["note"]), folder)
    except (ValueError, KeyError, TypeError) as error:
        raise HeaderError(f"register database {path.name} contradicts itself ({error}); make it again") from error
