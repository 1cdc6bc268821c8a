"""Operands of the scalar and vector ALUs: fetch, check and modify them, call `VALUES`, and write the results back."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ringup.errors import Unmodelled
from ringup.silicon.shader.amd.decoding import decode
from ringup.silicon.shader.amd.decoding.gcn import WHOLE_DWORD
from ringup.silicon.shader.amd.decoding.products import shape_of
from ringup.silicon.shader.amd.interpreter.dpp import Permutation
from ringup.silicon.shader.amd.interpreter.gcn_alu import indexed, placed, selected
from ringup.silicon.shader.amd.interpreter.mfma import undefined_registers
from ringup.silicon.shader.amd.interpreter.step import Exit, Step
from ringup.silicon.shader.amd.interpreter.valu_matrix import MATRIX, undefined_elements
from ringup.silicon.shader.amd.interpreter.value_table import (
    GCN_VALUES,
    VALUES,
    Ctx,
    base_mnemonic,
    finish,
    has_modifiers,
    modify,
)
from ringup.silicon.shader.amd.strict.history import (
    PART_SOURCES,
    SHIFTS,
    UPWARDS,
    WIDE_SHIFTS,
    RuleBroken,
    gathered_sources,
    scalar_computes,
)
from ringup.silicon.shader.common.lanes import lanes_of, mask_of, some
from ringup.silicon.shader.common.state import EXEC_LO, M0, MODE, SCC, VCC_LO

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ringup.silicon.shader.amd.decoding.decode import Instruction, Operand
    from ringup.silicon.shader.amd.interpreter.step import Lanes, Words

# Instructions that only pass values on: an undefined value is not an error there yet.
MOVES = frozenset(
    (
        "s_mov_b32", "s_mov_b64", "s_cmov_b32", "s_cmov_b64", "s_cselect_b32", "s_cselect_b64", "v_mov_b32", "v_mov_b16",
        "v_readlane_b32", "v_readfirstlane_b32", "v_writelane_b32", "v_permlane16_b32", "v_permlanex16_b32", "v_permlane64_b32",
        "v_permlane16_var_b32", "v_permlanex16_var_b32",
        "v_cndmask_b32", "v_cndmask_b16", "v_swap_b32", "v_swap_b16", "v_movreld_b32", "v_movrels_b32", "v_movrelsd_b32",
        "v_movrelsd_2_b32", "v_swaprel_b32", "v_mov_b64", "v_accvgpr_read_b32", "v_accvgpr_write_b32",
        "v_accvgpr_mov_b32", "v_permlane16_swap_b32", "v_permlane32_swap_b32",
    )
)  # fmt: skip
# Selectors of v_perm_b32 that take bytes of S0 and of S1, or their signs. Source: RDNA3 ISA reference, "V_PERM_B32".
BYTES_OF_FIRST, BYTES_OF_SECOND, LAST_BYTE_TAKEN = (4, 5, 6, 7, 10, 11), (0, 1, 2, 3, 8, 9), 11
# A carry only moves up. Compilers leave the high dword of an addend undefined if they need only the low dword of the
# sum.
HIGH_HALF_PASSES = frozenset(("v_mad_u64_u32", "v_mad_i64_i32"))
BITWISE = re.compile(r"s_(?:not|(?:and|or)(?:_not[01])?|xor|nand|nor|xnor)(?:_(?:save|wr)exec)?_b(?:32|64)")
READS_SCC = (
    "s_addc_", "s_subb_", "s_cselect_", "s_cmov",
)  # fmt: skip
# These ignore EXEC.
ALL_LANES = ("v_writelane_b32", "v_s_", "v_mfma_", "v_smfmac_", *decode.MATRIX_PRODUCTS)
# Pairs of dwords of CDNA.
PAIRS = frozenset(("v_pk_fma_f32", "v_pk_mul_f32", "v_pk_add_f32", "v_pk_mov_b32"))
NOTHING = frozenset(("v_nop", "v_pipeflush", "v_clrexcp"))
_ONE_LANE = frozenset(("v_readlane_b32", "v_readfirstlane_b32"))
MODE_FP16_OVFL = 1 << 23
_U32, _U64 = np.uint32, np.uint64


def context(step: Step, ins: Instruction, lanes: Lanes) -> Ctx:
    """Return what an instruction depends on besides its operands."""
    words = step.regs.words
    mode = int(words[MODE])
    # Without these modes a clamped NaN is 0, and omod works in any denormal mode.
    has_modes = step.machine.generation.start.has_float_modes
    return Ctx(
        ins, lanes.size, lanes, step.regs.wave.vgprs, mode & 3, mode >> 2 & 3, mode >> 4 & 3, mode >> 6 & 3,
        has_modes and bool(mode & 1 << 9), not has_modes or bool(mode & 1 << 8), int(words[SCC]) & 1, int(words[M0]),
        omod_in_any_mode=not has_modes, saturates=bool(mode & MODE_FP16_OVFL),
    )  # fmt: skip


def special(step: Step, operand: Operand) -> int:
    """Return a source that is a state of the wave or the card."""
    dispatch, regs = step.machine.dispatch, step.regs
    mask_words = regs.lane_count // 32
    match operand.index:
        case decode.SCC:
            return regs.scc
        case decode.VCCZ:
            return int(not regs.scalar(VCC_LO, mask_words))
        case decode.EXECZ:
            return int(not regs.scalar(EXEC_LO, mask_words))
        case decode.SHARED_BASE:
            value = dispatch.shared_aperture << 48
        case decode.SHARED_LIMIT:
            value = dispatch.shared_aperture << 48 | 0xFFFF_FFFF
        case decode.PRIVATE_BASE:
            value = dispatch.private_aperture << 48
        case decode.PRIVATE_LIMIT:
            value = dispatch.private_aperture << 48 | 0xFFFF_FFFF
        case _:
            raise Unmodelled(f"source {-operand.index} of {step.ins.mnemonic} at {step.pc:#x}")
    return value & (1 << max(operand.size_bits, 32)) - 1


# ---- scalar


def _scalar_source(step: Step, operand: Operand, *, decides: bool) -> int:
    if operand.kind == "sgpr":
        return step.regs.scalar(operand.index, max(operand.size_bits // 32, 1), decides=decides)
    return special(step, operand) if operand.index < 0 else operand.bits


def _undefined_bits(step: Step, operand: Operand) -> int:
    if operand.kind != "sgpr":
        return 0
    return step.regs.scalar_undefined(operand.index, max(operand.size_bits // 32, 1))


def _both(a: int, ua: int, b: int, ub: int) -> int:
    """Return the undefined bits of `a & b`: a defined zero decides alone."""
    return ua & (b | ub) | ub & (a | ua)


def _bitwise(mnemonic: str, sources: list[int], undefined: list[int], exec_bits: int) -> int:
    """Return the undefined bits of a bitwise scalar operation."""
    stem = mnemonic.rpartition("_b")[0].removesuffix("_saveexec").removesuffix("_wrexec").removeprefix("s_")
    if "exec" in mnemonic:
        sources, undefined = [*sources, exec_bits], [*undefined, 0]
    if stem == "not":
        return undefined[0]
    (a, b), (ua, ub) = sources, undefined
    stem, _, negated = stem.partition("_not")
    a, b = (~a if negated == "0" else a), (~b if negated == "1" else b)
    if stem in ("and", "nand"):
        return _both(a, ua, b, ub)
    return _both(~a, ua, ~b, ub) if stem in ("or", "nor") else ua | ub


def _shifted(mnemonic: str, undefined: int, by: int, width: int) -> int:
    """Return where a shift moves undefined bits; an arithmetic shift fills with the sign."""
    by &= width - 1
    if mnemonic.startswith("s_lshl"):
        return undefined << by
    sign = undefined >> width - 1 if mnemonic.startswith("s_ashr") else 0
    return undefined >> by | (((1 << by) - 1) << width - by) * sign


def _computed_bits(step: Step, mnemonic: str, sources: list[int], bits: list[int], width: int) -> int:
    """Return the undefined bits of a scalar instruction's result; `bits` are those of its sources."""
    whole, merged = (1 << width) - 1, 0
    scc_undefined = mnemonic.startswith(READS_SCC) and step.regs.scc_undefined
    for one in bits:
        merged |= one
    if BITWISE.fullmatch(mnemonic):
        exec_bits = step.regs.scalar(EXEC_LO, 2 if mnemonic.endswith("b64") else 1)
        return _bitwise(mnemonic, sources, bits, exec_bits)
    if scc_undefined:
        return whole
    if mnemonic in MOVES:
        is_second = mnemonic.startswith("s_cselect") and not int(step.regs.words[SCC]) & 1
        return bits[-1] if is_second else bits[0]
    if mnemonic.startswith(SHIFTS) and not bits[1]:
        return _shifted(mnemonic, bits[0], sources[1], width) & whole
    if mnemonic.startswith(UPWARDS):
        return -(merged & -merged) & whole
    return whole if merged else 0


