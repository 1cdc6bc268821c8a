"""Assembly text of decoded instructions for reports, in LLVM's spelling as far as possible."""

from __future__ import annotations

from functools import cache

from ringup.autogen import isa
from ringup.silicon.shader.amd.decoding import gcn
from ringup.silicon.shader.amd.decoding import operands as enc
from ringup.silicon.shader.amd.decoding.decode import (
    NUMBERED,
    Instruction,
    Operand,
    remembered,
    selected_byte,
    waitcnt,
)
from ringup.silicon.shader.amd.decoding.generations import RDNA3, RDNA4

_SINGLE = {106: "vcc_lo", 107: "vcc_hi", enc.NULL: "null", enc.M0: "m0", 126: "exec_lo", 127: "exec_hi"}
_PAIRS = {106: "vcc", 126: "exec", enc.NULL: "null"}
_INTEGER_HALVES = ("i16", "u16", "b16")  # inline floats of these are written as numbers
_TARGETED = ("s_branch", "s_cbranch", "s_call", "s_subvector")
_OMOD = ("", "mul:2", "mul:4", "div:2")
_SCOPES = ("CU", "SE", "DEV", "SYS")
DEVICE_SCOPE, SYSTEM_SCOPE = 2, 3
# Temporal hints of RDNA4 by their numbers. An empty one is reserved.
CASCADE, BYPASS = 4, 3
_HINTS = {
    "LOAD": ("RT", "NT", "HT", "LU", "NT_RT", "RT_NT", "NT_HT", ""),
    "STORE": ("RT", "NT", "HT", "WB", "NT_RT", "RT_NT", "NT_HT", "NT_WB"),
}
_DIMS = ("1D", "2D", "3D", "CUBE", "1D_ARRAY", "2D_ARRAY", "2D_MSAA", "2D_MSAA_ARRAY")
_FLAGS = ("gds", "idxen", "offen", "done", "lds")  # fields whose name is the modifier
_POLICIES = ("sc0", "sc1", "nt", "glc", "slc", "dlc", "r128", "a16", "tfe", "lwe", "d16")
# dpp_ctrl: first, last, name
_LANES = (
    (0x101, 0x10F, "row_shl"), (0x111, 0x11F, "row_shr"), (0x121, 0x12F, "row_ror"), (0x150, 0x15F, "row_share"),
    (0x160, 0x16F, "row_xmask"),
)  # fmt: skip
_MIRRORS = {
    0x140: "row_mirror", 0x141: "row_half_mirror", 0x130: "wave_shl:1", 0x134: "wave_rol:1", 0x138: "wave_shr:1", 0x13C: "wave_ror:1",
    0x142: "row_bcast:15", 0x143: "row_bcast:31",
}  # fmt: skip
_PER_SOURCE = {"op_sel": "opsel", "op_sel_hi": "opsel_hi", "neg_lo": "neg", "neg_hi": "neg_hi"}
_EXPORTS = {8: "mrtz", 20: "prim", 21: "dual_src_blend0", 22: "dual_src_blend1"}


def text(ins: Instruction) -> str:
    """Return the instruction in assembler syntax. Branch targets remain the immediate in the word."""
    if ins.parts:
        return " :: ".join(text(part) for part in ins.parts)
    parts = [shown for shown in (operand_text(ins, one) for one in _shown(ins)) if shown]
    return " ".join([mnemonic_text(ins), ", ".join(parts), *modifiers(ins)]).replace("  ", " ").strip()


def mnemonic_text(ins: Instruction) -> str:
    """Return the mnemonic with the suffix of its encoding."""
    name, facts = ins.spelling, ins.generation.facts
    if not ins.operands:
        return name
    permuted = "_dpp" if ins.dpp else "_sdwa" if ins.sdwa else ""
    if ins.format in ("VOP3", "VOP3SD", "VOP3P"):
        return name + ("_e64" if permuted or name in _both_ways(facts, "VOP1", "VOP2", "VOPC") else "") + permuted
    if ins.format in ("VOP1", "VOP2", "VOPC"):
        if ins.dpp and ins.format == "VOPC":
            return name
        return name + (permuted or ("_e32" if name in _both_ways(facts, "VOP3", "VOP3SD", "VOP3A", "VOP3B") else ""))
    return name


def _facts_of(ins: Instruction) -> isa.InstructionFacts | None:
    """Return the facts of an instruction. Its format may have another name there."""
    names = {new: old for old, new in ins.generation.formats.items()}
    return isa.target(ins.generation.facts).by_opcode(names.get(ins.format, ins.format), ins.op)


