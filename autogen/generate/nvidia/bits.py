"""NVIDIA's bit ranges as modules and databases.

They are published registers by chip, class methods by class, and launch descriptors by version.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

from ringup.autogen.generate.emit.facts import BitRange, Rejected
from ringup.autogen.generate.emit.regdb import write_block, write_chip
from ringup.autogen.generate.emit.register_facts import FieldFacts, RegisterFacts
from ringup.autogen.generate.nvidia.manifest import Chips, Globs, MethodModule, RegisterModule, Wanted
from ringup.autogen.generate.nvidia.ranges import Place, Range, Ranges, read_ranges
from ringup.autogen.generate.nvidia.words import Sheet, emit_words, field_name, places_of, width_of, word_facts
from ringup.autogen.regdb import ChipRow
from ringup.autogen.regdb import Place as BlockPlace
from ringup.errors import HeaderError

METHODS_END = 0x4000  # a method header's 12 bits count dwords
FIELD_BITS_MAX = 256  # of the register database
_PLACES_DOC = """PLACES: byte offset, or (byte offset, stride, count; 0: not told), by chip. A register that the chip's own headers lack is
that of the chip next in wanted_nvidia.toml, [chips]."""
_METHODS_DOC = """METHODS: byte offset, or (byte offset, stride, count), by class; where no header tells a count, elements end before the
next method."""
_QMD_DOC = """PLACES lists the classes; `at(class id)` gives what a class says differently of this version. No header tells how long
an array is: `count` elements fit before the next field."""
_QMD = re.compile(r"NV([0-9A-F]{4})_(QMDV\d\d_\d\d)_")


# ---------------------------------------------------------------------------------------------------- registers by chip


class Published:
    """The `dev_*.h` headers of one driver tree, read by folder, looked up by chip: nearest folder first."""

    def __init__(self, chips: Chips, root: Path) -> None:
        self.chips = chips
        self._root = root / chips.root
        self.folder = cache(self._folder)

    def _folder(self, name: str) -> Ranges:
        paths = sorted((self._root / name).glob("*.h"))
        if not paths:
            raise HeaderError(
                f"{self._root.parts[-6]} publishes no registers in {name}; is the tree whole, and of the release in [chips]?"
            )
        return read_ranges(paths, self.chips.packets)

    def places(self, chip: str) -> dict[str, tuple[Place, str]]:
        """Return every place of a chip by name, with the folder where it was found."""
        found: dict[str, tuple[Place, str]] = {}
        for name in self.chips.folders[chip]:
            for place in self.folder(name).places.values():
                found.setdefault(place.name, (place, name))
        return found

    def constants(self, chip: str) -> dict[str, int]:
        found: dict[str, int] = {}
        for name in self.chips.folders[chip]:
            for constant, value in self.folder(name).constants.items():
                found.setdefault(constant, value)
        return found

    def rejected(self, chip: str) -> list[Rejected]:
        """Return what is in the chip's own folder but could not be read."""
        return self.folder(self.chips.folders[chip][0]).rejected

    def loose(self, chip: str) -> dict[str, tuple[BitRange, str]]:
        """Return apertures and ranges that belong to no register."""
        owned = {item.name for place, _ in self.places(chip).values() for item in place.ranges}
        found: dict[str, tuple[BitRange, str]] = {}
        for name in self.chips.folders[chip]:
            for range_name, bits in self.folder(name).apertures.items():
                # else a nearer folder publishes its register
                if range_name not in owned:
                    found.setdefault(range_name, (bits, name))
        return found


def register_module(
    module: RegisterModule, published: Published, source: str, rejected: list[tuple[str, Rejected]]
) -> str:
    """Return a module of words with PLACES by chip."""
    takes, takes_constant, files = Globs(module.names), Globs(module.constants), Globs(module.files)
    sheet = Sheet()
    for chip in published.chips.folders:
        listed = [place for place, _ in published.places(chip).values() if takes(place.name) and files(_file_of(place))]
        lies = places_of(listed, 0)
        for place in listed:
            sheet.width[place.name] = max(width_of(place), sheet.width.get(place.name, 32))
        sheet.words[chip] = {
            place.name: word_facts(place, lies[place.name], sheet.width[place.name], "", sheet.rejected)
            for place in listed
        }
        sheet.constants[chip] = {
            name: value for name, value in published.constants(chip).items() if takes_constant(name)
        }
    if not any(sheet.words.values()):
        raise HeaderError(f"module {module.path}: no published register has one of its names and files")
    rejected += [(f"nv/{module.path}", r) for r in sheet.rejected]
    return emit_words(f"{module.doc}\n\n{_PLACES_DOC}", source, sheet, "PLACES")


