"""Adreno chips for the register database: every register and field of the XML that applies to a chip's generation."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ringup.autogen.generate.emit.facts import Rejected
from ringup.autogen.generate.emit.regdb import write_block, write_chip
from ringup.autogen.generate.emit.register_facts import FieldFacts, RegisterFacts
from ringup.autogen.generate.qualcomm.rnn import Bits, Condition, Database, Register, read
from ringup.autogen.regdb import ChipRow, Place

LINUX_REGISTERS = Path("drivers/gpu/drm/msm/registers")
MESA_REGISTERS = Path("src/freedreno/registers")
FILES = ("adreno/a6xx.xml", "adreno/a6xx_gmu.xml")
MESA_FILES = (*FILES, "adreno/adreno_control_regs.xml", "adreno/adreno_pipe_regs.xml")
SOURCE = "Adreno register XML of Mesa and Linux"

WHOLE = "value"  # name of the field of a register that is one field


@dataclass(frozen=True, slots=True)
class Space:
    """Registers that are accessed the same way.

    `prefixed` adds the domain's name to theirs, for domains that share names.
    """

    block: str
    kind: str
    domains: tuple[str, ...]
    file: str = ""
    prefixed: bool = False


SPACES = (
    Space("gpu", "mmio", ("A6XX",), "a6xx.xml"),
    Space("gmu", "gmu", ("A6XX",), "a6xx_gmu.xml"),
    Space("cx_misc", "cx_misc", ("A6XX_CX_MISC",)),
    Space("cx_dbgc", "cx_dbgc", ("A6XX_CX_DBGC",)),
    Space("pdc", "pdc", ("A6XX_PDC",)),
    Space("pdc_seq", "pdc_seq", ("A6XX_PDC_GPU_SEQ",)),
    Space("sqe", "sqe", ("A6XX_SQE_REG",)),
    Space("descriptors", "memory", ("A6XX_TEX_SAMP", "A6XX_TEX_CONST", "A6XX_UBO"), prefixed=True),
    Space("pm4", "pm4", ("CP_*",), prefixed=True),
)
# The registers that the command processor's microcode sees, by generation; a750 rearranged its control registers.
CONTROL = {
    "A6XX": (Space("control", "control", ("A6XX_CONTROL_REG",)), Space("pipe", "pipe", ("A6XX_PIPE_REG",))),
    "A7XX": (Space("control", "control", ("A7XX_CONTROL_REG",)), Space("pipe", "pipe", ("A7XX_PIPE_REG",))),
    "A7XX_GEN3": (Space("control", "control", ("A7XX_GEN3_CONTROL_REG",)), Space("pipe", "pipe", ("A7XX_PIPE_REG",))),
}
# Chip: variant of the XML, set of control registers.
CHIPS = {
    "adreno_630": ("A6XX", "A6XX"),
    "adreno_640": ("A6XX", "A6XX"),
    "adreno_650": ("A6XX", "A6XX"),
    "adreno_660": ("A6XX", "A6XX"),
    "adreno_730": ("A7XX", "A7XX"),
    "adreno_740": ("A7XX", "A7XX"),
    "adreno_750": ("A7XX", "A7XX_GEN3"),
}


@dataclass(frozen=True)
class Sources:
    """The register files of Mesa, which are newer, and those of Linux for what differs or only Linux has."""

    mesa: Database
    linux: Database


def read_sources(linux_root: Path, mesa_root: Path) -> Sources:
    """Read both trees' XML."""
    return Sources(read(mesa_root / MESA_REGISTERS, MESA_FILES), read(linux_root / LINUX_REGISTERS, FILES))


def in_space(register: Register, space: Space) -> bool:
    """Return whether the register belongs to the space."""
    if space.file and register.where.partition(":")[0] != space.file:
        return False
    return any(
        register.domain == domain or (domain.endswith("*") and register.domain.startswith(domain[:-1]))
        for domain in space.domains
    )


def is_selector(condition: Condition) -> bool:
    """Return whether a condition selects by packet content rather than by chip."""
    return condition.varset != "chip"


def note_of(bits: Bits) -> str:
    """Return what the XML says about a field's value beyond its bits."""
    parts = [bits.type] if bits.type else []
    if bits.radix:
        parts.append(f"{bits.radix} fraction bits")
    if bits.shr:
        parts.append(f"in units of {1 << bits.shr}")
    return ", ".join(parts)


def field_facts(database: Database, bits: Bits, chip: str) -> FieldFacts:
    """Return a field with the named values that apply to the chip's variant."""
    values = tuple(
        (value.name, value.value)
        for value in database.enums.get(bits.type, ())
        if database.holds(value.condition, {"chip": chip}) and value.value >> bits.hi - bits.lo + 1 == 0
    )
    variant = bits.condition.variants if bits.condition else ""
    return FieldFacts(bits.name or WHOLE, bits.hi, bits.lo, values=values, variant=variant, note=note_of(bits))


