"""Launch descriptors (QMD, queue meta data) in memory, of Turing to Blackwell, read into one form.

A class takes the versions that its header has. Sources: clc5c0qmd.h, clc6c0qmd.h, clc7c0qmd.h, clc9c0qmd.h,
clcbc0qmd.h, clcdc0qmd.h of open-gpu-doc; NAK (Mesa src/nouveau/compiler/nak/qmd.rs), which gives Turing version 2.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from types import ModuleType

from ringup.autogen.layout import Word
from ringup.autogen.nv import (
    qmdv02_02,
    qmdv02_03,
    qmdv02_04,
    qmdv03_00,
    qmdv04_00,
    qmdv04_01,
    qmdv05_00,
    qmdv05_01,
)
from ringup.silicon.nv.compute.launch import Bank, Launch, Windows

MODULES: dict[tuple[int, int], ModuleType] = {
    (2, 2): qmdv02_02,
    (2, 3): qmdv02_03,
    (2, 4): qmdv02_04,
    (3, 0): qmdv03_00,
    (4, 0): qmdv04_00,
    (4, 1): qmdv04_01,
    (5, 0): qmdv05_00,
    (5, 1): qmdv05_01,
}
# no header of Turing's class has version 2.2; NVK runs on Turing with it
BESIDES = {0xC5C0: ((2, 2),)}
# descriptors are named by their address in units of 256 bytes
ADDRESS_SHIFT = 8
# what SKED knows of a grid's shape: threads of a group. Source: CUDA's programming guide, compute capability 7.5 to 9.0
MAX_THREADS = 1024
# suffixes of fields that hold an address or a size in larger units
SHIFTS = ("", "_shifted4", "_shifted6", "_shifted7", "_shifted8")


class BadDescriptor(Exception):  # an event of the card
    """A descriptor that the chip does not run."""


class LacksModel(Exception):  # an event of the card
    """A descriptor with a feature that this model lacks."""


class Action(IntEnum):
    """What is done to a descriptor. Source: DEPENDENT_QMD0_ACTION of cl*c0qmd.h."""

    INCREMENT_PUT = 0
    SCHEDULE = 1
    INVALIDATE_COPY_SCHEDULE = 3
    DECREMENT_DEPENDENCE = 4


class Type(IntEnum):
    """QMD_TYPE of version 4 and later."""

    QUEUE = 0
    GRID_NULL = 1
    GRID_CTA = 2


class Trap(IntEnum):
    """Whether a release interrupts the CPU: never, always, or if the word that it writes has changed."""

    NONE = 0
    UNCONDITIONAL = 1
    CONDITIONAL = 2
    CONDITIONAL_EXT = 3


@dataclass(frozen=True, slots=True)
class Release:
    """A semaphore that is released when the grid has ended. `words`: 1, 2 or 4, the last with the time.

    `reduction`: RED_* of the headers; None stores the payload.
    """

    gpu_va: int
    payload: int
    words: int
    wide: bool = False
    reduction: int | None = None
    signed: bool = False
    trap: Trap = Trap.NONE


@dataclass(frozen=True, slots=True)
class Dependent:
    """A descriptor that follows when the grid has ended."""

    descriptor: int
    action: Action


@dataclass(frozen=True, slots=True)
class Descriptor:
    """What a descriptor says. `launch` is None for a grid without threads (GRID_NULL).

    `dependences`: how many decrements must come before it is scheduled.
    """

    version: tuple[int, int]
    launch: Launch | None
    releases: tuple[Release, ...]
    dependents: tuple[Dependent, ...]
    dependences: int


@cache
def versions(class_id: int) -> dict[tuple[int, int], type[Word]]:
    """Return the layouts that a compute class takes, by version."""
    found: dict[tuple[int, int], type[Word]] = {}
    for version, module in MODULES.items():
        word: type[Word] = getattr(module, f"QMDV{version[0]:02}_{version[1]:02}")
        if class_id in module.PLACES:
            found[version] = word.at(class_id)
        elif version in BESIDES.get(class_id, ()):
            found[version] = word
    return found


def size_bytes(class_id: int) -> int:
    """Return how many bytes the descriptors of a class have."""
    return max(layout.WIDTH for layout in versions(class_id).values()) // 8


def _version(word: Word) -> tuple[int, int]:
    fields = _Fields(word)
    return fields.number("qmd_major_version"), fields.number("qmd_minor_version", "qmd_version")


def read(class_id: int, descriptor: int, raw: bytes, windows: Windows) -> Descriptor:
    """Read a descriptor of a class at gpu_va `descriptor`. Raises `BadDescriptor` or `LacksModel`."""
    value = int.from_bytes(raw, "little")
    for version, layout in versions(class_id).items():
        word = layout(value & (1 << layout.WIDTH) - 1)
        if _version(word) == version:
            return _read(_Fields(word), version, descriptor, windows)
    taken = ", ".join(f"{major}.{minor}" for major, minor in versions(class_id))
    major, minor = _version(next(iter(versions(class_id).values()))(value & (1 << 8 * len(raw)) - 1))
    raise BadDescriptor(
        f"the descriptor at {descriptor:#x} has version {major}.{minor}; class {class_id:#x} takes {taken}"
    )


class _Fields:
    """A descriptor's fields by name, whatever unit and name a version has for them."""

    def __init__(self, word: Word) -> None:
        self.word = word

    def has(self, name: str) -> bool:
        """Return whether the version has a field."""
        return name in self.word.FIELDS

    def get(self, *names: str) -> int | tuple[int, ...]:
        """Return the first of some fields that exists, in its plain unit; 0 if there is none."""
        for name in names:
            for suffix in SHIFTS:
                if self.has(name + suffix):
                    value = getattr(self.word, name + suffix)
                    shift = int(suffix[-1]) if suffix else 0
                    return tuple(one << shift for one in value) if isinstance(value, tuple) else value << shift
        return 0

    def number(self, *names: str) -> int:
        """Return a field that holds one number."""
        value = self.get(*names)
        assert isinstance(value, int)
        return value

    def each(self, name: str) -> tuple[int, ...]:
        """Return a field that is an array."""
        value = self.get(name)
        assert isinstance(value, tuple)
        return value

    def address(self, stem: str, lower: str = "lower", upper: str = "upper") -> int:
        """Return an address of two fields; both halves have the same unit."""
        for suffix in SHIFTS:
            if self.has(f"{stem}_{lower}{suffix}"):
                low, high = (int(getattr(self.word, f"{stem}_{half}{suffix}")) for half in (lower, upper))
                return (high << 32 | low) << (int(suffix[-1]) if suffix else 0)
        return 0