def _file_of(place: Place) -> str:
    return place.where.partition(":")[0] or "memory"


def register_facts(published: Published, chip: str) -> list[RegisterFacts]:
    """Return every register of a chip, and every bit range that belongs to no register, for its database."""
    own = published.chips.folders[chip][0]
    places = published.places(chip)
    lies = places_of((place for place, _ in places.values()), 0)
    rows: list[RegisterFacts] = []
    for place, folder in places.values():
        note = "" if folder == own else f"published for {folder.rpartition('/')[2]}"
        rows += _rows(place, lies[place.name], note)
    for name, (bits, folder) in published.loose(chip).items():
        note = "" if folder == own else f"published for {folder.rpartition('/')[2]}"
        if bits.hi < FIELD_BITS_MAX:
            rows.append(
                RegisterFacts(
                    name,
                    "bits",
                    None,
                    None,
                    1,
                    32 if bits.hi < 32 else 256,
                    fields=(FieldFacts("value", bits.hi, bits.lo),),
                    note=note,
                )
            )
        else:  # addresses of a whole unit
            rows.append(
                RegisterFacts(
                    name, "aperture", bits.lo, None, 1, 32, note=f"up to {bits.hi:#x}{'; ' * bool(note)}{note}"
                )
            )
    return rows


def _rows(place: Place, lies: tuple[int, ...] | None, note: str) -> Iterable[RegisterFacts]:
    width = width_of(place)
    # A format in memory: one row per field, at the dword where it begins.
    if lies is None or width > FIELD_BITS_MAX:
        for item in place.ranges:
            offset, lo = divmod(item.lo, 32)
            one = FieldFacts("value", item.hi - offset * 32, lo, values=_values(item), note=_array_note(item))
            yield RegisterFacts(
                item.name, "memory", offset * 4, None, 1, max(32, (one.hi | 31) + 1), fields=(one,), note=note
            )
        return
    fields = tuple(
        FieldFacts(field_name(item.name, place.name), item.hi, item.lo, values=_values(item), note=_array_note(item))
        for item in place.ranges
    )
    stride, count = (lies[1], lies[2]) if len(lies) == 3 else (0, 1)
    texts = [text for text in (place.access, note) if text]
    yield RegisterFacts(place.name, "mmio", lies[0], None, 1, width, stride, count, fields, note="; ".join(texts))


def _values(item: Range) -> tuple[tuple[str, int], ...]:
    return tuple((name.removeprefix(item.name).lstrip("_"), value) for name, value in item.values)


def _array_note(item: Range) -> str:
    if not item.strides:
        return ""
    return "; ".join(
        f"element {n} bits higher, {count or 'any number'} of them"
        for n, count in zip(item.strides, item.counts, strict=True)
    )


def databases(published: Published, source: str) -> dict[str, bytes]:
    """Return the register database of every chip, by path below `autogen`."""
    out: dict[str, bytes] = {}
    for chip in published.chips.folders:
        path = f"nv/{chip}.bin"
        out[f"regs/{path}"] = write_block(register_facts(published, chip))
        place = BlockPlace("gpu", chip, path, (), f"{source}, {published.chips.root}", False)
        out[f"regs/chips/{chip}.bin"] = write_chip(ChipRow(chip, "", "nvidia", (place,)))
    return out


# -------------------------------------------------------------------------------------------------------- class methods


def method_module(
    module: MethodModule, roots: Mapping[str, Path], source: str, rejected: list[tuple[str, Rejected]]
) -> str:
    """Return a module of words with METHODS by class id; `roots` are the folders for `doc:` and `tree:`."""
    takes = Globs(module.names)
    sheet = Sheet()
    found = {
        int(text, 16): _methods_of(headers, module, f"NV{text.upper()}_", roots, sheet)
        for text, headers in module.classes.items()
    }
    known = {name for places, _ in found.values() for name in places}
    for class_id, (places, constants) in found.items():
        # A method whose bits this class's header does not give.
        for name in [name for name in constants if name in known]:
            places[name] = Place(name, constants.pop(name), (), (), ())
        for name in module.counts.keys() & places.keys():
            places[name] = replace(places[name], counts=(module.counts[name],))
        lies = places_of(places.values(), METHODS_END)
        wanted = [place for place in places.values() if takes(place.name)]
        if not wanted:
            raise HeaderError(f"module {module.path}: the headers of class {class_id:#x} have no method that is wanted")
        sheet.words[class_id] = {p.name: word_facts(p, lies[p.name], 32, "", sheet.rejected) for p in wanted}
        sheet.constants[class_id] = {name: value for name, value in constants.items() if takes(name)}
    rejected += [(f"nv/{module.path}", r) for r in sheet.rejected]
    return emit_words(f"{module.doc}\n\n{_METHODS_DOC}", source, sheet, "METHODS")


