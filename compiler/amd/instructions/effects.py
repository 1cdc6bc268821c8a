"""The effects of an RDNA instruction beyond its text: operand directions, hidden registers, memory, counters, issue
class and cost.

The instruction facts (`autogen/isa`) state the directions. What LLVM's disassembler does not show (SCC, M0, MODE) is in
tables here. Source: RDNA3 ISA reference, "Scalar Condition Code", "Data Dependency Resolution", "Wave Matrix Multiply
Accumulate"; LLVM SISchedule.td, GFX11SpeedModel (latencies).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

from ringup.autogen.isa import InstructionFacts, OperandFacts, target
from ringup.compiler.amd.instructions.code import Instr
from ringup.compiler.amd.instructions.names import spellings
from ringup.errors import CompileError

# Named registers, as the unit numbers that all passes use for them (`steps.py`).
SCC, VCC_LO, VCC_HI, EXEC_LO, EXEC_HI, M0, MODE, OTHER = range(8)
SPECIAL_UNITS: Final = {
    "scc": (SCC,), "src_scc": (SCC,), "vcc": (VCC_LO, VCC_HI), "vcc_lo": (VCC_LO,), "vcc_hi": (VCC_HI,), "exec": (EXEC_LO, EXEC_HI),
    "exec_lo": (EXEC_LO,), "exec_hi": (EXEC_HI,), "m0": (M0,), "null": (), "off": (), "vccz": (VCC_LO, VCC_HI), "src_vccz": (VCC_LO, VCC_HI),
    "execz": (EXEC_LO, EXEC_HI), "src_execz": (EXEC_LO, EXEC_HI), "src_shared_base": (), "src_private_base": (), "src_shared_limit": (),
    "src_private_limit": (), "flat_scratch": (OTHER,), "flat_scratch_lo": (OTHER,), "flat_scratch_hi": (OTHER,),
    # A gfx12 group's numbers: never written here.
    "src_flat_scratch_base_lo": (), "src_flat_scratch_base_hi": (), "ttmp7": (), "ttmp9": (),
}  # fmt: skip

# For each issue class: cycles from issue until a dependent instruction can issue without stalling, and cycles for which
# one wave32 occupies the unit. Source: SISchedule.td, GFX11SpeedModel, for valu, trans, quarter rate, f64, salu. A
# WMMA's 32 cycles follow from the peak rate (512 f16 operations a cycle and CU, RDNA3 white paper). GUESS: memory
# latencies are round numbers for a cache hit; no document states them.
COSTS: Final = {
    "valu": (5, 1), "compare": (5, 1), "trans": (10, 4), "quarter": (8, 4), "double": (38, 16), "wmma": (36, 32), "salu": (2, 1),
    "smem": (60, 1), "lds": (64, 4), "vmem": (320, 4), "branch": (16, 1), "wait": (1, 1), "control": (1, 1), "export": (16, 4),
    "ldsdir": (24, 1),
}  # fmt: skip
# SISchedule.td, WriteTrans64.
TRANS64 = (40, 16)
# RDNA4 doubles the dense rate. Source: RDNA4 architecture slides (1024 f16 operations a cycle and CU).
GFX12_WMMA = (20, 16)
# Of CDNA3: for 32 lanes, half of what a wave64 takes. A VALU result is ready for the next instruction, except where
# wait states are needed (`passes/wait_states.py`). Source: CDNA3 white paper (rates). GUESS: latencies of memory, see
# COSTS.
GFX9_COSTS: Final = COSTS | {
    "valu": (2, 2), "compare": (6, 2), "trans": (10, 8), "quarter": (16, 8), "double": (8, 2), "salu": (4, 4), "smem": (120, 4), "lds": (64, 4),
    "vmem": (500, 4),
}  # fmt: skip
VECTOR: Final = frozenset(("valu", "trans", "quarter", "double", "wmma"))

_TRANS = re.compile(r"v_(exp|log|rcp|rcp_iflag|rsq|sqrt|sin|cos)_f(16|32|64)|v_s_\w+")
_DOUBLE = re.compile(r"v_(?!readfirst).*_f64(_|$)|v_cvt_\w*f64\w*|v_(rcp|rsq|sqrt)_f64")
_QUARTER = re.compile(r"v_mul_(lo|hi)_[ui]32|v_mad_(co_)?[ui]64_[ui]32")
_WMMA = re.compile(r"v_(swmmac|wmma|s?mfma|smfmac)_")
# Rows, blocks and type of the factors.
_MFMA = re.compile(r"v_(?:mfma|smfmac)_\w+?_(\d+)x\d+x\d+(_\d+b)?_(\w+?)(?:_fp8|_bf8)?")
_FORMAT_CLASS = {
    "SOP1": "salu", "SOP2": "salu", "SOPC": "salu", "SOPK": "salu", "SOPP": "control", "SMEM": "smem", "DS": "lds", "VDS": "lds",
    "EXP": "export", "VEXPORT": "export", "LDSDIR": "ldsdir", "VDSDIR": "ldsdir",
}  # fmt: skip
_MEMORY_FORMATS = {
    "MUBUF": "global", "MTBUF": "global", "VBUFFER": "global", "GLOBAL": "global", "VGLOBAL": "global", "SCRATCH": "scratch",
    "VSCRATCH": "scratch", "FLAT": "flat", "VFLAT": "flat", "MIMG": "image", "VIMAGE": "image", "VSAMPLE": "sample", "DS": "lds", "VDS": "lds",
    "SMEM": "scalar",
}  # fmt: skip

# Scalar instructions that do not write SCC. Every other SOP2 writes it, and of SOP1 and SOPK those listed.
_SOP2_KEEPS_SCC = re.compile(
    r"s_(mul|bfm|cselect|pack|fmac|fmaak|fmamk|minimum|maximum|(add|sub|min_num|max_num)_f|cvt_pk|(add|sub)_nc)"
)
_SOP1_WRITES_SCC = re.compile(
    r"s_(abs|bcnt[01]|quadmask|wqm|not)_|s_\w+_(saveexec|wrexec)_|s_barrier_signal_isfirst|s_alloc_vgpr|s_barrier_join|s_barrier_leave"
)
_SOPK_WRITES_SCC = re.compile(r"s_(cmpk|addk)_")
_READS_SCC = re.compile(r"s_(addc|subb|cselect|cmov|cmovk)_|s_(add|sub)_co_ci_|s_cbranch_scc")
_READS_M0 = re.compile(
    r"(s_movrel|v_movrel|v_swaprel|s_sendmsg|s_barrier_init|s_barrier_join|s_barrier_signal)|ds_\w*(addtid|gws|append|consume|ordered|gs_reg)|lds_|s_ttracedata$"
)
# v_readfirstlane reads EXEC: it takes lane 0 when EXEC is zero.
_IGNORES_EXEC = re.compile(r"v_(readlane|writelane|nop|pipeflush|wmma|swmmac|mfma|smfmac)|v_s_")
_ANY_LANE = re.compile(
    r"v_(readlane|readfirstlane|writelane|wmma|swmmac|mfma|smfmac|permlane|permlanex)|ds_(permute|bpermute|swizzle)"
)
# With op_sel[0], which fetches from inactive lanes, every lane gets a value: the destination is not read.
_GATHERS = re.compile(r"v_permlanex?16_b32")
_WAITS = re.compile(r"s_wait(cnt)?(_\w+)?$")
_MODE_WRITES = re.compile(r"s_(setreg|round_mode|denorm_mode)")
_ORDERED = re.compile(
    r"s_(barrier|sendmsg|sethalt|setkill|sleep|trap|setprio|icache_inv|dcache|gl1_inv|setpc|swappc|call|getpc|rfe|subvector|ttrace|getreg|setreg|round_mode|"
    r"denorm_mode|wakeup|incperf|decperf|set_inst|clause|delay|endpgm|version|code_end|get_barrier|alloc_vgpr|memtime|memrealtime|nop|prefetch)|"
    r"buffer_(gl|inv|wbl2)|global_(inv|wb)|s_wait|s_c?branch|v_movrel|v_swaprel|s_movrel"
)  # fmt: skip
# Instructions that write half of a register and keep the other half.
_PARTIAL = re.compile(r"_d16_hi|^v_fma_mix(lo|hi)_|^v_cvt_sr_|^v_mov_b16")
DPP_CONTROLS = frozenset((
    "quad_perm", "row_bcast", "row_newbcast", "wave_shl", "wave_rol", "wave_shr", "wave_ror",
    "row_shl", "row_shr", "row_ror", "row_mirror", "row_half_mirror", "row_share", "row_xmask", "dpp8", "row_mask", "bank_mask",
))  # fmt: skip
# Modifiers that change what is read and written.
_DECIDING = DPP_CONTROLS | {"glc", "th", "op_sel", "bound_ctrl", "fi", "lds", "sc0"}


class Effects(NamedTuple):
    """The effects of one mnemonic with one number of operands. Positions count operands of the text; units are the
    numbers of special registers.

    `kind` is a key of `COSTS`. `memory` is the place (global, scratch, flat, lds, scalar, image, sample); `access` is
    read, write, atomic (both), update (an atomic without a result) or empty. `counters` names the counters that the
    instruction increments. `late`: operands that are read so late that a result must not be in their registers.
    `any_lane`: reads or writes lanes that EXEC disables. `lead`: cycles for which the results of vector instructions
    must be ready before it, beyond their latency.
    """

    kind: str
    defs: tuple[int, ...]
    uses: tuple[int, ...]
    hidden_defs: tuple[int, ...]
    hidden_uses: tuple[int, ...]
    memory: str
    access: str
    counters: tuple[str, ...]
    latency: int
    cycles: int
    ordered: bool
    branch: bool
    late: tuple[int, ...]
    any_lane: bool
    formats: tuple[str, ...]
    lead: int = 0


class Counters(NamedTuple):
    """The wait counters of a generation: which one counts an access, and the maximum of each."""

    load: str
    store: str
    lds: str
    scalar: str
    sample: str
    bvh: str
    export: str
    limits: dict[str, int]
    # The fields of s_waitcnt's immediate: for each counter, the (lowest bit, width) of its pieces, lowest first.
    fields: dict[str, tuple[tuple[int, int], ...]]

    def s_waitcnt(self, counts: Mapping[str, int]) -> int:
        """Return the immediate of s_waitcnt for some counters; the others are at their maximum."""
        made = 0
        for name, pieces in self.fields.items():
            count = min(counts.get(name, self.limits[name]), self.limits[name])
            for low, width in pieces:
                made |= (count & (1 << width) - 1) << low
                count >>= width
        return made

    def waited(self, immediate: int) -> dict[str, int]:
        """Return the counters that s_waitcnt waits for, with their values."""
        found = {}
        for name, pieces in self.fields.items():
            count, at = 0, 0
            for low, width in pieces:
                count |= (immediate >> low & (1 << width) - 1) << at
                at += width
            if count < self.limits[name]:
                found[name] = count
        return found


# Source: RDNA3 and RDNA4 ISA references, "Data Dependency Resolution"; CDNA3 ISA reference, "S_WAITCNT"; AMDGPUUsage,
# "Memory Model gfx942", "gfx11", "gfx12". On gfx9, vmcnt counts stores too.
COUNTERS: Final = {
    "gfx9": Counters("vmcnt", "vmcnt", "lgkmcnt", "lgkmcnt", "vmcnt", "vmcnt", "expcnt",
        {"vmcnt": 63, "lgkmcnt": 15, "expcnt": 7},
        {"vmcnt": ((0, 4), (14, 2)), "expcnt": ((4, 3),), "lgkmcnt": ((8, 4),)}),
    "gfx11": Counters("vmcnt", "vscnt", "lgkmcnt", "lgkmcnt", "vmcnt", "vmcnt", "expcnt",
        {"vmcnt": 63, "vscnt": 63, "lgkmcnt": 63, "expcnt": 7},
        {"vmcnt": ((10, 6),), "lgkmcnt": ((4, 6),), "expcnt": ((0, 3),)}),
    "gfx12": Counters(
        "loadcnt", "storecnt", "dscnt", "kmcnt", "samplecnt", "bvhcnt", "expcnt",
        {"loadcnt": 63, "storecnt": 63, "dscnt": 63, "kmcnt": 31, "samplecnt": 63, "bvhcnt": 7, "expcnt": 7}, {},
    ),
}  # fmt: skip


def generation(name: str) -> str:
    """Return `gfx9`, `gfx11` or `gfx12`. Raises CompileError for any other processor."""
    found = name[:5] if len(name) > 6 else name[:4]
    if found not in COUNTERS or (found == "gfx9" and name not in ("gfx942", "gfx950")):
        raise CompileError(f"no back end for {name}; there are gfx942, gfx950, gfx1100, gfx1151 and gfx1201")
    return found


class EffectTable:
    """The effects of all instructions of one processor, computed on first use and cached."""

    def __init__(self, name: str) -> None:
        self.target, self.counters = name, COUNTERS[generation(name)]
        self._facts = target(name)
        self._generation = generation(name)
        self._is_gfx12 = self._generation == "gfx12"
        self._spellings = spellings(name)
        self._costs = GFX9_COSTS if self._generation == "gfx9" else COSTS
        self._kept: dict[object, Effects] = {}
        self._known: dict[str, tuple[InstructionFacts, ...]] = {}

    def of(self, instr: Instr) -> Effects:
        """Return the effects of an instruction. Raises CompileError for a mnemonic or a number of operands that the
        processor does not have.
        """
        modifiers = instr.modifiers
        key: object = (instr.mnemonic, len(instr.operands))
        if modifiers and not _DECIDING.isdisjoint(modifiers):
            key = (*key, *((name, str(modifiers[name])) for name in sorted(modifiers) if name in _DECIDING))  # type: ignore[misc]
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = self._find(instr)
        return found

    def forms(self, mnemonic: str) -> tuple[InstructionFacts, ...]:
        """Return the encodings of a mnemonic, without its encoding suffix."""
        found = self._known.get(mnemonic)
        if found is None:
            found = self._facts.by_mnemonic(self._spellings.get(mnemonic, mnemonic))
            if not found:
                found = self._facts.by_mnemonic(re.sub(r"_(e32|e64|dpp|e64_dpp)$", "", mnemonic))
            self._known[mnemonic] = found
        return found

    def _find(self, instr: Instr) -> Effects:
        name, count, modifiers = instr.mnemonic, len(instr.operands), instr.modifiers
        forms = self.forms(name)
        if not forms:
            raise CompileError(
                f"{self.target} has no instruction {name}; spell it as LLVM does, without an encoding suffix"
            )
        returns = any("returns" in form.flags for form in forms) and _returns(modifiers)
        fitting = []
        for form in forms:
            operands = [one for one in form.operands if one.field != "hidden"]
            if "returns" in form.flags and not returns:
                operands = [one for one in operands if one.direction != "def"]
            # The number of an s_endpgm may be omitted.
            if len(operands) == count or (name == "s_endpgm" and not count):
                fitting.append((form, operands[:count]))
        if not fitting:
            raise CompileError(f"{instr}: {name} has {count} operands here; {self.target} takes {_wanted(forms)}")
        form, operands = fitting[0]
        dpp = not DPP_CONTROLS.isdisjoint(modifiers)
        keeps = (
            bool(_PARTIAL.search(name))
            or (dpp and not (modifiers.get("bound_ctrl") and _whole(modifiers)))
            or _high_result(modifiers, operands)
        )
        defs = tuple(i for i, one in enumerate(operands) if one.direction != "use")
        fetched = bool(_GATHERS.match(name)) and _first_set(modifiers)
        uses = tuple(
            i
            for i, one in enumerate(operands)
            if (one.direction != "def" and not (fetched and i == 0)) or (keeps and one.kinds == ("vgpr",))
        )
        hidden_defs, hidden_uses = self._hidden(name, form)
        memory = _MEMORY_FORMATS.get(form.format, "")
        access = _access(name, form, returns)
        if not access:
            memory = ""
        kind = _kind(name, form)
        latency, cycles = (
            GFX12_WMMA
            if kind == "wmma" and self._is_gfx12
            else TRANS64
            if kind == "trans" and name.endswith("_f64")
            else matrix_cost(name, late=self.target == "gfx950")
            if kind == "wmma" and self._generation == "gfx9"
            else self._costs["compare" if kind == "valu" and name.startswith("v_cmp") else kind]
        )
        late: tuple[int, ...] = ()
        if kind == "wmma" and self._generation == "gfx9":
            # QUIRK: Source: LLVM VOP3PInstructions.td, earlyclobber of MFMA results of more than 4 registers or passes.
            late = (1, 2)
        elif kind == "wmma":
            # QUIRK: A and B are read again while D is written. Source: LLVM VOP3PInstructions.td, earlyclobber of WMMA
            late = (1, 2)
        elif kind == "smem" and self._generation == "gfx9":
            # With XNACK, a load may be repeated. Source: LLVM SMInstructions.td, the loads with early clobber ("_ec").
            late = uses
        elif name in ("v_mad_u64_u32", "v_mad_i64_i32") and self._generation == "gfx11":
            # QUIRK: Source: LLVM AMDGPU.td, FeatureMADIntraFwdBug of gfx11.
            late = uses
        return Effects(
            kind, defs, uses, hidden_defs, hidden_uses, memory, access, self._counters(name, kind, memory, access),
            latency, cycles,
            ordered=bool(_ORDERED.match(name)) or memory == "flat", branch=name.startswith(("s_branch", "s_cbranch", "s_setpc", "s_endpgm")),
            late=late,
            any_lane=bool(_ANY_LANE.match(name)) or bool(modifiers.get("fi")), formats=tuple(one.format for one, _ in fitting),
            lead=_lead(name, kind, dpp) if self._generation == "gfx9" else 0,
        )  # fmt: skip

    def _hidden(self, name: str, form: InstructionFacts) -> tuple[tuple[int, ...], tuple[int, ...]]:
        defs: set[int] = set()
        uses: set[int] = set()
        for one in form.operands:
            if one.field == "hidden":
                units = SPECIAL_UNITS[one.text]
                if one.direction != "use":
                    defs.update(units)
                if one.direction != "def":
                    # In wave64, both halves.
                    uses.update((VCC_LO, VCC_HI) if one.text == "vcc_lo" else units)
        family = form.format
        if (
            family == "SOPC"
            or (family == "SOP2" and not _SOP2_KEEPS_SCC.match(name))
            or (family == "SOP1" and _SOP1_WRITES_SCC.match(name))
        ):
            defs.add(SCC)
        if family == "SOPK" and _SOPK_WRITES_SCC.match(name):
            defs.add(SCC)
        if _READS_SCC.match(name):
            uses.add(SCC)
        if "saveexec" in name or "wrexec" in name:
            uses.update((EXEC_LO, EXEC_HI))
            defs.update((EXEC_LO, EXEC_HI))
        if name.startswith("s_cbranch_vcc"):
            uses.update((VCC_LO, VCC_HI))
        if (
            name.startswith("s_cbranch_exec")
            or (family[0] not in "S" and not _IGNORES_EXEC.match(name))
            or (family.startswith("SCR"))
        ):
            uses.update((EXEC_LO, EXEC_HI))
        if name.startswith("v_cmpx"):
            defs.update((EXEC_LO, EXEC_HI))
        if _READS_M0.match(name):
            uses.add(M0)
        if _MODE_WRITES.match(name):
            defs.add(MODE)
        return tuple(sorted(defs)), tuple(sorted(uses))

    def _counters(self, name: str, kind: str, memory: str, access: str) -> tuple[str, ...]:
        names = self.counters
        if kind == "export":
            return (names.export,)
        if kind == "ldsdir":
            return (names.export,)
        if name.startswith("s_sendmsg"):
            return (names.scalar,)
        if memory == "scalar":
            return (names.scalar,)
        if memory == "lds":
            return (names.lds,)
        if not memory:
            return ()
        if memory == "sample" or "_sample" in name:
            return (names.sample,)
        if "bvh" in name:
            return (names.bvh,)
        first = names.store if access in ("write", "update") else names.load
        return (first, names.lds) if memory == "flat" else (first,)


def _lead(name: str, kind: str, dpp: bool) -> int:
    """Return the cycles of the wait states that an instruction needs on gfx9 (`passes/wait_states.py`)."""
    if dpp or kind == "wmma":
        return 4
    return 8 if name.startswith("v_div_fmas") else 2 if name.startswith("v_read") else 0


def _returns(modifiers: dict[str, object]) -> bool:
    th = modifiers.get("th", 0)
    return bool(modifiers.get("glc") or modifiers.get("sc0")) or (
        bool(th & 1) if isinstance(th, int) else "RETURN" in str(th)
    )


def _wanted(forms: tuple[InstructionFacts, ...]) -> str:
    return " or ".join(sorted({str(sum(one.field != "hidden" for one in form.operands)) for form in forms}))


def _whole(modifiers: dict[str, object]) -> bool:
    return modifiers.get("row_mask", 15) == 15 and modifiers.get("bank_mask", 15) == 15


def _first_set(modifiers: dict[str, object]) -> bool:
    op_sel = modifiers.get("op_sel")
    return isinstance(op_sel, (tuple, list)) and bool(op_sel) and bool(op_sel[0])


def _high_result(modifiers: dict[str, object], operands: Sequence[OperandFacts]) -> bool:
    """Return whether op_sel puts a 16-bit result into the high half: its last bit, after those of the sources."""
    op_sel = modifiers.get("op_sel")
    return isinstance(op_sel, (tuple, list)) and len(op_sel) == len(operands) and bool(op_sel[-1])


def _kind(name: str, form: InstructionFacts) -> str:
    if name.startswith(("s_branch", "s_cbranch", "s_setpc", "s_swappc", "s_call")):
        return "branch"
    if _WAITS.match(name):
        return "wait"
    found = _FORMAT_CLASS.get(form.format)
    if found:
        return found
    if form.format in _MEMORY_FORMATS:
        return "vmem"
    # A part of a scaled product, which multiplies nothing.
    if _WMMA.match(name) and name != "v_mfma_ld_scale_b32":
        return "wmma"
    if _TRANS.match(name):
        return "trans"
    if _QUARTER.match(name):
        return "quarter"
    return "double" if _DOUBLE.match(name) else "valu"


@cache
def passes(mnemonic: str, *, late: bool = False) -> int:
    """Return the passes of four cycles that a matrix instruction of CDNA3, or of CDNA4 if `late`, takes. Source: AMD's
    matrix instruction calculator, "Execution cycles"; LLVM SISchedule.td, SIDPGFX940FullSpeedModel and
    SIDPGFX950FullSpeedModel; CDNA4 ISA reference, "Matrix Arithmetic Instructions".
    """
    found = _MFMA.fullmatch(mnemonic)
    if found is None:
        raise CompileError(f"{mnemonic} is no matrix instruction of CDNA3")
    rows, blocks, kind = int(found[1]), found[2], found[3]
    if rows == 4:
        return 4 if kind == "f64" else 2
    if late and kind == "f64":
        return rows
    # The product of floats of 8 bits; those of fewer bits, which are not compiled, take half of the time.
    slow = blocks is not None or kind in ("f64", "f32", "f8f6f4")
    return rows // 4 * (2 if slow else 1)


def matrix_cost(mnemonic: str, *, late: bool = False) -> tuple[int, int]:
    """Return latency and cycles of a matrix instruction of CDNA3, or of CDNA4 if `late`, as `COSTS` has them."""
    count = passes(mnemonic, late=late)
    return 2 * count + 8, 2 * count


def _access(name: str, form: InstructionFacts, returns: bool) -> str:
    """Return the access: read, write, atomic (returns the old value), update (an atomic that does not) or nothing."""
    if form.format not in _MEMORY_FORMATS or re.match(
        r"buffer_(gl|inv|wbl2)|global_(inv|wb)|s_(dcache|gl1|icache)|ds_nop|s_(buffer_)?prefetch|s_atc", name
    ):
        return ""
    if form.format in ("DS", "VDS"):
        if re.match(r"ds_(load|permute|bpermute|swizzle|bvh)", name):
            return "read"
        if name.startswith("ds_store") and "xchg" not in name:
            return "write"
        return "atomic" if any(one.direction != "use" for one in form.operands) else "update"
    # From memory to LDS.
    if "_load_lds_" in name:
        return "update"
    if "atomic" in name:
        return "atomic" if returns else "update"
    return "write" if "_store" in name else "read"


@cache
def effects(name: str) -> EffectTable:
    """Return the table of a processor."""
    return EffectTable(name)