def _read(fields: _Fields, version: tuple[int, int], descriptor: int, windows: Windows) -> Descriptor:
    kind = fields.number("qmd_type") if fields.has("qmd_type") else Type.GRID_CTA
    if kind == Type.QUEUE or fields.number("is_queue"):
        raise LacksModel(f"the descriptor at {descriptor:#x} is a queue; queues are not modelled")
    if kind > Type.GRID_CTA:
        raise LacksModel(f"the descriptor at {descriptor:#x} has type {kind}; clusters of groups are not modelled")
    if not fields.has("constant_buffer_valid"):
        raise LacksModel(f"the descriptor at {descriptor:#x} has several tasks (version 5.1), which are not modelled")
    launch = None if kind == Type.GRID_NULL else _launch(fields, version, descriptor, windows)
    return Descriptor(
        version, launch, _releases(fields), _dependents(fields, descriptor), fields.number("dependence_counter")
    )


def _launch(fields: _Fields, version: tuple[int, int], descriptor: int, windows: Windows) -> Launch:
    grid = tuple(fields.number(f"grid_{axis}", f"cta_raster_{axis}") for axis in ("width", "height", "depth"))
    block = tuple(fields.number(f"cta_thread_dimension{axis}") for axis in range(3))
    threads = block[0] * block[1] * block[2]
    if not 0 < threads <= MAX_THREADS:
        raise BadDescriptor(f"the descriptor at {descriptor:#x} has groups of {block} threads")
    return Launch(
        descriptor=descriptor,
        version=version,
        program=fields.address("program_address"),
        grid=(grid[0], grid[1], grid[2]),
        block=(block[0], block[1], block[2]),
        registers=fields.number("register_count_v", "register_count"),
        barriers=fields.number("barrier_count"),
        shared_bytes=fields.number("shared_memory_size"),
        local_low_bytes=fields.number("shader_local_memory_low_size"),
        local_high_bytes=fields.number("shader_local_memory_high_size"),
        constants=_constants(fields),
        sass_version=fields.number("sass_version"),
        linked_samplers=bool(fields.number("sampler_index")),
        sequential=bool(fields.number("sequentially_run_ctas")),
        windows=windows,
    )