@cache
def _both_ways(facts: str, *formats: str) -> frozenset[str]:
    return frozenset(row.mnemonic for row in isa.target(facts).instructions if row.format in formats)


def _shown(ins: Instruction) -> list[Operand]:
    seen: set[str] = set()
    shown = []
    for one in ins.operands:
        if one.field == "hidden" or (one.field in seen and one.field != "implied"):
            continue
        seen.add(one.field)
        shown.append(one)
    return shown


def operand_text(ins: Instruction, one: Operand) -> str:
    """Return one operand with its signs and its half."""
    core = _core(ins, one)
    if one.abs:
        core = f"|{core}|"
    if one.neg:
        core = f"neg({core})" if one.kind == "constant" and not one.index and not one.abs else f"-{core}"
    return core


def _core(ins: Instruction, one: Operand) -> str:
    if one.kind == "off":
        return "off"
    if one.kind == "vgpr":
        half = f".{'lh'[one.high]}" if one.field in _halves(ins) else ""
        letter, index = ("a", one.index - gcn.FIRST_ACC) if one.index >= gcn.FIRST_ACC else ("v", one.index)
        return _range(letter, index, one.size_bits) + half
    if one.field == "soffset" and ins.format == "SMEM" and one.index == enc.NULL and not _has_offset_operand(ins):
        return _hex(ins.offset) if ins.generation.family == RDNA3.family else f"{ins.offset:#x}"
    if one.field == "offset":
        return f"{ins.offset:#x}"
    if one.kind == "sgpr":
        if ins.generation.is_gcn and (named := _gcn_scalar(one)):
            return named
        return scalar_text(one.index, one.size_bits)
    if one.index:
        return enc.SPECIAL[-one.index]
    code = ins.fields.get(one.field, enc.LITERAL)
    if one.field == "literal" or (one.size_bits and code == enc.LITERAL):
        literal = ins.literal or 0
        return f"{literal & 0xFFFF if one.size_bits == 16 else literal:#x}"
    if not one.size_bits:
        return _immediate(ins, one)
    if code in enc.INTEGERS:
        return str(enc.INTEGERS[code])
    if one.size_bits == 16 and one.type in _INTEGER_HALVES:
        return f"{one.bits:#x}"
    if code == enc.INVERSE_TWO_PI:
        return "0.15915494309189532" if one.size_bits == 64 else "0.15915494"
    return str(enc.FLOATS[code])


def _gcn_scalar(one: Operand) -> str:
    """Return the name of a register of scratch memory or of retries; empty for another one."""
    names = {102: "flat_scratch", 104: "xnack_mask"}
    name = names.get(one.index & ~1, "")
    if not name or one.size_bits > 64:
        return ""
    return name if one.size_bits == 64 else f"{name}_{('lo', 'hi')[one.index & 1]}"


def scalar_text(index: int, size_bits: int) -> str:
    """Return a scalar register, or a range of them, by encoding number."""
    if size_bits <= 32 and index in _SINGLE:
        return _SINGLE[index]
    if index in _PAIRS:
        return _PAIRS[index]
    return _range("ttmp", index - 108, size_bits) if 108 <= index < enc.NULL else _range("s", index, size_bits)


def _range(letter: str, index: int, size_bits: int) -> str:
    count = (size_bits + 31) // 32
    return f"{letter}{index}" if count <= 1 else f"{letter}[{index}:{index + count - 1}]"


def _hex(value: int) -> str:
    return str(value) if -16 <= value <= 64 else f"{value:#x}"


def _immediate(ins: Instruction, one: Operand) -> str:
    if ins.mnemonic == "s_waitcnt":
        # RDNA4 has other counters; it is written as RDNA3's.
        largest = ins.generation.counters if "vm" in ins.generation.counters else RDNA3.counters
        counts = zip(
            ("vmcnt", "expcnt", "lgkmcnt"),
            waitcnt(one.bits, ins.generation),
            (largest["vm"], largest["exp"], largest["lgkm"]),
            strict=True,
        )
        return " ".join(
            f"{name}({count})" for name, count, most in counts if count != most or one.bits & 0xFFF7 == 0xFFF7
        )
    if one.field == "target":
        return _EXPORTS.get(one.bits) or (f"mrt{one.bits}" if one.bits < 8 else f"pos{one.bits - 12}")
    if one.field == "attr":
        return f"attr{one.bits}.{'xyzw'[ins.fields['attr_chan']]}"
    if ins.mnemonic.startswith(_TARGETED):
        return str(one.bits & 0xFFFF)
    return _hex(ins.fields[one.field])


