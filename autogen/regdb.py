"""The register database at run time: every register and field in a chip's headers, by name; files are opened lazily.

`regs/chips/<chip>.bin` lists a chip's blocks and the known segment bases. `regs/<vendor>/<block>.bin` holds the
registers of one block version, which several chips may share.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import translate
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from ringup.autogen.regfile import CHIP_MAGIC, BlockFile, RegisterField, RegisterRow, open_frame
from ringup.errors import HeaderError

FOLDER = Path(__file__).parent / "regs"

__all__ = ["FOLDER", "Chip", "ChipRow", "Place", "Register", "RegisterField", "chip_names", "open_chip"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Place:
    """A block of a chip: its version there, the file that describes it, and the addresses of its instances.

    `bases` has one row per instance: the base of each segment, in units of the registers' offsets; empty if no public
    source gives it. `source` says where version and bases come from. `guess` means that the version is not certain.
    """

    block: str
    version: str
    file: str
    bases: tuple[tuple[int, ...], ...] = ()
    source: str = ""
    guess: bool = False


@dataclass(frozen=True, slots=True)
class ChipRow:
    """A chip as in its file. `target` is the compiler's name for it, such as gfx1100, or empty."""

    name: str
    target: str
    vendor: str
    places: tuple[Place, ...]
    note: str = ""


class Register:
    """One register of a chip, or an array of equal ones. Its fields are read on first use."""

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
        """Return the byte address in the space of the register's kind; None if the base or the offset is unknown."""
        if self.offset is None:
            return None
        row, base = self.row, 0
        if self.segment is not None:
            bases = self.place.bases[instance] if instance < len(self.place.bases) else ()
            if not 0 <= self.segment < len(bases):
                return None
            base = bases[self.segment]
        return (base + self.offset + element * row.stride) * row.unit_bytes


_Table = tuple[Sequence[int], int, BlockFile | None, Place]


class Chip:
    """The registers of one chip. Block files are opened by the first search that needs them.

    A damaged block file affects only what needs it. A search over several blocks continues in the intact ones and logs
    one warning for each damaged file. If it finds nothing, its `HeaderError` names the damaged file, which may have had
    the answer.
    """

    def __init__(self, row: ChipRow, folder: Path) -> None:
        self.row = row
        self._folder = folder
        self._opened: dict[str, BlockFile] = {}
        self._damaged: dict[str, str] = {}  # by file: its damage
        # The hash table of every block and its mask, flat for the search loop. A block that is not open yet matches
        # every name.
        self._tables: list[_Table] = [(b"\1", 0, None, place) for place in row.places]

    def file(self, place: Place) -> BlockFile:
        """Open the file of a block; instances of the same version share it."""
        file = self._opened.get(place.file)
        if file is None:
            file = self._opened[place.file] = BlockFile(self._folder / place.file)
        return file

    def _intact(self, place: Place) -> BlockFile | None:
        """Return the file of a block, None if it is damaged."""
        if place.file in self._damaged:
            return None
        try:
            return self.file(place)
        except HeaderError as error:
            self._leave_out(place, error)
            return None

    def _leave_out(self, place: Place, error: HeaderError) -> None:
        if place.file not in self._damaged:
            import logging  # needed only for damage

            self._damaged[place.file] = str(error)
            logging.getLogger(__name__).warning("%s without block %s: %s", self.row.name, place.block, error)

    def _places(self, block: str | None) -> Iterator[Place]:
        return (place for place in self.row.places if block in (None, place.block))

    def _refuse_damage(self, asked: str, block: str | None) -> None:
        """Raise if a searched block is damaged, since it may contain what was not found."""
        reasons = dict.fromkeys(
            self._damaged[place.file] for place in self._places(block) if place.file in self._damaged
        )
        if reasons:
            raise HeaderError(f"looking for {asked} in {self.row.name}: {'; '.join(reasons)}")

    def _hits(self, name: str, block: str | None = None) -> Iterator[tuple[BlockFile, int, Place]]:
        # Text that is not valid Unicode matches no register's name, but must not raise here.
        digest = zlib.crc32(name.encode(errors="surrogatepass"))
        for at, (tags, mask, file, place) in enumerate(self._tables):
            slot = digest & mask
            if tags[slot] and block in (None, place.block):
                if file is None:
                    file = self._intact(place)
                    # a damaged block matches no name
                    tags = b"\0" if file is None else file.hash_tag
                    self._tables[at] = (tags, len(tags) - 1, file, place)
                    if file is None:
                        continue
                    slot = digest & len(tags) - 1
                try:
                    index = file.find(name, digest, slot)
                except HeaderError as error:
                    self._leave_out(place, error)
                    continue
                if index >= 0:
                    yield file, index, place

    def register(self, name: str) -> Register:
        """Return the register of that name from the first block that has it. A `HeaderError` suggests similar names."""
        for file, index, place in self._hits(name):
            return Register(file, index, place)
        self._refuse_damage(f"register {name}", None)
        near = self.suggest(name)
        raise HeaderError(
            f"{self.row.name} has no register {name}" + (f"; near: {', '.join(near)}" if near else "; try a part of it")
        )

    def registers(self, name: str, block: str | None = None) -> list[Register]:
        """Return every register of that name, in each block or in `block` only, of each kind and variant."""
        found = [
            Register(file, i, place) for file, index, place in self._hits(name, block) for i in file.same_name(index)
        ]
        if not found:
            self._refuse_damage(f"register {name}", block)
        return found

    def find(self, text: str, block: str | None = None) -> list[Register]:
        """Return the registers whose name contains `text`, or matches it if it has `*` or `?`; case is ignored."""
        if any(sign in text for sign in "*?["):
            matches = re.compile(translate(text), re.IGNORECASE).match
        else:
            matches = re.compile(re.escape(text), re.IGNORECASE).search
        found = [
            Register(file, index, place)
            for file, names, place in self._named(block)
            for index, name in enumerate(names)
            if matches(name)
        ]
        if not found:
            self._refuse_damage(f"registers with {text or 'any name'}", block)
        return found

    def _named(self, block: str | None) -> Iterator[tuple[BlockFile, list[str], Place]]:
        """Yield every intact block with the names of its registers."""
        for place in self._places(block):
            if file := self._intact(place):
                try:
                    names = file.names()
                except HeaderError as error:
                    self._leave_out(place, error)
                else:
                    yield file, names, place

    def suggest(self, name: str, count: int = 5, block: str | None = None) -> list[str]:
        """Return up to `count` names similar to a misspelled one, nearest first."""
        from difflib import SequenceMatcher  # needed only for an error

        wanted = name.upper()
        pairs = _pairs(wanted)
        scored: dict[str, float] = {}
        for _, names, _ in self._named(block):
            for known in names:
                if abs(len(known) - len(wanted)) <= 6 and known not in scored:
                    theirs = _pairs(known.upper())
                    scored[known] = len(pairs & theirs) / (len(pairs) + len(theirs) + 1)
        best = sorted(scored, key=lambda known: (-scored[known], known))[:40]
        ratio = {known: SequenceMatcher(None, wanted, known.upper()).ratio() for known in best}
        return [known for known in sorted(best, key=lambda known: -ratio[known]) if ratio[known] > 0.6][:count]

    def verify(self) -> None:
        """Open every file of the chip, which checks its checksum. Raise one `HeaderError` for all damaged files."""
        reasons: dict[str, None] = {}
        for place in self.row.places:
            try:
                self.file(place)
            except HeaderError as error:
                reasons[str(error)] = None
        if reasons:
            raise HeaderError("; ".join(reasons))