def _constants(fields: _Fields) -> tuple[Bank | None, ...]:
    stem = "constant_buffer_addr"
    shift = next(suffix for suffix in SHIFTS if fields.has(f"{stem}_lower{suffix}"))
    unit = int(shift[-1]) if shift else 0
    lows, highs = (getattr(fields.word, f"{stem}_{half}{shift}") for half in ("lower", "upper"))
    sizes = fields.each("constant_buffer_size")
    valid = fields.each("constant_buffer_valid")
    return tuple(
        Bank((high << 32 | low) << unit, size) if on else None
        for on, low, high, size in zip(valid, lows, highs, sizes, strict=False)
    )


def _releases(fields: _Fields) -> tuple[Release, ...]:
    found = []
    for number in range(3):
        if fields.has("release_enable"):
            if fields.each("release_enable")[number]:
                found.append(_release_of_an_array(fields, number))
        elif fields.number(f"release{number}_enable", f"semaphore_release_enable{number}"):
            found.append(_release(fields, number))
    return tuple(found)


# RELEASE0_STRUCTURE_SIZE: words of a semaphore
WORDS = {0: 4, 1: 1, 2: 2}


def _release(fields: _Fields, number: int) -> Release:
    stem = f"release{number}"
    low, high = fields.number(f"{stem}_payload_lower", f"{stem}_payload"), fields.number(f"{stem}_payload_upper")
    wide = bool(fields.number(f"{stem}_payload64b"))
    size = fields.number(f"{stem}_structure_size")
    if size not in WORDS:
        raise BadDescriptor(f"release {number} has structure size {size}")
    return Release(
        fields.address(f"{stem}_address"),
        high << 32 | low if wide else low,
        WORDS[size],
        wide,
        fields.number(f"{stem}_reduction_op") if fields.number(f"{stem}_reduction_enable") else None,
        bool(fields.number(f"{stem}_reduction_format") & 1),
        Trap(fields.number(f"{stem}_trap_type", f"{stem}_non_blocking_intr_type")),
    )


def _release_of_an_array(fields: _Fields, number: int) -> Release:
    def at(name: str) -> int:
        return fields.each(f"release_{name}")[number]

    stem = f"release_semaphore{number}"
    low, high = fields.number(f"{stem}_payload_lower"), fields.number(f"{stem}_payload_upper")
    wide = bool(at("payload64b"))
    if at("structure_size") not in WORDS:
        raise BadDescriptor(f"release {number} has structure size {at('structure_size')}")
    return Release(
        fields.address(f"{stem}_addr"),
        high << 32 | low if wide else low,
        WORDS[at("structure_size")],
        wide,
        at("reduction_op") if at("reduction_enable") else None,
        bool(at("reduction_format") & 1),
        Trap(at("trap_type")),
    )


def _dependents(fields: _Fields, descriptor: int) -> tuple[Dependent, ...]:
    if fields.has("dependent_qmd_schedule_enable"):
        # versions 2.2 and 2.3: one, which is a queue or a grid; a grid's saved fields may be copied back first
        if not fields.number("dependent_qmd_schedule_enable"):
            return ()
        action = Action.SCHEDULE if fields.number("dependent_qmd_type") else Action.INCREMENT_PUT
        return (Dependent(fields.number("dependent_qmd_pointer") << ADDRESS_SHIFT, action),)
    found = []
    for number in range(2):
        if fields.has("dependent_qmd_enable"):
            on, action_number = fields.each("dependent_qmd_enable")[number], fields.each("dependent_qmd_action")[number]
        else:
            on, action_number = (fields.number(f"dependent_qmd{number}_{name}") for name in ("enable", "action"))
        if not on:
            continue
        if action_number not in list(Action):
            raise BadDescriptor(f"the descriptor at {descriptor:#x} has dependent action {action_number}")
        if not fields.has(f"dependent_qmd{number}_pointer"):
            raise LacksModel(
                f"the descriptor at {descriptor:#x} has a second dependent, which no header gives a pointer"
            )
        pointer = fields.number(f"dependent_qmd{number}_pointer")
        found.append(Dependent(pointer << ADDRESS_SHIFT, Action(action_number)))
    return tuple(found)