def _methods_of(
    headers: Iterable[str], module: MethodModule, prefix: str, roots: Mapping[str, Path], sheet: Sheet
) -> tuple[dict[str, Place], dict[str, int]]:
    """Return the methods and other numbers of one class; all names are without its prefix."""
    places: dict[str, Place] = {}
    constants: dict[str, int] = {}
    for header in headers:
        root, _, name = header.partition(":")
        ranges = read_ranges([roots[root] / name], module.packets, prefix)
        sheet.rejected += ranges.rejected
        for key, value in ranges.constants.items():
            constants.setdefault(key.removeprefix(prefix), value)
        for place in ranges.places.values():
            short = _shortened(place, prefix)
            places[short.name] = _united(places.get(short.name), short)
    return places, {name: value for name, value in constants.items() if name not in places}


def _shortened(place: Place, prefix: str) -> Place:
    ranges = tuple(
        replace(
            item, name=item.name.removeprefix(prefix), values=tuple((n.removeprefix(prefix), v) for n, v in item.values)
        )
        for item in place.ranges
    )
    return replace(place, name=place.name.removeprefix(prefix), ranges=ranges)


def _united(known: Place | None, place: Place) -> Place:
    """Merge two headers' descriptions of one method; the first one's take precedence, the second may add fields."""
    if known is None:
        return place
    if known.offset != place.offset:
        raise HeaderError(f"{place.name} lies at {known.offset} ({known.where}) and at {place.offset} ({place.where})")
    names = {item.name for item in known.ranges}
    return replace(known, ranges=(*known.ranges, *(item for item in place.ranges if item.name not in names)))


# --------------------------------------------------------------------------------------------------- launch descriptors


def qmd_modules(wanted: Wanted, doc_root: Path, source: str, rejected: list[tuple[str, Rejected]]) -> dict[str, str]:
    """Return one module for each version of the launch descriptor (QMD), by path. Classes with the same version are its
    rows.
    """
    sheets: dict[str, Sheet] = {}
    for name in wanted.qmd:
        path = doc_root / name
        try:
            text = path.read_text(encoding="latin-1")
        except OSError as error:
            raise HeaderError(f"open-gpu-doc lacks {name}: {error.strerror}") from error
        for number, version in dict.fromkeys(_QMD.findall(text)):
            prefix = f"NV{number}_"
            ranges = read_ranges([path], [version], prefix)
            place = ranges.places[f"{prefix}{version}"]
            sheet = sheets.setdefault(version, Sheet())
            sheet.width[version] = width = _qmd_bits(wanted, version, width_of(place))
            sheet.rejected += ranges.rejected
            facts = word_facts(place, None, width, prefix, sheet.rejected)
            sheet.words[int(number, 16)] = {version: facts}
    out = {}
    for version in sorted(sheets):
        used = ", ".join(f"cl{number:04x}qmd.h" for number in sheets[version].words)
        doc = f"Launch descriptor (queue meta data) version {version[4:].replace('_', '.')}, of {used}.\n\n{_QMD_DOC}"
        rejected += [(f"nv/{version.lower()}", r) for r in sheets[version].rejected]
        out[f"nv/{version.lower()}.py"] = emit_words(doc, source, sheets[version], "PLACES")
    return out


def texture_module(wanted: Wanted, doc_root: Path, source: str, rejected: list[tuple[str, Rejected]]) -> str:
    """Return the module of texture headers and samplers. Classes are its rows."""
    texture, sheet = wanted.texture, Sheet()
    sheet.width |= dict.fromkeys(texture.packets, texture.bits)
    for name in texture.headers:
        number = Path(name).stem.removeprefix("cl").removesuffix("tex").upper()
        prefix = f"NV{number}_"
        ranges = read_ranges([doc_root / name], [*texture.packets, *texture.words], prefix)
        sheet.rejected += ranges.rejected
        sheet.words[int(number, 16)] = {
            packet: word_facts(
                ranges.places[prefix + packet], None, sheet.width.get(packet, 32), prefix, sheet.rejected
            )
            for packet in (*texture.packets, *texture.words)
        }
    rejected += [(f"nv/{texture.path}", r) for r in sheet.rejected]
    doc = "Texture headers of 32 bytes in each version, and the words of a sampler. PLACES lists the classes."
    return emit_words(doc, source, sheet, "PLACES")


def _qmd_bits(wanted: Wanted, version: str, least: int) -> int:
    major = version[4:6]
    bits = wanted.qmd_bits.get(major, 0)
    if bits < least:
        raise HeaderError(
            f"{version} has fields up to bit {least - 1}; wanted_nvidia.toml, [qmd] bits says {bits} for {major}"
        )
    return bits