def _has_offset_operand(ins: Instruction) -> bool:
    return any(one.field == "offset" for one in ins.operands)


def _scalar_offset(ins: Instruction) -> list[str]:
    """Return the offset of a scalar load beside the one in a register. LLVM omits a zero on RDNA3 only."""
    if _has_offset_operand(ins) or ins.fields.get("soffset", enc.NULL) == enc.NULL or not ins.operands:
        return []
    if ins.generation is not RDNA4:
        return [f"offset:{_hex(ins.offset)}"] if ins.offset else []
    return [f"offset:{ins.offset:#x}"]


@remembered
def _halves(ins: Instruction) -> frozenset[str]:
    """Return the operands of an opcode whose half is written out."""
    row = _facts_of(ins)
    found: set[str] = set()
    for one in row.modifiers if row else ():
        if one.effect == "half" and one.field != "opsel":
            found.add(one.field)
        elif one.effect == "half":
            found |= {name for bit, name in NUMBERED.items() if one.bits >> bit & 1}
    return frozenset(found)


def modifiers(ins: Instruction) -> list[str]:
    """Return the modifiers that follow the operands."""
    fields = ins.fields
    found = _permutation(ins)
    if ins.format == "SMEM":
        found += _scalar_offset(ins)
    elif ins.format == "DS" and ("_2addr" in ins.mnemonic):
        found += [f"{name}:{fields[name]}" for name in ("offset0", "offset1") if fields[name]]
    elif ins.offset:
        found.append(f"offset:{ins.offset}")
    if ins.mnemonic.startswith("tbuffer") and fields["format"] != 1:
        found.append(f"format:{fields['format']}")
    if "dmask" in fields and not ins.mnemonic.endswith("intersect_ray"):
        found += [
            f"dmask:{fields['dmask']:#x}",
            f"dim:SQ_RSRC_IMG_{_DIMS[fields['dim']]}",
            *(["unorm"] if fields.get("unrm") else []),
        ]
    if ins.format in ("VOP3", "VOP3P", "VINTERP"):
        found += _selections(ins)
    if ins.sdwa:
        found += _sdwa(ins)
    if ins.format in gcn.MATRICES:
        found += _scales(ins) + _broadcasts(ins)
    if ins.mnemonic.startswith("v_bitop3") and (table := gcn.truth_table(ins.fields)):
        found.append(f"bitop3:{_hex(table)}")
    if ins.format == "VINTERP":
        found.append(f"wait_exp:{fields['waitexp']}")
    if ins.format == "LDSDIR" and ins.generation.family == RDNA3.family:
        found.append(f"wait_vdst:{fields['wait_va']}")
    elif ins.format == "LDSDIR":
        found += [f"wait_va_vdst:{fields['wait_va']}", f"wait_vm_vsrc:{fields['wait_vmvsrc']}"]
    if fields.get("row"):
        found.append("row_en")
    if ins.clamp:
        found.append("clamp")
    if ins.omod:
        found.append(_OMOD[ins.omod])
    found += _policies(ins)
    return found + [name for name in (*_FLAGS, *_POLICIES) if name in fields and fields[name] and _is_used(ins, name)]


_PARTS = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")
_UNUSED = ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE")


def _sdwa(ins: Instruction) -> list[str]:
    """Return the parts of registers that SDWA selects."""
    fields, found = ins.fields, []
    if "dst_sel" in fields and not ins.mnemonic.startswith(gcn.FROM_EIGHT_BITS):
        found += [f"dst_sel:{_PARTS[fields['dst_sel']]}", f"dst_unused:{_UNUSED[fields['dst_u']]}"]
    for number, name in enumerate(("src0", "vsrc1")):
        if any(one.field == name for one in ins.operands):
            found.append(f"src{number}_sel:{_PARTS[fields[f'src{number}_sel']]}")
    return found


def _scales(ins: Instruction) -> list[str]:
    """Return op_sel and op_sel_hi of a scaled product: the bytes that are the scales."""
    if ins.format != "VOP3PX2":
        return []
    low, high = (",".join(str(ins.fields[name] >> at & 1) for at in range(3)) for name in ("opsel", "opsel_hi"))
    return ([f"op_sel:[{low}]"] if low != "0,0,0" else []) + ([f"op_sel_hi:[{high}]"] if high != "1,1,1" else [])


