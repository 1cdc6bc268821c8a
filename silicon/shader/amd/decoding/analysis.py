"""The registers that instructions read and write, as sets in one integer, and liveness over a program's blocks.

Bit r of a set is scalar r of the encoding for r < 128, SCC is bit 128, VGPR r is bit 256 + r. Source: RDNA3 ISA
reference, "Instructions".
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ringup.silicon.shader.amd.decoding import decode as dec
from ringup.silicon.shader.amd.decoding.decode import remembered
from ringup.silicon.shader.amd.decoding.gcn import INDEXED_PREFIX, PRESERVE
from ringup.silicon.shader.amd.decoding.memory_effects import UNITS, loads_to_lds
from ringup.silicon.shader.common import state

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringup.silicon.shader.amd.decoding.cfg import Block, Key, Step
    from ringup.silicon.shader.amd.decoding.decode import Instruction, Operand

SCC_BIT = 1 << 128
EXEC_BITS = 3 << state.EXEC_LO
VCC_BITS = 3 << state.VCC_LO
M0_BIT = 1 << state.M0
TRAP_BITS = (1 << state.NULL) - (1 << state.TTMP0)
FIRST_VGPR = 256
VGPR_ROWS = 512  # with accumulation registers, which begin at `state.FIRST_ACC`

ALU_FORMATS = frozenset(("VOP1", "VOP2", "VOPC", "VOP3", "VOP3SD", "VOP3P", "VOP3P-MAI", "VOPD", "VINTERP"))
VECTOR_FORMATS = ALU_FORMATS | UNITS.keys() - {"SMEM"}
_WRITES_SCC = (
    "s_add", "s_sub", "s_min_", "s_max_", "s_and", "s_or", "s_xor", "s_nand", "s_nor", "s_xnor", "s_lsh", "s_ash", "s_bfe", "s_abs",
    "s_not", "s_wqm", "s_quadmask", "s_bcnt", "s_cmp", "s_bitcmp", "s_barrier_signal_isfirst",
)  # fmt: skip
# Of the names above these do not, compares excepted.
_KEEPS_SCC = ("_f16", "_f32", "_nc_u64")
_READS_SCC = ("s_addc", "s_subb", "s_cselect", "s_cmov", "s_cbranch_scc", "s_getreg")
# M0 selects registers of these, so they may read or write any.
INDIRECT = ("s_movrel", "v_movrel", "v_swaprel", INDEXED_PREFIX)
# EXEC does not limit the lanes that these write.
_ONE_LANE = frozenset(("v_writelane_b32",))
_ONE_BYTE = frozenset(("v_cvt_pkaccum_u8_f32",))
_NO_EXEC = frozenset(("v_readlane_b32", "v_writelane_b32"))
_READS_M0 = (
    "s_sendmsg",
    "s_ttracedata",
    "ds_load_addtid",
    "ds_store_addtid",
    "ds_append",
    "ds_consume",
    "s_movrel",
    "v_movrel",
    "global_load_block",
    "global_store_block",
    "scratch_load_block",
    "scratch_store_block",
)
# These write only the registers that M0 selects.
_SELECTED = ("global_load_block", "scratch_load_block")
ALL = (1 << FIRST_VGPR + VGPR_ROWS) - 1
_SPECIAL_USES = {dec.SCC: SCC_BIT, dec.VCCZ: VCC_BITS, dec.EXECZ: EXEC_BITS, dec.LDS_DIRECT: M0_BIT}


class Effects(NamedTuple):
    """Registers that an instruction reads and writes; it writes VGPRs only in the lanes of EXEC."""

    uses: int
    defs: int
    partial: bool  # it keeps part of what it writes (half, lane) even where every lane is active


def allocated(vgpr_count: int, acc_count: int) -> int:
    """Return the VGPRs that a wave has, accumulation registers too."""
    return ((1 << vgpr_count) - 1 | (1 << acc_count) - 1 << state.FIRST_ACC) << FIRST_VGPR


def registers(operand: Operand, lanes: int) -> int:
    """Return the registers of an operand; a lane mask of a wave64 is a pair whatever its size says."""
    if operand.kind not in ("vgpr", "sgpr") or (operand.kind == "sgpr" and operand.index == state.NULL):
        return 0
    words = -(-operand.size_bits // 32)
    if operand.type == "mask" and operand.kind == "sgpr":
        words = lanes // 32
    first = operand.index + (FIRST_VGPR if operand.kind == "vgpr" else 0)
    return (1 << words) - 1 << first


@lru_cache(4096)
def _implied(mnemonic: str, format_: str) -> Effects:
    """Return what instructions of a mnemonic and a format read and write that is no operand."""
    uses = defs = 0
    if format_ in VECTOR_FORMATS and mnemonic not in _NO_EXEC:
        uses |= EXEC_BITS
    if "saveexec" in mnemonic or "wrexec" in mnemonic:
        uses, defs = uses | EXEC_BITS, defs | EXEC_BITS
    if mnemonic.startswith("v_cmpx"):
        defs |= EXEC_BITS
    if mnemonic.startswith("s_cbranch_vcc"):
        uses |= VCC_BITS
    if mnemonic.startswith("s_cbranch_exec"):
        uses |= EXEC_BITS
    if mnemonic.startswith(("v_div_fmas", "v_div_fixup")):
        uses |= VCC_BITS
    if mnemonic.startswith(_READS_SCC):
        uses |= SCC_BIT
    if format_ in ("SOP1", "SOP2", "SOPC", "SOPK") and _writes_scc(mnemonic):
        defs |= SCC_BIT
    # STATUS includes EXECZ and VCCZ.
    if mnemonic.startswith("s_getreg"):
        uses |= EXEC_BITS | VCC_BITS
    if format_ == "LDSDIR":
        uses |= EXEC_BITS | M0_BIT
    if mnemonic.startswith(_READS_M0):
        uses |= M0_BIT
    if mnemonic.startswith("s_set_gpr_idx") and not mnemonic.endswith("off"):
        uses, defs = uses | M0_BIT, defs | M0_BIT
    partial = (
        mnemonic in _ONE_LANE
        or mnemonic in _ONE_BYTE
        or mnemonic in _SELECTED
        or "d16" in mnemonic
        or format_ == "LDSDIR"
    )
    return Effects(uses, defs, partial)


def _writes_scc(mnemonic: str) -> bool:
    if mnemonic.endswith(_KEEPS_SCC) and not mnemonic.startswith("s_cmp"):
        return False
    return mnemonic.startswith(_WRITES_SCC)


@remembered
def effects(ins: Instruction, lanes: int) -> Effects:
    """Return what an instruction reads and writes in a wave of `lanes`."""
    mnemonic = ins.mnemonic
    if mnemonic.startswith(INDIRECT):
        return Effects(ALL, 0, partial=True)
    uses, defs, partial = _implied(mnemonic, ins.format)
    for operand in ins.operands:
        found = registers(operand, lanes)
        if operand.direction != "def":
            uses |= found
            if operand.kind == "constant":
                uses |= _SPECIAL_USES.get(operand.index, 0)
        if operand.direction != "use":
            defs |= found
            if operand.kind == "vgpr" and operand.size_bits < 32:
                partial = True
    if ins.fields.get("gds") or loads_to_lds(ins):
        uses |= M0_BIT
    # The address of scratch memory is in scalars on CDNA.
    if ins.format in ("SCRATCH", "FLAT") and ins.generation.start.flat_scratch < state.SGPR_COUNT:
        uses |= 3 << ins.generation.start.flat_scratch
    if mnemonic.startswith("s_setreg") and ins.fields["simm16"] & 0x3F == ins.generation.scc_register:
        uses, defs = uses | SCC_BIT, defs | SCC_BIT
    if ins.dpp is not None or (ins.sdwa and ins.fields.get("dst_u") == PRESERVE):
        partial = True
    # Outside a trap handler they keep their values.
    if ins.generation.start.numbers_in_ttmp:
        uses |= defs & TRAP_BITS
    if partial or mnemonic.startswith(("s_cmov", "s_bitset")):
        uses |= defs
    return Effects(uses, defs, partial)


def numbers(found: int) -> Iterator[int]:
    """List the registers of a set."""
    while found:
        low = found & -found
        yield low.bit_length() - 1
        found ^= low


def live_at_entry(blocks: dict[Key, Block], full: dict[Key, list[bool]], everything: int) -> dict[Key, int]:
    """Return by block the registers that may be read later, at its start.

    `full` says for each instruction whether EXEC is known to be all ones: only there a write ends a VGPR's old value. A
    block that may leave for an unknown address needs `everything`.
    """
    gen: dict[Key, int] = {}
    kill: dict[Key, int] = {}
    for key, block in blocks.items():
        use = lost = 0
        for step, all_lanes in zip(reversed(block.code), reversed(full[key]), strict=True):
            reads, killed = _reads_and_kills(step, all_lanes=all_lanes)
            use, lost = use & ~killed | reads, lost & ~reads | killed
        gen[key], kill[key] = use, lost
    live = dict.fromkeys(blocks, 0)
    before: dict[Key, list[Key]] = {key: [] for key in blocks}
    for key, block in blocks.items():
        for one in block.successors:
            before[one].append(key)
    work = list(blocks)
    while work:
        key = work.pop()
        block = blocks[key]
        out = everything if block.unknown else 0
        for one in block.successors:
            out |= live[one]
        found_live = (gen[key] | out & ~kill[key]) & everything
        if found_live != live[key]:
            live[key] = found_live
            work.extend(before[key])
    return live


def _reads_and_kills(step: Step, *, all_lanes: bool) -> tuple[int, int]:
    """Return the registers whose old values an instruction needs, and those whose old values it ends."""
    found = step.effects
    if all_lanes:
        return found.uses, found.defs
    vectors = found.defs & ~((1 << FIRST_VGPR) - 1)
    return found.uses | vectors, found.defs & ~vectors


def live_before(block: Block, full: list[bool], out: int) -> list[int]:
    """Return for every instruction of a block the registers that may be read there or later.

    `out` are those at the end of the block.
    """
    found = []
    for step, all_lanes in zip(reversed(block.code), reversed(full), strict=True):
        reads, killed = _reads_and_kills(step, all_lanes=all_lanes)
        out = out & ~killed | reads
        found.append(out)
    return found[::-1]


def full_exec(blocks: dict[Key, Block], entries: dict[Key, bool], lanes: int) -> dict[Key, list[bool]]:
    """Return by block, for every instruction, whether EXEC is known to be all ones before it; `entries` has it for
    entries.

    This tracks which scalars hold all ones: structured code saves EXEC before it narrows it, and restores it with
    `s_or` or `s_mov`.
    """
    width = (1 << lanes // 32) - 1
    wanted = width << state.EXEC_LO
    start: dict[Key, int | None] = dict.fromkeys(blocks)
    for key, ones in entries.items():
        start[key] = wanted if ones else 0
    work = list(entries)
    while work:
        key = work.pop()
        now = start[key] or 0
        for step in blocks[key].code:
            now = _ones_after(step, now)
        for one in blocks[key].successors:
            have = start[one]
            met = now if have is None else have & now
            if met != have:
                start[one] = met
                work.append(one)
    found = {}
    for key, block in blocks.items():
        now = start[key] or 0
        facts = []
        for step in block.code:
            facts.append(now & wanted == wanted)
            now = _ones_after(step, now)
        found[key] = facts
    return found


def _ones_after(step: Step, ones: int) -> int:
    """Return the scalar words known to be all ones after an instruction, from those before it."""
    ins = step.ins
    defs = step.effects.defs & SCC_BIT - 1
    if not defs:
        return ones
    name, after = ins.mnemonic, ones & ~defs
    if ins.format not in ("SOP1", "SOP2"):
        return after
    words = 2 if name.endswith("64") else 1
    target = ins.operands[0].index
    sources = [_all_ones(one, ones, words) for one in ins.operands[1:]]
    fill = (1 << words) - 1
    if name.startswith("s_mov_b"):
        return after | fill << target if sources[0] else after
    if name.startswith("s_or_b"):
        return after | fill << target if any(sources) else after
    if name.startswith("s_and_b"):
        return after | fill << target if all(sources) else after
    if "saveexec" in name:
        old = _holds(ones, state.EXEC_LO, words)
        if old:
            after |= fill << target
        new = {"s_and_": old and sources[0], "s_or_s": old or sources[0]}.get(name[:6], False)
        return after | fill << state.EXEC_LO if new else after
    return after


def _holds(ones: int, index: int, words: int) -> bool:
    return (ones >> index) & (1 << words) - 1 == (1 << words) - 1


def _all_ones(operand: Operand, ones: int, words: int) -> bool:
    if operand.kind == "constant":
        return operand.index == 0 and operand.bits == (1 << 32 * words) - 1
    return _holds(ones, operand.index, words)