def scalar_alu(step: Step) -> Exit:
    """Execute an SOP1, SOP2, SOPC or SOPK instruction."""
    ins, regs, mnemonic = step.ins, step.regs, step.ins.mnemonic
    function = _function(step, mnemonic)
    tracker = regs.tracker
    computes = tracker is not None and scalar_computes(ins)
    targets = [(one.index, max(one.size_bits // 32, 1)) for one in ins.defs[:1]]
    bits = [_undefined_bits(step, operand) for operand in ins.uses] if computes else []
    sources = [_scalar_source(step, operand, decides=not computes) for operand in ins.uses]
    reads_scc = mnemonic.startswith(READS_SCC)
    undefined = scc_undefined = 0
    if any(bits) or (computes and reads_scc and regs.scc_undefined):
        width = 32 * max([count for _, count in targets], default=1)
        undefined = _computed_bits(step, mnemonic, sources, bits, width)
        if undefined and "exec" in mnemonic:
            regs.refuse_exec(undefined)
        scc_undefined = undefined if BITWISE.fullmatch(mnemonic) else 1
    result, new_scc, *more = function(context(step, ins, regs.exec_lanes()), *sources)
    for index, count in targets:
        if result is not None:
            regs.set_scalar(index, int(result), count, undefined=undefined)
        # A conditional move that may not have moved.
        elif undefined and reads_scc:
            regs.set_scalar(
                index, sum(int(regs.words[index + at]) << 32 * at for at in range(count)), count, undefined=undefined
            )
    if more:
        regs.set_scalar(EXEC_LO, int(more[0]), 2 if mnemonic.endswith("b64") else 1)
    if new_scc is not None:
        regs.scc = int(new_scc)
        # SCC of a bitwise instruction says whether the result is nonzero. One defined bit that is set settles that.
        if scc_undefined and tracker is not None and not (BITWISE.fullmatch(mnemonic) and int(result) & ~undefined):
            tracker.scalars[SCC], tracker.births[SCC] = 1, {0: regs.origin}
    return Exit.NEXT


def _function(step: Step, mnemonic: str) -> Callable[..., Any]:
    function = GCN_VALUES.get(step.ins.generation.name, VALUES).get(mnemonic)
    if function is None:
        raise Unmodelled(f"{mnemonic} at {step.pc:#x}")
    return function


# ---- vector


class _Source:
    """A vector operand as fetched: bits by lane, and its undefined lanes, None if there are none."""

    __slots__ = ("undefined", "value")

    def __init__(self, value: Any, undefined: Lanes | None) -> None:
        self.value, self.undefined = value, undefined


def _repeated(bits: int, operand: Operand, lanes: int) -> Any:
    """Repeat a scalar or constant in all lanes, as wide as the operand."""
    if operand.size_bits == 64:
        return np.full(lanes, bits & 0xFFFF_FFFF_FFFF_FFFF, _U64)
    # Matrices: the same number in every register.
    if operand.size_bits > 64 and operand.type == "f64":
        return np.tile(np.array([bits & 0xFFFF_FFFF, bits >> 32], _U32), (lanes, operand.size_bits // 64))
    if operand.size_bits > 64:
        return np.full((lanes, operand.size_bits // 32), bits & 0xFFFF_FFFF, _U32)
    # op_sel means nothing, or something else, for 32 bits.
    if operand.high and operand.size_bits == 16:
        bits = bits >> 16
    # Quicker than `np.full`.
    values = np.empty(lanes, _U32)
    values.fill(bits & (0xFFFF if operand.size_bits == 16 else 0xFFFF_FFFF))
    return values


def _vector_source(step: Step, operand: Operand, lanes: Lanes) -> _Source:
    if operand.select != WHOLE_DWORD or operand.extends:
        whole = _vector_source(step, replace(operand, size_bits=32, select=WHOLE_DWORD, extends=False), lanes)
        return _Source(selected(operand, whole.value), whole.undefined)
    regs = step.regs
    if operand.kind == "vgpr":
        return _registers(step, operand.index, operand, lanes)
    if operand.type == "mask" and operand.kind == "sgpr":
        words = lanes.size // 32
        computes = regs.tracker is not None
        missing = regs.scalar_undefined(operand.index, words) if computes else 0
        undefined = lanes_of(missing, lanes.size) if missing else None
        return _Source(lanes_of(regs.scalar(operand.index, words, decides=not computes), lanes.size), undefined)
    if operand.kind == "sgpr":
        count = 2 if operand.size_bits == 64 else 1
        undefined = None
        if regs.tracker is not None:
            missing = regs.scalar_undefined(operand.index, count)
            # Code for GCN saves lane masks, some of whose bits are undefined, in lanes of accumulation registers. Such
            # a lane counts as written, as definedness is tracked by lane.
            is_saved = step.ins.generation.is_gcn and step.ins.mnemonic == "v_writelane_b32"
            if missing == 0xFFFF_FFFF if is_saved else missing:
                undefined = np.ones(lanes.size, np.bool_)
        return _Source(_repeated(regs.scalar(operand.index, count, decides=False), operand, lanes.size), undefined)
    bits = special(step, operand) if operand.index < 0 else operand.bits
    if operand.size_bits == 64 and step.ins.mnemonic.startswith(decode.MATRIX_PRODUCTS):
        bits |= bits << 32
    if operand.index >= 0 and operand.high and operand.field == "literal":
        return _Source(np.full(lanes.size, bits & 0xFFFF, _U32), None)
    return _Source(_repeated(bits, operand, lanes.size), None)


def _registers(step: Step, first: int, operand: Operand, lanes: Lanes) -> _Source:
    regs = step.regs
    count = max(operand.size_bits // 32, 1)
    words = [regs.vector(first + at, lanes, decides=False) for at in range(count)]
    undefined = None
    if regs.tracker is not None:
        for at in range(count):
            if some(missing := regs.vector_undefined(first + at)):
                undefined = missing if undefined is None else undefined | missing
    if count == 1:
        value: Any = words[0]
        if operand.size_bits == 16:
            value = value >> _U32(16) if operand.high else value & _U32(0xFFFF)
    elif count == 2:
        value = words[0].astype(_U64) | words[1].astype(_U64) << _U64(32)
    else:
        value = np.stack(words, axis=1)
    return _Source(value, undefined)


def _permuted(ins: Instruction, source: _Source, lanes: Lanes) -> tuple[_Source, Lanes]:
    """Permute a source's lanes by DPP; also return which lanes are written."""
    assert ins.dpp is not None
    way = Permutation(ins.dpp, lanes)
    undefined = None if source.undefined is None else way.valid & source.undefined[way.sources]
    return _Source(way.moved(source.value), undefined), way.written


def vector_alu(step: Step) -> Exit:
    """Execute a vector ALU instruction; both halves of a dual one read before either writes."""
    lanes = step.regs.exec_lanes()
    parts = step.ins.parts or (step.ins,)
    for writes in [_vector(step, part, lanes) for part in parts]:
        for write in writes:
            write()
    return Exit.NEXT


def _vector(step: Step, ins: Instruction, lanes: Lanes) -> Sequence[Callable[[], None]]:
    mnemonic = base_mnemonic(ins.mnemonic)
    if mnemonic in NOTHING:
        return ()
    if ins.generation.is_gcn:
        ins = indexed(step, ins)
    if mnemonic in _RELATIVE:
        return _relative(step, ins, lanes)
    function = _function(step, mnemonic)
    active = np.ones_like(lanes) if mnemonic.startswith(ALL_LANES) else lanes
    ctx = context(step, ins, lanes)
    sources = [_vector_source(step, operand, active) for operand in ins.uses]
    target_lanes = active
    if ins.dpp is not None:
        at = next(number for number, operand in enumerate(ins.uses) if operand.field == "src0")
        sources[at], written = _permuted(ins, sources[at], lanes)
        target_lanes = lanes & written
    undefined = _undefined(step, ins, mnemonic, function, ctx, sources, target_lanes)
    values = [one.value for one in sources]
    if has_modifiers(ins):
        values = [modify(ins, operand, value) for operand, value in zip(ins.uses, values, strict=True)]
    results = function(ctx, *values)
    if not isinstance(results, tuple):
        results = (results,)
    results = (finish(ctx, results[0]), *results[1:])
    # On GCN a comparison that writes EXEC writes VCC or an SGPR too.
    if len(ins.defs) > len(results):
        results *= len(ins.defs)
    if ins.sdwa and ins.defs[0].kind == "vgpr":
        results = (placed(ins, step.regs.wave.vgprs[ins.defs[0].index], results[0]), *results[1:])
    return [
        _writer(step, operand, result, target_lanes, unknown)
        for operand, result, unknown in zip(ins.defs, results, undefined, strict=False)
    ]


def _undefined(
    step: Step,
    ins: Instruction,
    mnemonic: str,
    function: Callable[..., Any],
    ctx: Ctx,
    sources: list[_Source],
    lanes: Lanes,
) -> list[Lanes | None]:
    """Raise if an undefined lane decides something; return which lanes of each result are undefined."""
    results: list[Lanes | None] = [None] * len(ins.defs)
    flags = [one.undefined for one in sources]
    if step.regs.tracker is None or not any(flag is not None and some(flag) for flag in flags):
        return results
    none = np.zeros(lanes.size, np.bool_)
    known = [none if flag is None else flag for flag in flags]
    if mnemonic in HIGH_HALF_PASSES:
        return _high_half(step, ins, known, lanes)
    if mnemonic in WIDE_SHIFTS:
        return [_wide_shift(step, ins, sources[0].value, known)]
    if mnemonic in MATRIX:
        return [_matrix(step, ins, known)]
    if mnemonic in PAIRS:
        return [_pair(step, ins, known)]
    if shape_of(mnemonic) is not None:
        return [_gcn_matrix(step, ins, known)]
    if mnemonic not in MOVES:
        parts, gathered, computed = PART_SOURCES.get(mnemonic, ()), gathered_sources(mnemonic), none
        for operand, flag in zip(ins.uses, known, strict=True):
            if operand.field in parts and (operand.kind == "vgpr" or mnemonic == "v_perm_b32"):
                continue
            if not _computes(step, mnemonic):
                _refuse(step, operand, flag & lanes)
            elif operand.field not in gathered:
                computed = computed | flag
        if mnemonic == "v_perm_b32":
            computed = computed | _without_known_bytes(sources[2].value, known[0], known[1])
        if gathered:
            whole = [flag for operand, flag in zip(ins.uses, known, strict=True) if operand.field in gathered]
            computed = computed | np.logical_and.reduce(whole)
        return [computed & _undefined_before(step, one, mnemonic) for one in ins.defs]
    if mnemonic.startswith("v_cndmask"):
        return [np.where(sources[2].value, known[1], known[0]) | known[2]]
    if mnemonic.startswith("v_swap"):
        return [known[1], known[0]]
    if mnemonic == "v_mov_b64":
        return [np.stack(_undefined_words(step, ins.uses[0], known[0]), axis=1)]
    if mnemonic.startswith("v_mov_"):
        return [known[0]]
    # Lane selectors decide; the flags of moved registers move as their values do.
    by_lane = mnemonic.endswith("_var_b32")
    moved = [
        operand.field == "src0" or (operand.kind == "vgpr" and not (by_lane and operand.field == "src1"))
        for operand in ins.uses
    ]
    for operand, flag, moves in zip(ins.uses, known, moved, strict=True):
        if not moves:
            _refuse(step, operand, flag & lanes if operand.kind == "vgpr" else flag)
    arguments = [
        flag.astype(_U32) if moves else one.value for flag, moves, one in zip(known, moved, sources, strict=True)
    ]
    found = function(ctx, *arguments)
    if isinstance(found, tuple):
        return [one.astype(np.bool_) for one in found]
    return [np.full(lanes.size, bool(found)) if mnemonic in _ONE_LANE else found.astype(np.bool_)]


def _undefined_before(step: Step, target: Operand, mnemonic: str) -> Lanes | bool:
    """Return where a result can be undefined: if it keeps part of its register, only where that was undefined."""
    keeps = target.kind == "vgpr" and (target.size_bits == 16 or mnemonic in PART_SOURCES)
    return step.regs.vector_undefined(target.index) if keeps and mnemonic != "v_perm_b32" else True


def _computes(step: Step, mnemonic: str) -> bool:
    """Return whether undefined operands only make the result undefined, which is not an error yet."""
    tracker = step.regs.tracker
    return tracker is not None and not mnemonic.startswith("v_cmpx")


def _without_known_bytes(selectors: Words, first: Lanes, second: Lanes) -> Lanes:
    """Return the lanes in which a permutation takes only undefined bytes.

    Constants count as defined, unless neither source is defined.
    """
    octets = selectors.view(np.uint8).reshape(-1, 4)
    takes_first, takes_second = (np.isin(octets, one).any(axis=1) for one in (BYTES_OF_FIRST, BYTES_OF_SECOND))
    constant = (octets > LAST_BYTE_TAKEN).any(axis=1) & ~(first & second)
    return (takes_first | takes_second) & ~(takes_first & ~first | takes_second & ~second | constant)


def _high_half(step: Step, ins: Instruction, known: list[Lanes], lanes: Lanes) -> list[Lanes | None]:
    """Return where dwords of the result are undefined.

    Only the high one is if only the high dword of the last source is, since it may be unused.
    """
    *others, last = ins.uses
    low = np.zeros(lanes.size, np.bool_)
    undefined = [(operand, flag) for operand, flag in zip(others, known, strict=False)]
    undefined.append((last, step.regs.vector_undefined(last.index) if last.kind == "vgpr" else known[-1]))
    for operand, flag in undefined:
        if _computes(step, ins.mnemonic):
            low = low | flag
        else:
            _refuse(step, operand, flag & lanes)
    both = np.stack([low, low | known[-1]], axis=1)
    return [both, *[low | known[-1]] * (len(ins.defs) - 1)]


def _wide_shift(step: Step, ins: Instruction, distances: Words, known: list[Lanes]) -> Lanes:
    """Return by lane and word where a 64-bit shift leaves no defined byte."""
    low, high = _undefined_words(step, ins.uses[1], known[1])
    by = distances & _U32(63)
    near, whole = by < 32, by % 8 == 0
    if ins.mnemonic == "v_lshlrev_b64":
        into = np.where(whole, low & high, low | high)
        words = [near & low, np.where(by == 0, high, np.where(near, into, low))]
    else:
        into = np.where(whole & (by != 0), low & high, low)
        words = [np.where(near, into, high), high if ins.mnemonic == "v_ashrrev_i64" else near & high]
    return np.stack([known[0] | one for one in words], axis=1)


def _undefined_words(step: Step, operand: Operand, known: Lanes) -> list[Lanes]:
    """Return where each word of a 64-bit source is undefined."""
    if operand.kind == "vgpr":
        return [step.regs.vector_undefined(operand.index + at) for at in range(2)]
    if operand.kind == "sgpr":
        return [np.full(known.size, bool(step.regs.scalar_undefined(operand.index + at, 1))) for at in range(2)]
    return [known, known]


def _matrix(step: Step, ins: Instruction, known: list[Lanes]) -> Lanes:
    """Return by lane and register what is undefined of a matrix product.

    Raise for undefined elements of C that decide something.
    """
    flags = {operand.field: flag for operand, flag in zip(ins.uses, known, strict=True)}
    is_sparse = ins.mnemonic.startswith("v_swmmac")
    c, d = next(one for one in ins.uses if one.field == ("vdst" if is_sparse else "src2")), ins.defs[0]
    rows = flags["src0"] | flags["src2"] if is_sparse else flags["src0"]
    undefined = undefined_elements(ins, rows, flags["src1"])
    registers = d.size_bits // 32
    # Two elements share a register of RDNA4, which is undefined if both are.
    undefined = np.asarray(undefined.reshape(len(undefined), registers, -1).all(axis=2), np.bool_)
    for at in range(registers) if c.kind == "vgpr" else ():
        added = step.regs.vector_undefined(c.index + at)
        if _computes(step, ins.mnemonic):
            undefined[:, at] |= added
            # The other half of each register is kept.
            if d.type in ("f16", "bf16") and ins.generation.copies_matrices:
                undefined[:, at] &= step.regs.vector_undefined(d.index + at)
        else:
            step.regs.check_lanes(c.index + at, added & ~undefined[:, at])
    return undefined


def _pair(step: Step, ins: Instruction, known: list[Lanes]) -> Lanes:
    """Return by lane and dword what is undefined of a pair: each dword depends on those that op_sel selects."""
    words = [_undefined_words(step, one, flag) for one, flag in zip(ins.uses, known, strict=True)]
    if ins.mnemonic == "v_pk_mov_b32":
        halves = [pair[one.sel[0]] for one, pair in zip(ins.uses, words, strict=True)]
    else:
        halves = [
            np.logical_or.reduce([pair[one.sel[at]] for one, pair in zip(ins.uses, words, strict=True)])
            for at in (0, 1)
        ]
    return np.stack(halves, axis=1)


def _gcn_matrix(step: Step, ins: Instruction, known: list[Lanes]) -> Lanes:
    """Return by lane and register what is undefined of a matrix product of CDNA."""
    shape = shape_of(ins.mnemonic)
    assert shape is not None
    flags = {operand.field: flag for operand, flag in zip(ins.uses, known, strict=True)}
    c, rows = next(one for one in ins.uses if one.field == ("vdst" if shape.is_sparse else "src2")), flags["src0"]
    columns = flags["src1"]
    if shape.is_sparse:
        rows = rows | flags["src2"]
    if "src_scale0" in flags:
        rows, columns = rows | flags["src_scale0"], columns | flags["src_scale1"]
    words, registers = 2 if shape.result == "f64" else 1, ins.defs[0].size_bits // 32
    added = np.zeros((rows.size, registers), np.bool_)
    for at in range(registers) if c.kind == "vgpr" else ():
        added[:, at] = step.regs.vector_undefined(c.index + at)
    pairs = np.asarray(added.reshape(rows.size, -1, words).any(axis=2), np.bool_)
    return np.repeat(undefined_registers(shape, rows, columns, pairs), words, axis=1)


def _refuse(step: Step, operand: Operand, undefined: Lanes) -> None:
    if not some(undefined):
        return
    if operand.kind == "vgpr":
        for index in range(operand.index, operand.index + max(operand.size_bits // 32, 1)):
            step.regs.check_lanes(index, undefined & step.regs.vector_undefined(index))
        raise RuleBroken("uninitialised", f"a lane that v{operand.index} is read from was never written")
    step.regs.scalar(operand.index, 2 if operand.size_bits == 64 else 1)


def _writer(step: Step, operand: Operand, result: Any, lanes: Lanes, undefined: Lanes | None) -> Callable[[], None]:
    regs = step.regs
    if operand.type == "mask":
        bits = mask_of(result & lanes)
        missing = 0 if undefined is None else mask_of(undefined & lanes)
        return lambda: regs.set_scalar(operand.index, bits, lanes.size // 32, undefined=missing)
    if operand.kind == "sgpr":
        # A scalar function of the vector ALU has computed it in all lanes.
        first = int(np.ravel(result)[0]) & (0xFFFF if operand.type == "f16" else 0xFFFF_FFFF)
        return lambda: regs.set_scalar(
            operand.index, first, undefined=-1 if undefined is not None and undefined[0] else 0
        )
    return lambda: write_vector(step, operand, operand.index, result, lanes, undefined)


def write_vector(step: Step, operand: Operand, first: int, result: Any, lanes: Lanes, undefined: Lanes | None) -> None:
    """Write a result of any width to VGPRs from `first` up; 16-bit results keep the register's other half."""
    regs = step.regs
    if operand.size_bits == 64:
        regs.vector_fits(first, 2)
        for at in range(2):
            word = (result >> _U64(32 * at) & _U64(0xFFFF_FFFF)).astype(_U32)
            regs.set_vector(first + at, word, lanes, undefined=_of_register(undefined, at))
    elif operand.size_bits > 64:
        for at in range(result.shape[1]):
            regs.set_vector(first + at, result[:, at], lanes, undefined=_of_register(undefined, at))
    elif operand.size_bits == 16:
        if regs.vector_fits(first):
            old = regs.wave.vgprs[first]
            result = result & _U32(0xFFFF)
            merged = old & _U32(0xFFFF) | result << _U32(16) if operand.high else old & _U32(0xFFFF_0000) | result
            regs.set_vector(first, merged, lanes, undefined=undefined)
    else:
        regs.set_vector(first, result, lanes, undefined=undefined)


def _of_register(undefined: Lanes | None, at: int) -> Lanes | None:
    """Return one register's undefined lanes; `undefined` is by lane and register, or the same for all registers."""
    return undefined if undefined is None or undefined.ndim == 1 else undefined[:, at]


def _relative(step: Step, ins: Instruction, lanes: Lanes) -> Sequence[Callable[[], None]]:
    """v_movrel* and v_swaprel_b32: M0 offsets the register numbers. Source: RDNA3 ISA reference, "VGPR Indexing"."""
    regs, m0 = step.regs, step.regs.scalar(M0)
    by_source, by_target = _RELATIVE[base_mnemonic(ins.mnemonic)](m0)
    operand, target = next(one for one in ins.uses if one.field == "src0"), ins.defs[0]
    first = operand.index + by_source
    to = target.index + by_target
    if operand.kind != "vgpr":
        source = _vector_source(step, operand, lanes)
    else:
        source = _registers(step, first if regs.vector_fits(first) else 0, operand, lanes)
    target_lanes = lanes
    if ins.dpp is not None:
        source, written = _permuted(ins, source, lanes)
        target_lanes = lanes & written
    if not regs.vector_fits(to):
        return ()
    moved: Words = source.value.copy()
    writes = [lambda: write_vector(step, target, to, moved, target_lanes, source.undefined)]
    if ins.mnemonic.startswith("v_swaprel"):
        other = _registers(step, to, target, lanes)
        back: Words = other.value.copy()
        writes.append(lambda: write_vector(step, target, first, back, lanes, other.undefined))
    return writes


# By mnemonic: how far M0 moves source and destination.
_RELATIVE: dict[str, Callable[[int], tuple[int, int]]] = {
    "v_movreld_b32": lambda m0: (0, m0),
    "v_movrels_b32": lambda m0: (m0, 0),
    "v_movrelsd_b32": lambda m0: (m0, m0),
    "v_movrelsd_2_b32": lambda m0: (m0 & 0x3FF, m0 >> 16 & 0x3FF),
    "v_swaprel_b32": lambda m0: (m0 & 0x3FF, m0 >> 16 & 0x3FF),
}
