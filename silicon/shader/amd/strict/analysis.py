"""Prove strict rules before a program runs: registers are written before use, loads are waited for before use.

What holds on every path needs no check at run time. The rest is listed by instruction, and generated code checks
those registers there.

A VGPR is written lane by lane, under masks. So the analysis tracks, for every scalar that is a lane mask (EXEC, saved
copies of it, comparison results), the VGPRs that are written in all of its lanes. Narrowing a mask keeps them, `a | b`
has those of both, and a write under EXEC adds to those of EXEC.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from ringup.silicon.shader.amd.decoding.analysis import ALL, FIRST_VGPR, M0_BIT, SCC_BIT, effects, numbers, registers
from ringup.silicon.shader.amd.decoding.cfg import is_interrupt
from ringup.silicon.shader.amd.decoding.decode import CDNA_PRODUCTS, MATRIX_PRODUCTS, remembered, waitcnt
from ringup.silicon.shader.amd.decoding.memory_effects import (
    BLOCKS,
    HALVES,
    LOW_HALF,
    OWN_MEMORY,
    MemoryEffects,
    changes_lds,
    loaded_half,
    memory_effects,
    touched_halves,
)
from ringup.silicon.shader.amd.strict.history import IN_ORDER, PART_SOURCES, scalar_computes
from ringup.silicon.shader.amd.strict.indirect import is_indirect, moves, reached
from ringup.silicon.shader.amd.writer import dpp
from ringup.silicon.shader.common import state

if TYPE_CHECKING:
    from ringup.silicon.shader.amd.decoding.cfg import Block, Key, Step
    from ringup.silicon.shader.amd.decoding.decode import Instruction, Operand
    from ringup.silicon.shader.amd.decoding.generations import Generation, Order

SCALARS = (1 << FIRST_VGPR) - 1
# Nothing of these is in flight.
ALU_FORMATS = frozenset(
    ("VOP1", "VOP2", "VOPC", "VOP3", "VOP3SD", "VOP3P", "VOP3P-MAI", "VOPD", "VOPDX", "VOPDY", "SOP2", "SOPC", "SOPK")
)
# Instructions that only pass values on: an undefined value is not an error there yet.
PASSES = frozenset(
    ("s_mov_b32", "s_mov_b64", "s_cmov_b32", "s_cmov_b64", "s_cselect_b32", "s_cselect_b64", "v_mov_b32", "v_mov_b16", "v_readlane_b32",
     "v_readfirstlane_b32", "v_writelane_b32", "v_permlane16_b32", "v_permlanex16_b32", "v_permlane16_var_b32",
     "v_permlanex16_var_b32", "v_permlane64_b32", "v_cndmask_b32",
     "v_cndmask_b16", "v_swap_b32", "v_swap_b16", "v_dual_mov_b32", "v_dual_cndmask_b32", "v_mov_b64", "v_accvgpr_read_b32",
     "v_accvgpr_write_b32", "v_accvgpr_mov_b32", "v_permlane16_swap_b32", "v_permlane32_swap_b32")
)  # fmt: skip
# Bitwise instructions: each bit is defined on its own, as loop masks need it. Those with `_TO_EXEC` in their names
# write EXEC, where every bit decides.
LOGIC = ("and", "or", "xor", "nand", "nor", "xnor", "and_not1", "or_not1", "not")
_BITWISE = frozenset(f"s_{name}_b{width}" for name in LOGIC for width in (32, 64))
# Pairs of f32 of CDNA: each dword of the result has its own sources.
PAIRS = frozenset(("v_pk_fma_f32", "v_pk_mul_f32", "v_pk_add_f32", "v_pk_mov_b32"))
# The high half of their last source affects only the high half of the result.
_HIGH_HALF_PASSES = frozenset(("v_mad_u64_u32", "v_mad_i64_i32"))
READS_INACTIVE = "ds_bpermute_fi_b32"
LANE_MOVES = frozenset(("ds_bpermute_b32", "ds_permute_b32", "ds_swizzle_b32", READS_INACTIVE))
_TO_EXEC = tuple(f"{name}exec_b{width}" for name in ("save", "wr") for width in (32, 64))
EXEC_WORDS = (state.EXEC_LO, state.EXEC_HI)
PRODUCTS = (*MATRIX_PRODUCTS, *CDNA_PRODUCTS)
# These read inactive lanes too.
ALL_LANES = (*PRODUCTS, "v_readlane", "v_permlane", READS_INACTIVE)
# The vector ALU's functions of scalars.
PSEUDO_SCALAR = "v_s_"


# The card answers these, with a value or without.
_ANSWERED = ("s_sendmsg", "s_get_barrier_state")
# The entry in `Facts.flying` for stores to LDS in flight.
LDS_STORED = FIRST_VGPR + 3 * LOW_HALF


class Pending(NamedTuple):
    """One reason why a register is in flight: the counter, and the kind of operation.

    `in_order`: operations of this kind return in order.
    """

    counter: str
    kind: str
    in_order: bool
    largest: int  # value of the counter


def _pending(order: Order, of: Generation) -> tuple[Pending, ...]:
    return tuple(
        Pending(f"{counter}cnt", kind, kind in IN_ORDER, of.counters[counter]) for counter, kind in order.items()
    )


class Issue(NamedTuple):
    """What a memory instruction puts in flight."""

    fills: int  # registers; halves of them offset by `memory_effects.HALVES`
    waits: tuple[Pending, ...]
    cost: int


@dataclass(slots=True)
class Reads:
    """Registers that an instruction reads, by the effect of undefined ones."""

    decide: int  # must be written in the active lanes
    decide_everywhere: int  # must be written in all lanes, or in those that DPP reads
    moves: tuple[tuple[int, tuple[int, ...]], ...]  # target, sources: undefined where a source is undefined
    # At least one of them must be written in each active lane: part of a wide store may be padding.
    stored: int = 0


class _Constant(NamedTuple):
    """What analysis needs to know about an instruction, wherever it is."""

    is_indirect: bool
    limits: tuple[tuple[str, int], ...]
    issue: Issue | None
    reads: Reads
    moves: tuple[tuple[int, int], ...]  # target and sources as sets
    everywhere: bool  # a source is read in inactive lanes
    scalars: int  # written
    vectors: int  # written in all active lanes, lanes that DPP may skip excepted
    lds_fills: int
    lds_data: tuple[int, ...]


@remembered
def _constant(ins: Instruction, lanes: int) -> _Constant:
    what = reads(ins, lanes)
    sets = {sources: sum(1 << one for one in set(sources)) for _, sources in what.moves}
    moved = tuple((1 << target, sets[sources]) for target, sources in what.moves)
    defs = effects(ins, lanes).defs
    # v_writelane writes one lane, whatever the masks are. M0 selects the registers of a block.
    vectors = 0 if ins.mnemonic == "v_writelane_b32" or ins.mnemonic in BLOCKS else defs & ~SCALARS
    return _Constant(
        is_indirect(ins), tuple(limits(ins).items()), issue(ins, lanes), what, moved,
        any(_reads_inactive(ins, operand) for operand in ins.uses), defs & SCALARS, vectors,
        sum(1 << one for one in lds_fills(ins)), lds_data(ins),
    )  # fmt: skip


@dataclass(slots=True)
class Facts:
    """What holds on every path to a point of the program."""

    sure: int  # scalars written, VGPRs written in all lanes
    # lane mask (number of its first scalar): VGPRs written in all its lanes, if more than in `sure`
    masks: dict[int, int]
    # registers that may be in flight, with the smallest number of operations issued since
    flying: dict[int, dict[Pending, int]]

    def written_in(self, mask: int) -> int:
        """Return the VGPRs that are written in all lanes of a mask."""
        return self.masks.get(mask, 0) | self.sure

    def copy(self) -> Facts:
        """Return an independent copy."""
        return Facts(self.sure, dict(self.masks), {one: dict(why) for one, why in self.flying.items()})

    def meet(self, other: Facts) -> bool:
        """Keep what holds in both; return whether that changes `self`."""
        sure = self.sure & other.sure
        masks = {}
        for one in self.masks.keys() | other.masks.keys():
            both = self.written_in(one) & other.written_in(one)
            if both & ~sure:
                masks[one] = both
        flying = {one: dict(why) for one, why in self.flying.items()}
        for one, why in other.flying.items():
            mine = flying.setdefault(one, {})
            for pending, behind in why.items():
                mine[pending] = min(behind, mine.get(pending, behind))
        changed = (sure, masks, flying) != (self.sure, self.masks, self.flying)
        self.sure, self.masks, self.flying = sure, masks, flying
        return changed


@dataclass(slots=True)
class Findings:
    """What could not be proven, by block and instruction, and the registers that generated code must track."""

    unproven: dict[Key, list[int]] = field(default_factory=dict)  # may be unwritten where they decide
    unwaited: dict[Key, list[int]] = field(default_factory=dict)  # may be in flight
    stored: dict[Key, int] = field(default_factory=dict)  # may be unwritten where they are stored to LDS
    shadowed: int = 0
    flying: int = 0
    # registers of moves that are certainly written in the lanes read
    sure: dict[tuple[Key, int], int] = field(default_factory=dict)


def analyse(
    blocks: dict[Key, Block], entries: dict[Key, int], full: dict[Key, list[bool]], lanes: int, *, tracked: bool = False
) -> Findings:
    """Find what must be checked at run time.

    `entries` maps each entry block to the registers that are written there, ALL if unknown. Data from LDS counts as
    written, unless LDS is `tracked`.
    """
    found = Findings()
    start: dict[Key, Facts] = {key: Facts(sure, {}, {}) for key, sure in entries.items()}
    work = list(entries)
    while work:
        key = work.pop()
        block, facts = blocks[key], start[key].copy()
        # The last time is with what holds on every path.
        _examine(found, block, facts, full[key], lanes, tracked=tracked)
        for index, one in enumerate(block.successors):
            there = facts.copy()
            _learn(there, block, taken=index == 0)
            have = start.get(one)
            if have is None:
                start[one] = there
            elif not have.meet(there):
                continue
            if one not in work:
                work.append(one)
    for key, block in blocks.items():
        if key not in start:
            _examine(found, block, Facts(ALL, {}, {}), full[key], lanes, tracked=tracked)
        for some in found.unproven[key]:
            found.shadowed |= some
        for some in found.unwaited[key]:
            found.flying |= some
        found.shadowed |= found.stored[key]
    _close(found, blocks, lanes)
    return found


def _examine(found: Findings, block: Block, facts: Facts, full: list[bool], lanes: int, *, tracked: bool) -> None:
    """Note what cannot be proven in a block, and change `facts` to those at its end."""
    key = block.key
    unproven: list[int] = []
    unwaited: list[int] = []
    unwritten = 0
    for index, (step, all_lanes) in enumerate(zip(block.code, full, strict=True)):
        fixed = _constant(step.ins, lanes)
        what = fixed.reads
        active = facts.written_in(state.EXEC_LO)
        found.sure[key, index] = facts.sure if fixed.everywhere else active
        stored = 0 if what.stored & active else what.stored
        moved = into_exec(step.ins, lanes) & ~facts.sure if fixed.is_indirect else 0
        unproven.append(what.decide & ~active | what.decide_everywhere & ~facts.sure | stored | moved)
        unwaited.append(_touched(step, facts, lanes) if facts.flying else 0)
        for register in fixed.lds_data:
            unwritten |= 1 << register & ~active
        advance(facts, step, all_lanes=all_lanes, lanes=lanes, tracked=tracked)
    found.unproven[key], found.unwaited[key], found.stored[key] = unproven, unwaited, unwritten


def into_exec(ins: Instruction, lanes: int) -> int:
    """Return the source registers of moves by M0 that may write EXEC."""
    found = 0
    for target, source in moves(ins):
        if source is not None and any(target.reached(lanes) >> one & 1 for one in EXEC_WORDS):
            found |= source.reached(lanes)
    return found


def _close(found: Findings, blocks: dict[Key, Block], lanes: int) -> None:
    """Track also the registers whose values flow into tracked registers."""
    before = 0
    while before != found.shadowed:
        before = found.shadowed
        for key, block in blocks.items():
            for index, step in enumerate(block.code):
                for target, sources in _constant(step.ins, lanes).moves:
                    if found.shadowed & target:
                        found.shadowed |= sources & ~found.sure[key, index]
                for move in moves(step.ins):
                    if move.source is not None and found.shadowed & move.target.reached(lanes):
                        found.shadowed |= move.source.reached(lanes) & ~found.sure[key, index]


@remembered
def reads(ins: Instruction, lanes: int) -> Reads:
    """Classify the registers that an instruction reads by the effect of undefined values."""
    if not ins.parts:
        return _part_reads(ins, lanes)
    found = Reads(0, 0, ())
    for part in ins.parts:
        one = _part_reads(part, lanes)
        everywhere = found.decide_everywhere | one.decide_everywhere
        found = Reads(found.decide | one.decide, everywhere, (*found.moves, *one.moves), one.stored)
    return found


def _part_reads(ins: Instruction, lanes: int) -> Reads:
    name = ins.mnemonic
    if name in LANE_MOVES:
        return _exchange(ins)
    if name == "s_alloc_vgpr":
        return Reads(0, 0, ())
    memory = memory_effects(ins)
    if memory is not None:
        return _memory(ins, memory, lanes)
    implicit = _implicit(ins, lanes)
    # `moves` has what the instruction moves.
    if is_indirect(ins):
        return Reads(M0_BIT, 0, ())
    if name.startswith("s_subvector_loop"):
        return Reads(0, 0, ())
    if computes(name) and not name.startswith("v_cmpx"):
        return _computed(ins, lanes)
    if name in _BITWISE:
        return _bitwise(ins, lanes)
    if name.startswith(PRODUCTS):
        return _matrix(ins, lanes)
    if name in PASSES:
        return _passing(ins, implicit, lanes)
    if scalar_computes(ins) and not name.endswith(_TO_EXEC):
        return _scalar_computed(ins, implicit, lanes)
    wanted, everywhere = implicit, 0
    for operand in ins.uses:
        wanted |= registers(operand, lanes)
        everywhere |= registers(operand, lanes) if _reads_inactive(ins, operand) else 0
    return Reads(wanted & ~everywhere, everywhere, ())


def _exchange(ins: Instruction) -> Reads:
    """Classify a lane exchange through the LDS crossbar: the data is passed on, the lane numbers decide."""
    source = "addr" if ins.mnemonic == "ds_swizzle_b32" else "data0"
    decide = 0
    data: tuple[int, ...] = ()
    for operand in ins.uses:
        if operand.field == source:
            data = (operand.index + FIRST_VGPR,)
        elif operand.kind == "vgpr":
            decide |= 1 << operand.index + FIRST_VGPR
    return Reads(decide, 0, ((ins.defs[0].index + FIRST_VGPR, data),))


def _memory(ins: Instruction, memory: MemoryEffects, lanes: int) -> Reads:
    """Classify a memory instruction: addresses decide, and so does stored data and the operand of an atomic."""
    wanted = data = kept = 0
    for one in memory.address:
        wanted |= 1 << one
    for one in memory.data:
        data |= 1 << one
    for operand in ins.operands if memory.keeps else ():
        kept |= registers(operand, lanes) if operand.direction == "both" else 0
    if not is_store(ins):
        return Reads((wanted | data) & ~kept, 0, ())
    # A block may hold registers that the program does not use.
    is_own = ins.format in OWN_MEMORY or ins.mnemonic in BLOCKS
    return Reads(wanted & ~kept, 0, (), 0 if is_own else data)


def is_store(ins: Instruction) -> bool:
    """Return whether a memory instruction stores registers unchanged."""
    return "_store_" in ins.mnemonic


def _computed(ins: Instruction, lanes: int) -> Reads:
    """Classify a vector computation: a lane computed from undefined values is undefined."""
    by_target = {}
    parts = () if ins.mnemonic == "v_perm_b32" else PART_SOURCES.get(ins.mnemonic, ())
    halves = ins.mnemonic in _HIGH_HALF_PASSES
    sources = low = decide = 0
    for operand in ins.uses:
        found = registers(operand, lanes)
        if operand.kind != "vgpr" or operand.field not in parts:
            sources |= found
            is_last = halves and operand is ins.uses[-1] and operand.kind == "vgpr"
            low |= 1 << operand.index + FIRST_VGPR if is_last else found
    every = tuple(numbers(sources))
    for target in ins.defs:
        if target.kind == "sgpr" and target.index in EXEC_WORDS:
            decide = sources
        for one in numbers(registers(target, lanes)):
            by_target[one] = every
    if halves:
        by_target[ins.operands[0].index + FIRST_VGPR] = tuple(numbers(low))
    if ins.mnemonic in PAIRS:
        by_target = {ins.defs[0].index + FIRST_VGPR + at: _selected(ins, at) for at in (0, 1)}
    return Reads(decide, 0, tuple(by_target.items()))


def _selected(ins: Instruction, half: int) -> tuple[int, ...]:
    """Return the registers from which a dword of a pair of f32 is computed: those that op_sel selects."""
    if ins.mnemonic == "v_pk_mov_b32":
        taken = [(ins.uses[half], ins.uses[half].sel[0])]
    else:
        taken = [(operand, operand.sel[half]) for operand in ins.uses]
    found = [(first + is_high) for operand, is_high in taken if (first := _first(operand)) is not None]
    return tuple(dict.fromkeys(found))


def _scalar_computed(ins: Instruction, implicit: int, lanes: int) -> Reads:
    """Classify a scalar computation: results of undefined bits are undefined, SCC too."""
    sources = implicit
    for operand in ins.uses:
        sources |= registers(operand, lanes)
    found = effects(ins, lanes).defs & SCALARS
    into_exec = any(found >> one & 1 for one in EXEC_WORDS)
    return Reads(sources if into_exec else 0, 0, tuple((one, tuple(numbers(sources))) for one in numbers(found)))


def _reads_inactive(ins: Instruction, operand: Operand) -> bool:
    """Return whether a source is read in inactive lanes."""
    if operand.kind != "vgpr":
        return False
    by_dpp = ins.dpp is not None and ins.dpp.fetch_inactive and operand.field == "src0"
    # The address of an exchange names a lane, in active lanes only.
    return by_dpp or (ins.mnemonic.startswith(ALL_LANES) and operand.field != "addr")


def _matrix(ins: Instruction, lanes: int) -> Reads:
    """Classify a matrix product: a row of A (and of a sparse product's index) and a column of B affect their row and
    column of D, an element of C its own.
    """
    operands = matrix_operands(ins)
    sources = 0
    for one in (*operands.rows, *operands.columns):
        sources |= registers(one, lanes)
    return _matrix_moves(ins, tuple(numbers(sources)), tuple(numbers(registers(operands.added, lanes))), lanes)


class MatrixOperands(NamedTuple):
    """The sources of a matrix product: A with its index if it is sparse, B, and C. A and B may have scales."""

    rows: tuple[Operand, ...]
    columns: tuple[Operand, ...]
    added: Operand


def matrix_operands(ins: Instruction) -> MatrixOperands:
    """Return the sources of a matrix product. A sparse one adds to D, and src2 is its index."""
    by_field = {one.field: one for one in ins.uses}
    if ins.mnemonic.startswith(("v_swmmac", "v_smfmac")):
        return MatrixOperands((by_field["src0"], by_field["src2"]), (by_field["src1"],), by_field["vdst"])
    rows, columns = (tuple(by_field[one] for one in (f"src{at}", f"src_scale{at}") if one in by_field) for at in (0, 1))
    return MatrixOperands(rows, columns, by_field["src2"])


def _matrix_moves(ins: Instruction, sources: tuple[int, ...], added: tuple[int, ...], lanes: int) -> Reads:
    # An element of f64 has two registers.
    words = 2 if ins.defs[0].type == "f64" else 1
    moves = tuple(
        (one, sources + added[at // words * words : at // words * words + words])
        for at, one in enumerate(numbers(registers(ins.defs[0], lanes)))
    )
    return Reads(0, 0, moves)


def _bitwise(ins: Instruction, lanes: int) -> Reads:
    words = 2 if ins.mnemonic.endswith("64") else 1
    firsts = [one for one in map(_first, ins.uses) if one is not None]
    every = tuple(one + word for one in firsts for word in range(words))
    target = _first(ins.operands[0])
    moves = [(state.SCC, every)]
    if target is None:
        return Reads(0, 0, tuple(moves))
    moves += [(target + word, tuple(one + word for one in firsts)) for word in range(words)]
    wanted = 0
    for operand in ins.uses if target in EXEC_WORDS else ():
        wanted |= registers(operand, lanes)
    return Reads(wanted, 0, tuple(moves))


def _passing(ins: Instruction, implicit: int, lanes: int) -> Reads:
    name, wanted = ins.mnemonic, 0
    sources = []
    # Inputs that select: a lane mask, SCC.
    masks = implicit
    for operand in ins.uses:
        if operand.type == "mask":
            masks |= registers(operand, lanes)
            continue
        if operand.field in ("src1", "src2") and name.startswith(("v_readl", "v_writel", "v_perml")):
            wanted |= registers(operand, lanes)
        else:
            sources.append(operand)
    if name == "v_writelane_b32":
        sources = [one for one in sources if one.kind != "vgpr"]
    if name.startswith("v_swap"):
        a, b = ins.operands[0].index + FIRST_VGPR, ins.operands[1].index + FIRST_VGPR
        return Reads(wanted, 0, ((a, (b,)), (b, (a,))))
    if name.endswith("_swap_b32"):
        both = tuple(one.index + FIRST_VGPR for one in ins.operands)
        return Reads(0, 0, tuple((one, both) for one in both))
    moves = []
    for target in ins.defs:
        first = _first(target)
        if first is None:
            continue
        for word in range(max(target.size_bits // 32, 1)):
            found = [one + word for one in map(_first, sources) if one is not None]
            moves.append((first + word, (*found, *numbers(masks))))
            if first in EXEC_WORDS:
                wanted |= masks
                for operand in sources:
                    wanted |= registers(operand, lanes)
    return Reads(wanted, 0, tuple(moves))


def _first(operand: Operand) -> int | None:
    if operand.kind == "vgpr":
        return operand.index + FIRST_VGPR
    return operand.index if operand.kind == "sgpr" and operand.index != state.NULL else None


def _implicit(ins: Instruction, lanes: int) -> int:
    name, found = ins.mnemonic, 0
    if name.startswith(("s_addc", "s_subb", "s_cselect", "s_cmov", "s_cbranch_scc")):
        found |= SCC_BIT
    if name.startswith("s_cbranch_vcc"):
        found |= (1 << lanes // 32) - 1 << state.VCC_LO
    if ins.format == "LDSDIR" or is_interrupt(ins):
        found |= M0_BIT
    return found


def issue(ins: Instruction, lanes: int) -> Issue | None:
    """Return what an instruction puts in flight; None if nothing."""
    if ins.format in ALU_FORMATS:
        return None
    fills = 0
    orders = ins.generation.orders
    if ins.mnemonic.startswith(_ANSWERED) or ins.format == "LDSDIR":
        for operand in ins.defs:
            fills |= registers(operand, lanes)
        order = orders.direct if ins.format == "LDSDIR" else orders.reply if fills else orders.message
        return Issue(
            fills, _pending(order, ins.generation), 2 if fills & SCALARS and ins.mnemonic.startswith("s_sendmsg") else 1
        )
    memory = memory_effects(ins)
    if memory is None or not memory.order:
        return None
    half = loaded_half(ins)
    for one in memory.fills:
        fills |= 1 << one + half
    if changes_lds(ins):
        fills |= 1 << LDS_STORED
    return Issue(fills, _pending(memory.order, ins.generation), memory.increment)


def limits(ins: Instruction) -> dict[str, int]:
    """Return, for a wait instruction, the largest number of operations left by counter.

    Source: RDNA3 ISA reference, "S_WAITCNT"; RDNA4 ISA reference, "S_WAIT_LOADCNT" and the like.
    """
    name = ins.mnemonic
    if not name.startswith("s_"):
        return {}
    # RDNA4's s_waitcnt waits for everything.
    if name in ("s_wait_idle", "s_trap") or (name == "s_waitcnt" and "vm" not in ins.generation.counters):
        return {f"{counter}cnt": 0 for counter in ins.generation.counters}
    found = {}
    if name == "s_waitcnt":
        found["vmcnt"], found["expcnt"], found["lgkmcnt"] = waitcnt(ins.fields["simm16"], ins.generation)
    elif name.startswith("s_waitcnt_") and name != "s_waitcnt_depctr":
        found[name.removeprefix("s_waitcnt_")] = ins.fields["simm16"] & 0x3F
    elif name.startswith("s_wait_") and name.endswith("cnt"):
        # The second of two counters has the low byte.
        names, limit = name.removeprefix("s_wait_").split("_"), ins.fields["simm16"]
        found = dict(zip(names, (limit,) if len(names) == 1 else (limit >> 8, limit & 0xFF), strict=True))
    largest = ins.generation.counters
    return {counter: limit for counter, limit in found.items() if limit < largest.get(counter.removesuffix("cnt"), 0)}


def _touched(step: Step, facts: Facts, lanes: int) -> int:
    """Return the registers of an instruction that may be in flight, except those of loads that return in the same
    order.
    """
    if not facts.flying:
        return 0
    if step.what in ("barrier", "signal"):
        return 1 << LDS_STORED if LDS_STORED in facts.flying else 0
    found = 0
    touched = reached(step.ins, lanes) if is_indirect(step.ins) else step.effects.uses | step.effects.defs
    near = [one for one in facts.flying if one != LDS_STORED and touched >> split(one)[0] & 1]
    if not near:
        return 0
    own = issue(step.ins, lanes)
    # A D16 load does not read the kept half at issue: hardware merges the loaded half when the load returns.
    read = 0
    for operand in step.ins.operands:
        read |= registers(operand, lanes) if operand.direction == "use" else 0
    halves = touched_halves(step.ins) if max(near) >= FIRST_VGPR + LOW_HALF else {}
    for one in near:
        why = facts.flying[one]
        register, half = split(one)
        if half and halves.get(register - FIRST_VGPR, half) != half:
            continue
        again = (
            own is not None and any(own.fills >> register + at & 1 for at in (0, *HALVES)) and not read >> register & 1
        )
        if again and own is not None and set(why) == set(own.waits) and all(pending.in_order for pending in why):
            continue
        found |= 1 << one
    return found


def split(one: int) -> tuple[int, int]:
    """Return the register of an entry in `flying`, and which half of it, 0 for all."""
    if one < FIRST_VGPR + LOW_HALF:
        return one, 0
    half = (one - FIRST_VGPR) // LOW_HALF * LOW_HALF
    return one - half, half


def computes(name: str) -> bool:
    """Return whether each lane of an instruction computes its own result."""
    return name.startswith("v_") and name not in PASSES and not name.startswith(PRODUCTS)


def lds_data(ins: Instruction) -> tuple[int, ...]:
    """Return the registers that an instruction stores to LDS, in order."""
    memory = memory_effects(ins)
    return memory.data if memory is not None and memory.unit == "lds" and "store" in ins.mnemonic else ()


def lds_fills(ins: Instruction) -> tuple[int, ...]:
    """Return the registers that an instruction loads from LDS, in order."""
    memory = memory_effects(ins)
    return memory.fills if memory is not None and memory.unit == "lds" and "load" in ins.mnemonic else ()


def advance(facts: Facts, step: Step, *, all_lanes: bool, lanes: int, tracked: bool) -> None:
    """Update `facts` for one instruction."""
    ins = step.ins
    fixed = _constant(ins, lanes)
    if fixed.is_indirect:
        _advance_by_m0(facts, ins, all_lanes=all_lanes, lanes=lanes)
        return
    if fixed.limits or fixed.issue is not None:
        _advance_flight(facts, fixed)
    if not step.effects.defs:
        return
    if all_lanes:
        facts.sure |= facts.masks.get(state.EXEC_LO, 0)
    scalars, vectors = fixed.scalars, fixed.vectors
    if ins.dpp is not None and dpp.may_skip(ins.dpp, lanes, full=all_lanes):
        vectors = 0
    unsure = ~(facts.sure if fixed.everywhere else facts.written_in(state.EXEC_LO))
    undefined = fixed.lds_fills if tracked else 0
    for target, sources in fixed.moves:
        if sources & unsure:
            undefined |= target
    masks = _masks_after(facts, ins, lanes) if scalars else {}
    facts.sure |= scalars
    if vectors:
        if all_lanes:
            facts.sure |= vectors
        facts.masks[state.EXEC_LO] = facts.masks.get(state.EXEC_LO, 0) | vectors
    if scalars:
        for one in [one for one in facts.masks if (scalars >> one) & (1 if lanes == 32 else 3)]:
            if one != state.EXEC_LO or scalars >> one & 1:
                del facts.masks[one]
        facts.masks.update(masks)
    if undefined:
        facts.sure &= ~undefined
        facts.masks = {one: written & ~undefined for one, written in facts.masks.items()}


def _advance_by_m0(facts: Facts, ins: Instruction, *, all_lanes: bool, lanes: int) -> None:
    """Update `facts` for a move by M0: every possible target is undefined if a possible source is."""
    active = facts.written_in(state.EXEC_LO)
    targets = undefined = 0
    for target, source in moves(ins):
        targets |= target.reached(lanes)
        if source is not None and source.reached(lanes) & ~active:
            undefined |= target.reached(lanes)
        elif target.bits is None and ins.dpp is None:
            surely = target.reached(lanes)
            facts.masks[state.EXEC_LO] = facts.masks.get(state.EXEC_LO, 0) | surely & ~SCALARS
            facts.sure |= surely if all_lanes else surely & SCALARS
    facts.sure &= ~undefined
    facts.masks = {
        one: written & ~undefined
        for one, written in facts.masks.items()
        if one == state.EXEC_LO or not targets >> one & 1
    }


def _advance_flight(facts: Facts, fixed: _Constant) -> None:
    for counter, limit in fixed.limits:
        for one, why in list(facts.flying.items()):
            left = {
                pending: behind
                for pending, behind in why.items()
                if pending.counter != counter or limit >= (behind if pending.in_order else 1)
            }
            if left:
                facts.flying[one] = left
            else:
                del facts.flying[one]
    new = fixed.issue
    if new is None:
        return
    for one, why in list(facts.flying.items()):
        for pending in [pending for pending in why if pending in new.waits and pending.in_order]:
            why[pending] += new.cost
            # Hardware waits by itself when a counter is full.
            if why[pending] > pending.largest:
                del why[pending]
        if not why:
            del facts.flying[one]
    for one in numbers(new.fills):
        facts.flying[one] = dict.fromkeys(new.waits, new.cost)


def _masks_after(facts: Facts, ins: Instruction, lanes: int) -> dict[int, int]:
    """Return, for each lane mask that an instruction writes, the VGPRs written in all its lanes."""
    active = facts.written_in(state.EXEC_LO)
    if ins.format not in ("SOP1", "SOP2"):
        # Bits of inactive lanes are 0.
        return {one.index: active for one in ins.defs if one.type == "mask" and one.kind == "sgpr"}
    if not ins.mnemonic.endswith(f"_b{lanes}") or not ins.operands or ins.operands[0].kind != "sgpr":
        return {}
    target = ins.operands[0].index
    a, *rest = [_written(facts, one, lanes) for one in ins.operands[1:]] or [0]
    b = rest[0] if rest else 0
    name = ins.mnemonic.removeprefix("s_").removesuffix(f"_b{lanes}")
    by_name = {
        "mov": a, "and": a | b, "or": a & b, "xor": a & b, "and_not1": a, "cselect": a & b,
    }  # fmt: skip
    if name in by_name:
        return {target: by_name[name]}
    changed = {
        "and_saveexec": a | active, "or_saveexec": a & active, "xor_saveexec": a & active, "and_not1_saveexec": a,
        "and_not0_saveexec": active, "and_not1_wrexec": a, "and_not0_wrexec": active,
    }.get(name)  # fmt: skip
    if name.endswith("wrexec") and changed is not None:
        return {target: changed, state.EXEC_LO: changed}
    if name.endswith("saveexec"):
        return {target: active, state.EXEC_LO: facts.sure if changed is None else changed}
    return {}


def _written(facts: Facts, operand: Operand, lanes: int) -> int:
    if operand.kind == "constant":
        return ALL if operand.bits == 0 and operand.index == 0 else facts.sure
    return facts.written_in(operand.index) if operand.kind == "sgpr" else facts.sure


def _learn(facts: Facts, block: Block, *, taken: bool) -> None:
    """Record that a mask is empty after a branch on it: every VGPR is written in all of its zero lanes."""
    if block.ending != "branch":
        return
    name = block.code[-1].ins.mnemonic
    for mask, stem in ((state.EXEC_LO, "s_cbranch_exec"), (state.VCC_LO, "s_cbranch_vcc")):
        if name.startswith(stem) and taken == name.endswith("cz"):
            facts.masks[mask] = ALL