def _broadcasts(ins: Instruction) -> list[str]:
    """Return CBSZ, ABID and BLGP of a matrix product; BLGP has the signs of f64."""
    if ins.mnemonic.startswith("v_accvgpr"):
        return []
    fields = ins.fields
    # A bit of ABID marks a scaled product.
    names = ("cbsz",) if ins.mnemonic.startswith("v_mfma_scale") else ("cbsz", "abid")
    found = [f"{name}:{fields[name]}" for name in names if fields[name]]
    if ins.mnemonic.endswith("f64") and fields["blgp"]:
        return [*found, f"neg:[{','.join(str(fields['blgp'] >> at & 1) for at in range(3))}]"]
    return [*found, *([f"blgp:{fields['blgp']}"] if fields["blgp"] else [])]


def _is_used(ins: Instruction, name: str) -> bool:
    if name == "glc" and ("th" in ins.fields or "sc0" in ins.fields):
        return False
    if name == "lds" and ins.format != "MUBUF":
        return False
    return name != "r128" or not ins.mnemonic.endswith("intersect_ray")


def _policies(ins: Instruction) -> list[str]:
    """Return the temporal hint and the scope of a memory instruction of RDNA4.

    Source: RDNA4 ISA reference, "Cache Controls: SCOPE and Temporal-Hint"; the names are LLVM's.
    """
    hint, scope = ins.fields.get("th", 0), ins.fields.get("scope", 0)
    found = []
    if hint:
        kind = "ATOMIC" if "atomic" in ins.mnemonic else "STORE" if "store" in ins.mnemonic else "LOAD"
        named = _hint(kind, hint, scope)
        found.append(f"th:TH_{kind}_{named}" if named else f"th:{hint:#x}")
    if scope:
        found.append(f"scope:SCOPE_{_SCOPES[scope]}")
    return found


def _hint(kind: str, hint: int, scope: int) -> str:
    if kind == "ATOMIC":
        if hint & CASCADE:
            return f"{hint:#x}" if scope < DEVICE_SCOPE else "CASCADE_NT" if hint & 2 else "CASCADE_RT"
        return ("", "RETURN", "NT", "NT_RETURN")[hint]
    if hint == BYPASS and scope == SYSTEM_SCOPE:
        return "BYPASS"
    return _HINTS[kind][hint]


def _selections(ins: Instruction) -> list[str]:
    """Return op_sel, op_sel_hi, neg_lo and neg_hi where they differ from an assembler's defaults."""
    row = _facts_of(ins)
    effects = {one.effect for one in row.modifiers} if row else set()
    sources = [one for one in ins.operands if one.field in ("src0", "src1", "src2")]
    found = []
    fields = dict(ins.fields)
    if "byte_sel" in effects and (chosen := selected_byte(ins)):
        found.append(f"byte_sel:{chosen}")
    if "index_key" in effects and fields["opsel"]:
        found.append(f"index_key:{fields['opsel']}")
    if "opsel_hi2" in fields:
        fields["opsel_hi"] |= fields["opsel_hi2"] << 2
    bits = {
        effect: [fields[name] >> i & 1 for i in range(len(sources))]
        for effect, name in _PER_SOURCE.items()
        if name in fields
    }
    has_lanes = any(one.field == "vdst" and one.kind == "vgpr" for one in ins.operands)
    if ins.format != "VOP3P" and (has_lanes or not ins.dpp) and not ins.mnemonic.startswith("v_permlane"):
        bits["op_sel"].append(fields["opsel"] >> 3 & 1)
    for effect, values in bits.items():
        usual = int(effect == "op_sel_hi" and not ins.mnemonic.startswith("v_fma_mix"))
        if (effect in effects or (effect == "op_sel" and "half" in effects)) and any(
            value != usual for value in values
        ):
            found.append(f"{effect}:[{','.join(map(str, values))}]")
    return found


def _permutation(ins: Instruction) -> list[str]:
    dpp = ins.dpp
    if dpp is None:
        return []
    fetch = ["fi:1"] if dpp.fetch_inactive else []
    if dpp.lanes:
        return [f"dpp8:[{','.join(map(str, dpp.lanes))}]", *fetch]
    ctrl = dpp.ctrl
    if ctrl < 0x100:
        shown = f"quad_perm:[{','.join(str(ctrl >> 2 * i & 3) for i in range(4))}]"
    else:
        shown = _MIRRORS.get(ctrl) or next(
            f"{name}:{ctrl & 15}" for first, last, name in _LANES if first <= ctrl <= last
        )
    if ins.generation.is_gcn:
        shown = shown.replace("row_share", "row_newbcast")
    bound = ["bound_ctrl:1"] if dpp.bound_ctrl else []
    return [shown, f"row_mask:{dpp.row_mask:#x}", f"bank_mask:{dpp.bank_mask:#x}", *bound, *fetch]
