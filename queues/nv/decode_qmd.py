"""Decoder of launch descriptors (QMD, queue meta data): what the compute engine reads before it starts a grid.

A descriptor carries its version. It stands at one place up to version 4 and at another from version 5 on.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module

from ringup.queues.nv.decode_classes import Part, parts_of, read_parts
from ringup.queues.nv.decode_packet import NvPacket


@dataclass(frozen=True, slots=True)
class Version:
    """One layout: its module in `autogen/nv`, the lowest of the eight bits that hold major and minor number, its size,
    and the compute classes that take it.
    """

    module: str
    major: int
    minor: int
    low_bit: int
    count_dwords: int
    classes: tuple[int, ...]


# The generated modules: which headers (cl<class>qmd.h) have the version. QUIRK: Turing's own header has 2.3 alone, that
# of its other compute class 0xc4c0 has 2.2; both are taken for Turing.
VERSIONS = (
    Version("qmdv02_02", 2, 2, 576, 64, (0xC4C0, 0xC5C0)),
    Version("qmdv02_03", 2, 3, 576, 64, (0xC5C0, 0xC6C0, 0xC7C0)),
    Version("qmdv02_04", 2, 4, 576, 64, (0xC6C0, 0xC7C0, 0xC9C0)),
    Version("qmdv03_00", 3, 0, 576, 64, (0xC6C0, 0xC7C0, 0xC9C0, 0xCBC0)),
    Version("qmdv04_00", 4, 0, 576, 96, (0xCBC0,)),
    Version("qmdv04_01", 4, 1, 576, 96, (0xCDC0, 0xCEC0)),
    Version("qmdv05_00", 5, 0, 464, 96, (0xCDC0, 0xCEC0)),
    Version("qmdv05_01", 5, 1, 464, 96, (0xCDC0, 0xCEC0)),
)
# a descriptor's address is a multiple of 256: clc6c0.h, SEND_PCAS_A_QMD_ADDRESS_SHIFTED8
ADDRESS_SHIFT = 8


def most_dwords(compute_class: int) -> int:
    """Return the size of the longest descriptor that a class takes, in dwords."""
    return max(version.count_dwords for version in _versions(compute_class))


def decode_descriptor(dwords: tuple[int, ...], compute_class: int, offset_dwords: int = 0) -> NvPacket:
    """Decode the descriptor that `dwords` begin with, as `compute_class` reads it."""
    found, note = _version(dwords, compute_class)
    raw = dwords[: found.count_dwords]
    parts, rest = _layout(found.module, compute_class)
    value = sum(dword << 32 * i for i, dword in enumerate(raw))
    fields, names = read_parts(parts, 0, value)
    for i in range(len(raw)):
        if over := value >> 32 * i & rest >> 32 * i & 0xFFFF_FFFF:
            fields[f"dword_{i}.reserved"] = over
    notes = [note] if note else []
    if len(raw) < found.count_dwords:
        notes.append(f"truncated: it has {found.count_dwords} dwords, {len(raw)} are there")
    return NvPacket(offset_dwords, found.module.upper(), fields, raw, "; ".join(notes), names=names)


def decode_descriptors(dwords: tuple[int, ...], compute_class: int) -> list[NvPacket]:
    """Decode descriptors that stand one after the other."""
    packets: list[NvPacket] = []
    at = 0
    while at < len(dwords):
        packets.append(decode_descriptor(dwords[at : at + most_dwords(compute_class)], compute_class, at))
        at += len(packets[-1].raw)
    return packets


@cache
def _versions(compute_class: int) -> tuple[Version, ...]:
    mine = tuple(version for version in VERSIONS if compute_class in version.classes)
    return mine or VERSIONS


def _version(dwords: tuple[int, ...], compute_class: int) -> tuple[Version, str]:
    """Return the version that a descriptor says it has, and a note if the class knows no such version."""
    mine = _versions(compute_class)
    # the later place first: up to version 4 other fields stand there
    for version in reversed(mine):
        if _number(dwords, version.low_bit) == (version.major, version.minor):
            return version, ""
    says = " or ".join(
        f"{major}.{minor}" for major, minor in dict.fromkeys(_number(dwords, one.low_bit) for one in mine)
    )
    known = ", ".join(f"{one.major}.{one.minor}" for one in mine)
    return mine[-1], f"it says version {says}; class {compute_class:#06x} knows {known}"


def _number(dwords: tuple[int, ...], low_bit: int) -> tuple[int, int]:
    dword = dwords[low_bit // 32] if low_bit // 32 < len(dwords) else 0
    both = dword >> low_bit % 32
    return both >> 4 & 0xF, both & 0xF


@cache
def _layout(module: str, compute_class: int) -> tuple[tuple[Part, ...], int]:
    """Return a version's fields as a class names them, and the bits of no field."""
    facts = import_module(f"ringup.autogen.nv.{module}")
    prefix = f"{module.upper()}_"
    word = getattr(facts, module.upper())
    constants = [(name.removeprefix(prefix), number) for name, number in vars(facts).items() if name.startswith(prefix)]
    return parts_of(word.at(compute_class) if compute_class in facts.PLACES else word, constants)
