"""Which classes each chip has, and the names of a class's methods: what the decoder looks words up in.

A class id ends in a byte that tells its engine: 0xc7c0 is a compute class, 0xc7b5 a copy class. The facts come from the
generated modules, one an engine; each is imported when a stream needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any

from ringup.autogen.layout import Word
from ringup.autogen.nv import classes as class_ids
from ringup.errors import NotSupported

# a method address has 12 bits and counts dwords: clc56f.h, DMA_METHOD_ADDRESS
METHODS_END_BYTES = 0x4000
# below this the host itself runs a method, on any subchannel: dev_pbdma.ref of open-gpu-doc, NV_UDMA
HOST_END_BYTES = 0x100
# last byte of a class id: its engine's module
ENGINES = {
    0x6F: "methods_host",
    0xC0: "methods_compute",
    0xB5: "methods_copy",
    0x97: "methods_3d",
    0x2D: "methods_2d",
    0x40: "methods_inline",
    0xB0: "methods_video",
}
# Classes without a table of their own, and those whose header lists only a part: the class that names the rest.
NAMED_AS = {
    0xC36F: 0xC46F,
    0xC86F: 0xC56F,
    0xC96F: 0xC56F,
    0xCA6F: 0xC56F,
    0xCD40: 0xA140,
    0xC4B0: 0xC5B0,
    0xB8B0: 0xC9B0,
    0xCDB0: 0xC9B0,
    0xCEB0: 0xC9B0,
    0xCFB0: 0xC9B0,
    0xD1B0: 0xC9B0,
}
# Elements of an array that the generated table cuts short. clcbc0.h, SET_INLINE_QMD_ADDRESS_A_INLINE_SIZE_INLINE_384.
LONGER = {(compute, "LOAD_INLINE_QMD_DATA"): 96 for compute in (0xCBC0, 0xCDC0, 0xCEC0)}


@dataclass(frozen=True, slots=True)
class Classes:
    """The class ids of one chip, by engine."""

    host: int
    compute: int
    copy: int
    threed: int
    twod: int
    inline: int
    video: int

    def by_subchannel(self) -> dict[int, int]:
        """Return what stands on each subchannel before the stream binds a class. NVK uses all five, libcuda 1 and 4."""
        return {0: self.threed, 1: self.compute, 2: self.inline, 3: self.twod, 4: self.copy}

    def own(self, class_id: int) -> int | None:
        """Return the chip's class for the engine of `class_id`, None for an engine that has no row here."""
        everyone = (self.host, self.compute, self.copy, self.threed, self.twod, self.inline, self.video)
        return next((one for one in everyone if _engine(one) == _engine(class_id)), None)


TURING = Classes(0xC46F, 0xC5C0, 0xC5B5, 0xC597, 0x902D, 0xA140, 0xC4B0)
AMPERE_A = Classes(0xC56F, 0xC6C0, 0xC6B5, 0xC697, 0x902D, 0xA140, 0xC6B0)
AMPERE_B = Classes(0xC56F, 0xC7C0, 0xC7B5, 0xC797, 0x902D, 0xA140, 0xC7B0)
ADA = Classes(0xC56F, 0xC9C0, 0xC7B5, 0xC997, 0x902D, 0xA140, 0xC9B0)
HOPPER = Classes(0xC86F, 0xCBC0, 0xC8B5, 0xCB97, 0x902D, 0xA140, 0xB8B0)
BLACKWELL_A = Classes(0xC96F, 0xCDC0, 0xC9B5, 0xCD97, 0x902D, 0xCD40, 0xCDB0)
BLACKWELL_A_SOC = Classes(0xC96F, 0xCDC0, 0xC9B5, 0xCD97, 0x902D, 0xCD40, 0xCEB0)
BLACKWELL_B = Classes(0xCA6F, 0xCEC0, 0xCAB5, 0xCE97, 0x902D, 0xCD40, 0xCFB0)
BLACKWELL_B_SOC = Classes(0xCA6F, 0xCEC0, 0xCAB5, 0xCE97, 0x902D, 0xCD40, 0xD1B0)
# open-gpu-kernel-modules 595.45.04, g_gpu_class_list.c
CHIPS: dict[str, Classes] = {
    **dict.fromkeys(("tu102", "tu104", "tu106", "tu116", "tu117"), TURING),
    "ga100": AMPERE_A,
    **dict.fromkeys(("ga102", "ga103", "ga104", "ga106", "ga107"), AMPERE_B),
    **dict.fromkeys(("ad102", "ad103", "ad104", "ad106", "ad107"), ADA),
    "gh100": HOPPER,
    **dict.fromkeys(("gb100", "gb102", "gb110", "gb112"), BLACKWELL_A),
    "gb10b": BLACKWELL_A_SOC,
    **dict.fromkeys(("gb202", "gb203", "gb205", "gb206", "gb207"), BLACKWELL_B),
    **dict.fromkeys(("gb20b", "gb20c"), BLACKWELL_B_SOC),
}


def classes_of(chip: str) -> Classes:
    """Return the classes of a chip by its name, such as `ga102`. Raises `NotSupported` for a chip without a row."""
    try:
        return CHIPS[chip]
    except KeyError:
        raise NotSupported(f"no classes are known of chip {chip!r}; known are {', '.join(CHIPS)}") from None


