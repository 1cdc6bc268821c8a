"""Encodes physical instructions: links branches, pads the end, and collects what the kernel descriptor must state.

Source: LLVM AMDGPUUsage, "Kernel Descriptor"; AMDGPUTargetELFStreamer / AMDGPUAsmPrinter.cpp (s_code_end padding: the
instruction prefetcher reads ahead of the last instruction).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

from ringup.compiler.amd.branch_trampolines import BRANCH_BYTES, Branch, link
from ringup.compiler.amd.instructions.code import Block, Instr, Operand, Physical, Signed, Special
from ringup.compiler.amd.instructions.limits import limits
from ringup.compiler.amd.instructions.names import spellings
from ringup.compiler.amd.instructions.steps import VCC_SGPR, Pair, Program
from ringup.compiler.isa.amd.encoding import registers
from ringup.compiler.isa.amd.encoding.processor import processor
from ringup.errors import CompileError

KERNARG_SGPRS: Final = 2
# Round to nearest even; denormals of f32 and of f16/f64 kept. Source: AMDGPUUsage, "Floating Point Denorm Mode".
FLOAT_MODE: Final = 0xF0
# Instructions with a count of following instructions, less one, in their immediate: its shift and mask.
COUNTED: Final = {"s_clause": (0, 0x3F), "s_delay_alu": (4, 7)}


class Argument(NamedTuple):
    """One kernel argument for the metadata: its place in the argument segment, and whether it is a buffer's address."""

    name: str
    offset: int
    size_bytes: int
    is_buffer: bool


@dataclass(frozen=True, slots=True)
class Binary:
    """One kernel as machine code. Counts are per lane (VGPRs, scratch), per wave (SGPRs) or per group (LDS,
    `group_size` work-items).

    `user_sgprs`: the SGPRs before the group ids (the kernarg pointer in the first two, then padding). `group_ids`:
    whether the kernel uses the group's number along x, y, z. `occupancy`: waves that fit on a SIMD. `sgprs` does not
    count VCC. v0 holds the work-item's number in the group.
    """

    name: str
    target: str
    code: bytes
    vgprs: int
    sgprs: int
    lds_bytes: int
    scratch_bytes: int
    kernarg_bytes: int
    group_size: int
    wave_size: int
    user_sgprs: int
    group_ids: tuple[bool, bool, bool]
    occupancy: int
    float_mode: int = FLOAT_MODE
    instructions: int = 0
    arguments: tuple[Argument, ...] = ()


def emit(program: Program, vgprs: int, sgprs: int, arguments: tuple[Argument, ...] = ()) -> Binary:
    """Encode all steps of a program with physical registers. Raises CompileError for an instruction that has no
    encoding.
    """
    code = program.code
    last = next((steps[-1] for steps in reversed(program.blocks) if steps), None)
    if last is None or not last.effects.branch or last.instr.mnemonic.startswith("s_cbranch"):
        raise CompileError(f"control runs past the last instruction of kernel {code.name}; end it with s_endpgm")
    chip = processor(code.target, code.wave_size)
    encode, dual, names = chip.encode, chip.encode_dual, spellings(code.target)
    chunks: list[bytes] = []
    starts: dict[Block, int] = {}
    # (chunk, target, mnemonic)
    branches: list[tuple[int, Block, str]] = []
    for block, steps in zip(code.blocks, program.blocks, strict=True):
        starts[block] = len(chunks)
        for step in steps:
            instr = step.instr
            try:
                if step.effects.branch and instr.operands and isinstance(instr.operands[0], Block):
                    branches.append((len(chunks), instr.operands[0], instr.mnemonic))
                    chunk = bytes(BRANCH_BYTES)
                elif type(instr) is Pair:
                    x, y = instr.x, instr.y
                    chunk = dual((x.mnemonic, _operands(x)), (y.mnemonic, _operands(y)))
                else:
                    chunk = encode(names.get(instr.mnemonic, instr.mnemonic), _operands(instr), **instr.modifiers)
            except CompileError as error:
                raise CompileError(f"kernel {code.name}, {block}: `{instr}`: {error}") from error
            chunks.append(chunk)
    linked = [Branch(place, starts[goal], mnemonic) for place, goal, mnemonic in branches]
    chunks = link(chunks, linked, lambda: _together(program), encode)
    at, count = sum(map(len, chunks)), len(chunks)
    row = limits(code.target)
    (mnemonic, filler), line, lines = row.padding
    end = encode(mnemonic, list(filler))
    padding = -(-at // line) * line + lines * line - at
    chunks.append(end * (padding // len(end)))
    first_id = first_group_sgpr(code.target, code.group_ids)
    return Binary(
        code.name, code.target, b"".join(chunks), max(vgprs, 1), sgprs, code.lds_bytes, code.scratch_bytes, code.kernarg_bytes, code.group_size,
        code.wave_size, first_id, code.group_ids, row.occupancy(vgprs, code.lds_bytes, code.group_size, code.wave_size),
        instructions=count, arguments=arguments,
    )  # fmt: skip


def _together(program: Program) -> set[int]:
    """Return the instructions before which nothing may be inserted: those inside a clause, and those that a delay
    counts.
    """
    found: set[int] = set()
    for i, step in enumerate(step for steps in program.blocks for step in steps):
        if step.instr.mnemonic in COUNTED:
            shift, mask = COUNTED[step.instr.mnemonic]
            number = step.instr.operands[0]
            assert isinstance(number, int)
            found.update(range(i + 1, i + (number >> shift & mask) + 2))
    return found


def first_group_sgpr(target: str, group_ids: tuple[bool, bool, bool]) -> int:
    """Return the SGPR that holds the first enabled group id.

    QUIRK: gfx1100 must enable at least 16 user and group SGPRs together; the ids are the last of them. Source: LLVM
    AMDGPU.td, FeatureUserSGPRInit16Bug; SIISelLowering.cpp, allocateSystemSGPRs.
    """
    return max(KERNARG_SGPRS, limits(target).padded_sgprs - sum(group_ids))


def _operands(instr: Instr) -> list[registers.Operand]:
    return [_register(one) if type(one) is Physical else _operand(one) for one in instr.operands]


def _operand(one: Operand) -> registers.Operand:
    if isinstance(one, Physical):
        return _register(one)
    if isinstance(one, (int, float)):
        return one
    if isinstance(one, Special):
        return registers.ttmp[int(one.name[4:])] if one.name.startswith("ttmp") else registers.special(one.name)
    if not isinstance(one, Signed):
        raise CompileError(f"{one!r} is still an operand where a physical register is needed")
    source = _operand(one.source)
    assert not isinstance(source, tuple)
    if one.abs:
        source = registers.abs_(source)
    return registers.neg(source) if one.neg else source


@cache
def _register(one: Physical) -> registers.Register:
    if one.bank == "v":
        return registers.v.span(one.first, one.count)
    if one.first >= VCC_SGPR:
        return registers.special(str(one))
    return registers.s.span(one.first, one.count)
