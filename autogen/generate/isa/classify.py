"""Classify a disassembler's operand text: kind of operand, its registers, its data type by the mnemonic."""

from __future__ import annotations

import re
from functools import lru_cache

from ringup.autogen.generate.isa.probe import Decoded, Operand

_NAMED = {
    "m0": "m", "null": "n", "off": "o", "scc": "k", "src_scc": "k", "src_vccz": "k", "src_execz": "k", "vccz": "k", "execz": "k",
    "src_lds_direct": "d", "lds_direct": "d", "src_pops_exiting_wave_id": "P",
}  # fmt: skip
_SYMBOLIC = (
    (r"sendmsg\(|MSG_", "G"), (r"hwreg\(", "H"), (r"(vmcnt|expcnt|lgkmcnt)\(|(depctr_|va_|vm_vsrc|sa_sdst|hold_cnt)", "W"),
    (r"instid|instskip", "D"), (r"attr\d|p[12]0|p0|param_", "A"), (r"mrt|pos\d|prim|null|param|dual_src|invalid_target", "E"),
)  # fmt: skip
_TYPE = re.compile(r"(?:xf|bf|fp|iu|f|i|u|b)(?:4|6|8|16|24|32|64|96|128|160|192|256|512|1024|2048)")
_SHARED_SUM = re.compile(r"v_(dual_)?(dot\d|mfma|smfmac|wmma|swmmac|fma_mix|mad_mix|fmamix)")


@lru_cache(maxsize=10_000)
def kind_of(core: str) -> str:
    """Return the letter of the operand's kind; `autogen/isa/reader.py` gives the words for the letters."""
    if re.fullmatch(r"v\d+|v\[\d+:\d+\]", core):
        return "v"
    if re.fullmatch(r"a\d+|a\[\d+:\d+\]", core):
        return "a"
    if re.fullmatch(r"s\d+|s\[\d+:\d+\]", core):
        return "s"
    for prefix, letter in (("ttmp", "t"), ("vcc", "c"), ("exec", "x"), ("flat_scratch", "F"), ("xnack_mask", "X")):
        if core.startswith(prefix) and core not in _NAMED:
            return letter
    if core in _NAMED:
        return _NAMED[core]
    if re.fullmatch(r"src_(shared|private)_(base|limit)(_lo|_hi)?", core) or core.startswith("src_flat_scratch"):
        return "p"
    if re.fullmatch(r"-?(0x[0-9a-f]+|\d+)", core):
        return "i"
    if re.fullmatch(r"-?\d+\.\d+(e[+-]?\d+)?", core):
        return "f"
    return next((letter for pattern, letter in _SYMBOLIC if re.match(pattern, core)), "U")


def registers(core: str) -> tuple[str, int, int]:
    """Return (file, first, count) of a register operand; file is empty for anything else."""
    if match := re.fullmatch(r"(v|a|s|ttmp)(\d+)", core):
        return match[1], int(match[2]), 1
    if match := re.fullmatch(r"(v|a|s|ttmp)\[(\d+):(\d+)\]", core):
        return match[1], int(match[2]), int(match[3]) - int(match[2]) + 1
    if core in ("vcc", "exec", "flat_scratch", "xnack_mask"):
        return core, 0, 2
    if re.fullmatch(r"(vcc|exec|flat_scratch|xnack_mask)_(lo|hi)|m0|null", core):
        return core, 0, 1
    return "", 0, 0


def size_bits(operand: Operand) -> int:
    """Return how many register bits the text names; 0 if it is not a register."""
    return 16 if operand.marks & {"lo", "hi"} else 32 * registers(operand.core)[2]


def is_tied(decoded: Decoded, operand: Operand) -> bool:
    """Return whether a register is tied: both read and written.

    Then the disassembler's operand list has it more often than its text.
    """
    file, first, count = registers(operand.core)
    prefix = {"v": "VGPR", "a": "AGPR", "s": "SGPR"}.get(file)
    if prefix is None:
        return False
    name = "_".join(f"{prefix}{first + i}" for i in range(count))
    name += "_LO16" if "lo" in operand.marks else "_HI16" if "hi" in operand.marks else ""
    # The whole text counts, since a dual instruction's halves share one operand list.
    shown = re.findall(rf"(?<![\w:]){re.escape(operand.core)}(?![\w:])", decoded.text)
    return decoded.registers.count(name) > len(shown)


def data_types(mnemonic: str, sizes: list[int], writes: list[bool]) -> list[str]:
    """Return each operand's type from the mnemonic's suffixes, empty if they do not give it.

    The first suffix is the result's type, the last the sources'. An operand of another size gets the suffix that fits.
    """
    suffixes = [part for part in mnemonic.split("_") if _TYPE.fullmatch(part)]
    if not suffixes:
        return [""] * len(sizes)
    types = []
    sources = [i for i, write in enumerate(writes) if not write]
    for i, (size, write) in enumerate(zip(sizes, writes, strict=True)):
        wanted = (
            suffixes[0]
            if write or (_SHARED_SUM.match(mnemonic) and len(sources) == 3 and i == sources[2])
            else suffixes[-1]
        )
        bits = int(re.sub(r"\D+", "", wanted))
        if (size and bits > max(size, 32)) or (size == 64 and bits == 32 and any(s.endswith("64") for s in suffixes)):
            wanted = next((s for s in suffixes if int(re.sub(r"\D+", "", s)) == size), f"b{size}")
        types.append(wanted)
    return types


def is_lane_mask(mnemonic: str, field: str, index: int, last: int) -> bool:
    """Return whether an operand is one bit per lane.

    Such an operand is as wide as the wave: 64 bits in wave64, whatever the wave32 text shows.
    """
    if mnemonic.startswith("v_cmp"):
        return index == 0 and field in ("vdst", "implied")
    if mnemonic.startswith(("v_cndmask_b", "v_dual_cndmask")):
        return index == last and last == 3
    if re.match(r"v_(add|sub|subrev|addc|subb|subbrev)(_co)?(_ci)?_(co_)?u32", mnemonic) and last >= 3:
        return index in (1, 4)
    return bool(re.match(r"v_(div_scale|mad_u64_u32|mad_i64_i32|mad_co_[ui]64)", mnemonic)) and index == 1