@cache
def _class_names() -> dict[int, str]:
    names: dict[int, str] = {}
    for name, value in vars(class_ids).items():
        if name.isupper() and isinstance(value, int) and value & 0xFF in ENGINES:
            names.setdefault(value, name)
    return names


def class_name(class_id: int) -> str:
    """Return the vendor's name of a class, or its number where it has none."""
    return _class_names().get(class_id, f"{class_id:#06x}")


def class_by_name(name: str) -> int | None:
    """Return the id of a class by the vendor's name."""
    return next((number for number, known in _class_names().items() if known == name), None)


@dataclass(frozen=True, slots=True)
class Part:
    """One field of a word: its value is `word >> lo & mask`. `names` are its enumerated values."""

    name: str
    lo: int
    mask: int
    names: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MethodRow:
    """What stands at one method address. `index` counts in an array and is None elsewhere; `rest` are the bits of no
    field. The one field of a `plain` word has all 32 bits and no enumerated values: it is data.
    """

    name: str
    index: int | None
    parts: tuple[Part, ...]
    rest: int
    plain: bool

    def fields(self, value: int) -> tuple[dict[str, int], dict[str, str]]:
        """Return a word's fields by name, and the names of the values that have one."""
        return read_parts(self.parts, self.rest, value)


def read_parts(parts: Iterable[Part], rest: int, value: int) -> tuple[dict[str, int], dict[str, str]]:
    """Return the fields of a word or a descriptor, and the names of the values that have one. What stands in bits of
    no field is the field `reserved`.
    """
    fields, names = {}, {}
    for part in parts:
        one = value >> part.lo & part.mask
        fields[part.name] = one
        if one in part.names:
            names[part.name] = part.names[one]
    if value & rest:
        fields["reserved"] = value & rest
    return fields, names


def parts_of(word: type[Word], constants: Iterable[tuple[str, int]]) -> tuple[tuple[Part, ...], int]:
    """Return a word's fields and the bits of none. `constants` are the word's enumerated values: FIELD_VALUE, number.
    An array's elements are fields of their own.
    """
    spelled = {name.upper().rstrip("_"): name for name in word.FIELDS}
    names: dict[str, dict[int, str]] = {}
    for constant, number in constants:
        # The longest field that the constant begins with: DST_MEMORY_LAYOUT_PITCH is no value of a field DST.
        cut = len(constant)
        while (cut := constant.rfind("_", 0, cut)) > 0:
            if constant[:cut] in spelled:
                names.setdefault(spelled[constant[:cut]], {}).setdefault(number, constant[cut + 1 :])
                break
    parts, taken = [], 0
    for name, place in word.FIELDS.items():
        mask, taken = (1 << place.width) - 1, taken | place.mask
        for i in range(1 if place.count is None else place.count):
            shown = name.rstrip("_") if place.count is None else f"{name}[{i}]"
            parts.append(Part(shown, place.lo + i * place.stride, mask, names.get(name, {})))
    return tuple(parts), (1 << word.WIDTH) - 1 & ~taken


def _engine(class_id: int) -> str | None:
    return ENGINES.get(class_id & 0xFF)


@cache
def _module(name: str) -> Any:
    return import_module(f"ringup.autogen.nv.{name}")


@cache
def _constants(engine: str, class_id: int) -> dict[str, list[tuple[str, int]]]:
    """Return the enumerated values of an engine, as FIELD_VALUE and number, by each name that may be a word's."""
    module = _module(engine)
    values = vars(module) | getattr(module, "VALUES", {}).get(class_id, {})
    found: dict[str, list[tuple[str, int]]] = {}
    for name, number in values.items():
        if name.isupper() and isinstance(number, int):
            at = -1
            while (at := name.find("_", at + 1)) >= 0:
                found.setdefault(name[:at], []).append((name[at + 1 :], number))
    return found


@cache
def methods_of(class_id: int) -> Mapping[int, MethodRow] | None:
    """Return a class's methods by byte offset, None for a class that no table describes."""
    engine = _engine(class_id)
    if engine is None:
        return None
    table: dict[int, MethodRow] = {}
    rows = _module(engine).METHODS.get(class_id)
    if rows is not None:
        for offset, row in _rows(class_id, engine, rows):
            table.setdefault(offset, row)
    if class_id in NAMED_AS:
        table = {**(methods_of(NAMED_AS[class_id]) or {}), **table}
    return table or None


def _rows(
    class_id: int, engine: str, rows: Mapping[type[Word], int | tuple[int, int, int]]
) -> Iterator[tuple[int, MethodRow]]:
    """Yield a class's methods, the highest first. A table does not know how long an array is; it ends where its next
    element would be a method that begins later.
    """
    constants = _constants(engine, class_id)
    seen: set[int] = set()
    places = [(place if isinstance(place, tuple) else (place, 0, 0), word) for word, place in rows.items()]
    for (offset, stride, count), word in sorted(places, key=lambda one: one[0][0], reverse=True):
        parts, rest = parts_of(word.at(class_id), constants.get(word.__name__, ()))
        plain = len(parts) == 1 and parts[0].mask == 0xFFFF_FFFF and not parts[0].names
        count = LONGER.get((class_id, word.__name__), count)
        for index in range(max(count, 1)):
            here = offset + index * stride
            if here in seen or here >= METHODS_END_BYTES:
                break
            seen.add(here)
            yield here, MethodRow(word.__name__, index if count else None, parts, rest, plain)