def _places(register: Register) -> Iterator[tuple[str, int, int, int]]:
    """Yield suffix, offset, stride and count: a plain array is one row, any other has a row per element."""
    dimensions = register.dimensions
    if len(dimensions) == 1 and not dimensions[0].offsets:
        yield "", register.offset, dimensions[0].stride, dimensions[0].count
        return
    steps = [d.offsets or tuple(i * d.stride for i in range(d.count)) for d in dimensions]
    for index in itertools.product(*(range(len(step)) for step in steps)):
        offset = register.offset + sum(step[i] for step, i in zip(steps, index, strict=True))
        yield "".join(f"_{i}" for i in index), offset, 0, 1


def register_facts(database: Database, register: Register, chip: str, space: Space, note: str) -> list[RegisterFacts]:
    """Return the register's rows for the chip's variant."""
    fields = tuple(
        field_facts(database, bits, chip) for bits in register.fields if database.holds(bits.condition, {"chip": chip})
    )
    notes = [note, "" if register.described else "array without a described register: width unknown"]
    return [
        RegisterFacts(
            f"{register.domain}_{register.name}{suffix}" if space.prefixed else f"{register.name}{suffix}",
            space.kind,
            offset,
            width_bits=register.width_bits,
            stride=stride,
            count=count,
            fields=fields,
            variant=" ".join(condition.variants for condition in register.conditions),
            note="; ".join(text for text in notes if text),
        )
        for suffix, offset, stride, count in _places(register)
    ]


def space_facts(sources: Sources, chip: str, space: Space) -> list[RegisterFacts]:
    """Return all registers of a space for the variant; those that only Linux has come last."""
    rows: list[RegisterFacts] = []
    known: set[tuple[str, str, int]] = set()
    for database, note in ((sources.mesa, ""), (sources.linux, "only in Linux's files")):
        for register in database.registers:
            if not in_space(register, space) or not database.applies(register, {"chip": chip}):
                continue
            key = (register.domain, register.name, register.offset)
            if note and key in known:
                continue
            rows += register_facts(database, register, chip, space, note)
            if not note:
                known.add(key)
    return list(dict.fromkeys(rows))


def chip_facts(sources: Sources, name: str) -> dict[str, list[RegisterFacts]]:
    """Return the registers of one chip of `CHIPS` by block."""
    chip, control = CHIPS[name]
    return {space.block: space_facts(sources, chip, space) for space in (*SPACES, *CONTROL[control])}


def disagreements(sources: Sources) -> tuple[Rejected, ...]:
    """List the fields whose places differ between Linux's and Mesa's files; the database has Mesa's."""
    known = {(r.domain, r.name, r.offset, r.conditions): r for r in sources.mesa.registers}
    found: list[Rejected] = []
    for register in sources.linux.registers:
        other = known.get((register.domain, register.name, register.offset, register.conditions))
        if other is None:
            continue
        bits = {(b.name, b.condition): (b.hi, b.lo) for b in other.fields}
        for b in register.fields:
            place = bits.get((b.name, b.condition))
            if place != (b.hi, b.lo):
                mesa = "absent" if place is None else f"{place[0]}:{place[1]}"
                name = f"{register.domain}_{register.name}.{b.name or WHOLE}"
                found.append(Rejected(name, register.where, f"{b.hi}:{b.lo} in Linux, {mesa} in Mesa, which is used"))
    return tuple(found)


def databases(sources: Sources) -> dict[str, bytes]:
    """Return the database files of all chips by their path below `autogen/`. Equal blocks share a file."""
    files: dict[str, bytes] = {}
    shared: dict[bytes, str] = {}
    made: dict[tuple[str, Space], bytes] = {}
    for name, (chip, control) in CHIPS.items():
        places = []
        for space in (*SPACES, *CONTROL[control]):
            blob = made.get((chip, space))
            if blob is None:
                blob = made[chip, space] = write_block(space_facts(sources, chip, space))
            path = shared.setdefault(blob, f"qcom/{control.lower()}_{space.block}.bin")
            files[f"regs/{path}"] = blob
            places.append(Place(space.block, chip, path, source=SOURCE))
        row = ChipRow(name, f"a{name.rpartition('_')[2]}", "qcom", tuple(places))
        files[f"regs/chips/{name}.bin"] = write_chip(row)
    return files


def select_one(database: Database, registers: Sequence[Register]) -> Register:
    """Return the row with the most specific condition; of equal ones the later.

    QUIRK: a6xx.xml leaves the a6xx row of a register unmarked where it adds one marked for a7xx.
    """

    def members(register: Register) -> int:
        count = len(database.members("chip"))
        for condition in register.conditions:
            if not is_selector(condition):
                count = min(count, sum(database.holds(condition, {"chip": m}) for m in database.members("chip")))
        return count

    least = min(members(register) for register in registers)
    return [register for register in registers if members(register) == least][-1]