def _pairs(text: str) -> set[str]:
    return {text[i : i + 2] for i in range(len(text) - 1)}


def chip_names(folder: Path = FOLDER) -> list[str]:
    """Return the chips of the database, sorted."""
    # `Path.glob` would ask the kernel about every file, at each opening of a card.
    try:
        return sorted(name.removesuffix(".bin") for name in os.listdir(folder / "chips") if name.endswith(".bin"))
    except FileNotFoundError:
        return []


def open_chip(name: str, folder: Path = FOLDER) -> Chip:
    """Open the database of a chip by its name. A `HeaderError` lists the known chips."""
    known = chip_names(folder)
    if name not in known:
        raise HeaderError(f"no chip {name} in the register database; there are: {', '.join(known) or 'none'}")
    path = folder / "chips" / f"{name}.bin"
    data = open_frame(path, CHIP_MAGIC)
    try:
        return Chip(_chip_row(json.loads(bytes(data[16:])), name), folder)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise HeaderError(f"register database {path.name} contradicts itself ({error}); make it again") from error


def _chip_row(row: Any, name: str) -> ChipRow:
    """Check the contents of a chip file. Raises `KeyError`, `TypeError` or `ValueError`."""
    if row["name"] != name:
        raise ValueError(f"it is of chip {row['name']!r:.40}")
    places = tuple([_place(*block) for block in row["blocks"]])
    return ChipRow(name, _checked(row["target"], str), _checked(row["vendor"], str), places, _checked(row["note"], str))


def _place(
    block: object, version: object, file: object, bases: Iterable[Iterable[object]], source: object, guess: object
) -> Place:
    """Check one block of a chip file. Raises `TypeError` or `ValueError`."""
    path = PurePosixPath(_checked(file, str))
    if path.is_absolute() or ".." in path.parts or "\0" in str(path):
        raise ValueError(f"{file!r} is no file of the database")
    rows = tuple([tuple([_checked(base, int) for base in one]) for one in bases])
    return Place(_checked(block, str), _checked(version, str), str(path), rows, _checked(source, str), bool(guess))


def _checked(value: object, kind: type[T]) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r:.40} instead of {kind.__name__}")
    return value
