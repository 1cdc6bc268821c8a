"""Register allocation: assigns frames of dwords to physical registers, by exact live ranges.

Greedy colouring over live ranges with holes: a frame gets the lowest register (or run of registers) that is free at all
its instructions. Ranges are bit sets (`liveness.py`), so a test is one `&`, whatever the number of holes. In the order
in which ranges begin, this is optimal for single registers without control flow, and close to it in structured code.
Wide frames go first, since gaps for them are rarest; if that fails, all go in order of their beginnings. Colouring an
interference graph would need that graph (quadratic at a thousand live values) for the same result. Registers that do
not fit are spilled (`spill.py`), and allocation starts again. Pressure above the size of the file is spilled before the
first attempt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ringup.compiler.amd.instructions.code import Operand, Part, Physical, Reg, Signed, physical
from ringup.compiler.amd.instructions.effects import VCC_HI, VCC_LO
from ringup.compiler.amd.instructions.limits import limits
from ringup.compiler.amd.instructions.steps import FIRST, VCC_SGPR, Program, Step, physical_units
from ringup.compiler.amd.registers.coalesce import Frame, Frames, coalesce, is_copy
from ringup.compiler.amd.registers.liveness import Liveness
from ringup.compiler.amd.registers.pressure import Pressure
from ringup.compiler.amd.registers.spill import Spiller
from ringup.errors import CompileError

# Rounds of spilling. Each makes ranges shorter, so code that fits never reaches this.
ROUNDS = 40


class Allocation(NamedTuple):
    """Registers used (the highest number, plus one), dwords spilled, and copies removed."""

    vgprs: int
    sgprs: int
    spilled: int
    vanished: int


def allocate(program: Program, max_vgprs: int = 0, max_sgprs: int = 0) -> Allocation:
    """Make all registers of a program physical. `max_vgprs` and `max_sgprs` ask for smaller files than the processor's
    (tests, occupancy).

    Raises CompileError when a single instruction needs more registers than there are.
    """
    row = limits(program.code.target)
    sizes = {"s": max_sgprs or row.max_sgprs, "v": max_vgprs or row.max_vgprs}
    spiller = Spiller(program)
    for _ in range(ROUNDS):
        liveness = Liveness(program)
        frames = coalesce(program, liveness)
        everything = frames.all()
        # ORDER: scalar registers spill into lanes of vector registers.
        for bank in ("s", "v"):
            victims = _try(
                program, liveness, frames, [one for one in everything if one.bank == bank], sizes[bank], spiller
            )
            if victims:
                spiller.spill(victims, liveness)
                break
        else:
            return _rewrite(program, frames, spiller.spilled_dwords)
    raise CompileError(
        f"kernel {program.code.name}: {sizes['v']} VGPRs and {sizes['s']} SGPRs do not suffice after {ROUNDS} rounds of spilling; unroll less"
    )


def _try(
    program: Program, liveness: Liveness, frames: Frames, mine: list[Frame], size: int, spiller: Spiller
) -> list[Reg]:
    """Assign numbers to all frames of a file. Return the registers to spill if they do not fit."""
    if not mine:
        return []
    pressure = Pressure(mine)
    over = pressure.above(size)
    if over:
        return spiller.relieve(mine, pressure, size, liveness)
    compared = _masks_of_compares(program) if mine[0].bank == "s" else frozenset()
    failed = _colour(program, liveness, frames, mine, size, compared, by_width=True)
    if failed is not None:
        failed = _colour(program, liveness, frames, mine, size, compared, by_width=False)
    if failed is None:
        return []
    return spiller.make_room(failed, mine, size, liveness)


def _colour(
    program: Program,
    liveness: Liveness,
    frames: Frames,
    mine: list[Frame],
    size: int,
    compared: frozenset[Reg],
    by_width: bool,
) -> Frame | None:
    """Assign numbers to the frames. Return the first one that does not fit, None if all do."""
    bank = mine[0].bank
    occupied = [0] * size
    if bank == "s":
        occupied += [0] * (VCC_SGPR + 2 - size)
        occupied[VCC_SGPR], occupied[VCC_SGPR + 1] = liveness.mask[VCC_LO], liveness.mask[VCC_HI]
    hints: dict[Frame, list[tuple[Frame, int]]] = {}
    for to, to_at, source, source_at in frames.hints:
        (a, a_at), (b, b_at) = frames.place[to], frames.place[source]
        if a is not b and a.bank == bank:
            hints.setdefault(a, []).append((b, (b_at + source_at) - (a_at + to_at)))
            hints.setdefault(b, []).append((a, (a_at + to_at) - (b_at + source_at)))
    keys = []
    for i, frame in enumerate(mine):
        frame.number = -1
        keys.append((frame.fixed is None, by_width and frame.count == 1, (frame.whole & -frame.whole).bit_length(), i))
    wave = program.wave_size // 32
    for key in sorted(keys):
        frame = mine[key[3]]
        in_vcc = bool(compared) and frame.count == wave and all(reg in compared for reg, _ in frame.members)
        number = _place(frame, occupied, size, hints.get(frame, ()), in_vcc)
        if number < 0:
            return frame
        frame.number = number
        for k, mask in enumerate(frame.masks):
            occupied[number + k] |= mask
    return None


def _masks_of_compares(program: Program) -> frozenset[Reg]:
    """Return the registers that only vector compares write. In VCC, the encodings of these compares
    are half as long. QUIRK: gfx9's v_writelane does not read VCC (CDNA3 ISA reference, V_WRITELANE_B32).
    """
    good: set[Reg] = set()
    bad: set[Reg] = set()
    for steps in program.blocks:
        for step in steps:
            operands = step.instr.operands
            if step.instr.mnemonic == "v_writelane_b32":
                bad.update(_regs(operands[1]))
            for i in step.effects.defs:
                reg = operands[i]
                if isinstance(reg, Reg) and reg.bank == "s":
                    (good if step.instr.mnemonic.startswith("v_cmp_") else bad).add(reg)
                elif isinstance(reg, Part) and reg.reg.bank == "s":
                    bad.add(reg.reg)
    return frozenset(good - bad)


def _regs(operand: Operand) -> tuple[Reg, ...]:
    return (operand,) if isinstance(operand, Reg) else (operand.reg,) if isinstance(operand, Part) else ()


def _place(frame: Frame, occupied: list[int], size: int, hints: Sequence[tuple[Frame, int]], in_vcc: bool) -> int:
    """Return the number for a frame: its fixed one, one that removes a copy, VCC for a mask, else the lowest free one;
    -1 if there is none.
    """
    masks, count = frame.masks, frame.count
    if frame.fixed is not None:
        for k, mask in enumerate(masks):
            if occupied[frame.fixed + k] & mask:
                raise CompileError(
                    f"{frame.members[0][0]} must be at {frame.bank}{frame.fixed}, where another fixed register is live at the same time"
                )
        return frame.fixed
    for other, shift in hints:
        number = other.number + shift
        placed = (
            other.number >= 0 and 0 <= number <= size - count and number % frame.align == frame.residue % frame.align
        )
        if placed and not any(occupied[number + k] & mask for k, mask in enumerate(masks)):
            return number
    if in_vcc and not any(occupied[VCC_SGPR + k] & mask for k, mask in enumerate(masks)):
        return VCC_SGPR
    if count == 1:
        mask = masks[0]
        for number in range(frame.residue, size, frame.align):
            if not occupied[number] & mask:
                return number
        return -1
    for number in range(frame.residue, size - count + 1, frame.align):
        for k in range(count):
            if occupied[number + k] & masks[k]:
                break
        else:
            return number
    return -1


def _placed(one: Operand, whole: Mapping[Reg, Physical]) -> Operand:
    if isinstance(one, Reg):
        return whole[one]
    if isinstance(one, Part):
        return physical(one.reg.bank, whole[one.reg].first + one.first, one.count)
    return Signed(_placed(one.source, whole), one.neg, one.abs) if isinstance(one, Signed) else one


def _rewrite(program: Program, frames: Frames, spilled: int) -> Allocation:
    """Replace virtual registers in operands and units, remove copies of a register to itself, and count the registers
    used.
    """
    unit_place = list(range(FIRST)) + [0] * (program.unit_count - FIRST)
    whole: dict[Reg, Physical] = {}
    highest = {"v": 0, "s": 0}
    for reg in program.regs:
        frame, at = frames.place[reg]
        number = frame.number + at
        if number < VCC_SGPR or reg.bank == "v":
            highest[reg.bank] = max(highest[reg.bank], number + reg.count)
        base = program.base[reg]
        whole[reg] = place = physical(reg.bank, number, reg.count)
        unit_place[base : base + reg.count] = physical_units(place)
    vanished = 0
    for b, steps in enumerate(program.blocks):
        kept: list[Step] = []
        for step in steps:
            instr = step.instr
            operands = [one if type(one) is int else _placed(one, whole) for one in instr.operands]
            if is_copy(step) and operands[0] is operands[1]:
                vanished += 1
                continue
            instr.operands = operands
            step.reads = tuple([unit_place[unit] for unit in step.reads])
            step.writes = tuple([unit_place[unit] for unit in step.writes])
            kept.append(step)
        program.blocks[b] = kept
    return Allocation(highest["v"], highest["s"], spilled, vanished)
