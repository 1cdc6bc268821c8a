"""Instruction facts by enumeration: ask an independent disassembler about every opcode of every format, field by field.

`survey` asks, `render` writes the committed text, `regenerate` does both for every target.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ringup.autogen.generate.isa import bases
from ringup.autogen.generate.isa.classify import kind_of
from ringup.autogen.generate.isa.formats import ERRATA, TARGETS, Format, formats
from ringup.autogen.generate.isa.probe import Decoded, Disassembler, llvm_mc, parse
from ringup.autogen.generate.isa.rows import RETURN_BITS, Case, Row, row_of

FEATURES = {"gfx1100": "+real-true16", "gfx1151": "+real-true16", "gfx1201": "+real-true16", "gfx942": "", "gfx950": ""}
BASE_TARGETS = {"gfx1151": "gfx1100", "gfx950": "gfx942"}  # written as differences from another target
# Extension format (for DPP also with row_newbcast, the only control of 64-bit operands): code in src0, the dword after
# it with src0 = v16.
_EXTENSIONS = {
    "DPP16": (bases.DPP16_CODE, 0xFF00_E410), "DPP8": (bases.DPP8_CODE, 0x0539_7710), "DPP": (bases.DPP16_CODE, 0xFF00_E410),
    "DPP-newbcast": (bases.DPP16_CODE, 0xFF01_5110), "SDWA": (bases.SDWA_CODE, 0x0006_0610), "SDWAB": (bases.SDWA_CODE, 0x0606_0010),
}  # fmt: skip

_SCALAR = re.compile(r"s\d+|s\[\d+:\d+\]")


@dataclass(frozen=True, slots=True)
class Survey:
    """The findings for one target. `stray` counts bits outside every field that changed the text, by format."""

    target: str
    formats: dict[str, Format]
    rows: tuple[Row, ...]
    stray: dict[tuple[str, int], int]
    refused: tuple[Row, ...] = ()  # decoded, but the assembler rejects the text


def survey(disassembler: Disassembler, target: str) -> Survey:
    """Ask `disassembler` about every opcode of every format of `target`."""
    table = formats(target)
    rows: list[Row] = []
    refused: list[Row] = []
    stray: Counter[tuple[str, int]] = Counter()
    for fmt in table.values():
        if fmt.extension:
            continue
        for name, op_field in (
            (f"{fmt.name}{end}", f"op{end.lower()}") for end in (("X", "Y") if "opx" in fmt.fields else ("",))
        ):
            cases = _legal(disassembler, fmt, name, op_field, target)
            _ask_fields(disassembler, cases, op_field)
            _ask_extensions(disassembler, cases, table)
            _confirm_kinds(disassembler, cases)
            found = [row_of(case, stray) for case in cases]
            rows += found
            refused += [row for row, case in zip(found, cases, strict=True) if ("", 0, "") in case.refused]
    return Survey(target, table, tuple(rows), dict(stray), tuple(refused))


def _legal(disassembler: Disassembler, fmt: Format, name: str, op_field: str, target: str) -> list[Case]:
    """Return a case for each opcode of this format that is legal with some variation of the base."""
    # exports have no opcode: one instruction, number 0
    hi, lo = fmt.fields.get(op_field, (-1, 0))
    start = bases.default(fmt, target)
    tries = bases.variations(fmt, target)
    ops = range(1 << hi - lo + 1)
    words = [
        (start | override | ({op_field: op} if op_field in fmt.fields else {}), tail)
        for op in ops
        for override, tail in tries
    ]
    answers = disassembler.decode([_bytes(fmt, values, tail) for values, tail in words])
    taken = disassembler.accepts([answer.text if answer else "" for answer in answers])
    cases = []
    for op in ops:
        span = slice(op * len(tries), (op + 1) * len(tries))
        legal = [
            (values, tail, answer, good)
            for (values, tail), answer, good in zip(words[span], answers[span], taken[span], strict=True)
            if answer is not None and _belongs(fmt, fmt.put(values), answer)
        ]
        # The first that the assembler accepts, or else the first that the disassembler knows.
        if legal:
            values, tail, answer, _ = next((row for row in legal if row[3]), legal[0])
            case = Case(fmt, target, name, op, values, tail, _half(answer, name))
            if "_atomic" in answer.mnemonic:
                case.returning = next(
                    (a for v, t, a, _ in legal if t == tail and _returns(v) and not _returns(values)), None
                )
            cases.append(case)
    return cases


def _returns(values: dict[str, int]) -> bool:
    return any(values.get(name, 0) & bit for name, bit in RETURN_BITS.items())


def _belongs(fmt: Format, word: int, answer: Decoded) -> bool:
    """Return whether a legal word belongs to this format, and not to another with the same identifying bits."""
    mnemonic = answer.mnemonic
    if mnemonic == "v_illegal" or "/*" in answer.text:
        return False
    # SOPK, SOP1, SOPC and SOPP occupy the top of these formats' opcodes.
    if fmt.name in ("SOP2", "SOPK"):
        return (
            word >> 28 != 0b1011
            if fmt.name == "SOP2"
            else word >> 23 not in (0b1_0111_1101, 0b1_0111_1110, 0b1_0111_1111)
        )
    if fmt.name == "VOP2":
        return word >> 25 not in (0b011_1111, 0b011_1110)
    # VOP3P occupies the top of these formats' opcodes.
    if fmt.name in ("VOP3A", "VOP3B") and word >> 23 & 0x1FF == 0b1_1010_0111:
        return False
    second = len(answer.operands) > 1 and answer.operands[1].core.startswith(("s", "vcc", "null"))
    scalar = bool(
        re.match(
            r"v_(div_scale|mad_u64_u32|mad_i64_i32|mad_co_[ui]64)|v_(add|sub|subrev)(_co|_co_ci|c_co|b_co|brev_co)_",
            mnemonic,
        )
    )
    if fmt.name in ("VOP3", "VOP3A"):
        return not (scalar and second)
    if fmt.name in ("VOP3SD", "VOP3B"):
        return scalar and second
    matrix = bool(re.match(r"v_(mfma|smfmac|accvgpr)", mnemonic))
    return (
        matrix if fmt.name == "VOP3P-MAI" else not matrix if fmt.name == "VOP3P" and "opsel_hi2" in fmt.fields else True
    )


def _half(answer: Decoded, name: str) -> Decoded:
    """Return one half of a dual instruction's text, or the answer itself."""
    if name not in ("VOPDX", "VOPDY"):
        return answer
    text = answer.text.split(" :: ")[name == "VOPDY"]
    mnemonic, operands, modifiers = parse(text)
    return replace(answer, mnemonic=mnemonic, operands=operands, modifiers=modifiers)


def _bytes(fmt: Format, values: dict[str, int], tail: bytes) -> bytes:
    return fmt.put(values).to_bytes(fmt.width_bits // 8, "little") + tail


def _ask_fields(disassembler: Disassembler, cases: list[Case], op_field: str) -> None:
    """Try every field of every case with other values, and every bit that belongs to no field."""
    probes: list[bytes] = []
    owners: list[tuple[Case, str, int]] = []
    literal = bases.LITERAL.to_bytes(4, "little")
    # CDNA's 64-bit formats take no literal (CDNA3 ISA 6.2.1), and LLVM crashes on one.
    rdna = disassembler.cpu.startswith("gfx1")
    for case in cases:
        fmt = case.fmt
        free = (1 << fmt.width_bits) - 1 & ~fmt.mask
        for name, (hi, lo) in fmt.fields.items():
            free &= ~((1 << hi - lo + 1) - 1 << lo)
            if name == op_field:
                continue
            for value in bases.probe_values(name, hi - lo + 1, case.base[name]):
                probes.append(_bytes(fmt, case.base | {name: value}, case.tail))
                owners.append((case, name, value))
            if name.startswith(("src", "ssrc")) and not case.tail and (fmt.width_bits == 32 or rdna):
                probes.append(_bytes(fmt, case.base | {name: bases.LITERAL_CODE}, literal))
                owners.append((case, name, -1))
        for bit in range(fmt.width_bits):
            if free >> bit & 1:
                word = fmt.put(case.base) ^ 1 << bit
                probes.append(word.to_bytes(fmt.width_bits // 8, "little") + case.tail)
                owners.append((case, "", bit))
    for (case, name, value), answer in zip(owners, disassembler.decode(probes), strict=True):
        if answer is not None and "/*" in answer.text:
            answer = None
        elif answer is not None:
            answer = _half(answer, case.name)
        if value == -1:
            if answer is not None:
                case.literals[name] = answer
        else:
            case.answers.append((name, value, answer))


def _ask_extensions(disassembler: Disassembler, cases: list[Case], table: dict[str, Format]) -> None:
    """Find the extension dwords that each case accepts."""
    owners, probes = [], []
    for case in cases:
        if "src0" not in case.fmt.fields or case.tail:
            continue
        for name, (code, dword) in _EXTENSIONS.items():
            known = name.partition("-")[0] in table
            if known and (name.startswith("DPP") or (name == "SDWAB") == (case.fmt.name == "VOPC")):
                owners.append((case, name))
                dword |= 0x0600_0000 if name == "SDWA" and "vsrc1" in case.fmt.fields else 0
                probes.append(_bytes(case.fmt, case.base | {"src0": code}, dword.to_bytes(4, "little")))
    for (case, name), answer in zip(owners, disassembler.decode(probes), strict=True):
        if answer is not None and "/*" not in answer.text and name.partition("-")[0] not in case.extensions:
            case.extensions.append(name)


def _confirm_kinds(disassembler: Disassembler, cases: list[Case]) -> None:
    """Ask the assembler about texts of every operand kind found: it refuses kinds that the disassembler accepts.

    Where the other sources are scalars, it may refuse one scalar more than GCN reads. So it is asked with constants in
    their place too.
    """
    is_gcn = disassembler.cpu.startswith("gfx9")
    owners: list[tuple[Case, tuple[str, int, str]]] = []
    texts: list[str] = []
    for case in cases:
        owners.append((case, ("", 0, "")))
        texts.append(case.decoded.text)
        seen: Counter[tuple[str, int, str]] = Counter()
        literals = [(name, 0, answer) for name, answer in case.literals.items()]
        for name, value, answer in [*case.answers, *literals]:
            if answer is None or not bases.feeds_operands(name):
                continue
            for i, (a, b) in enumerate(zip(case.decoded.operands, answer.operands, strict=False)):
                letter = "l" if b.core == hex(bases.LITERAL) and (name, value, answer) in literals else kind_of(b.core)
                if a.core != b.core and seen[name, i, letter] < 2:
                    seen[name, i, letter] += 1
                    alone = _with_constants(answer, i) if is_gcn else answer.text
                    owners += [(case, (name, i, letter))] * (1 + (alone != answer.text))
                    texts += dict.fromkeys((answer.text, alone))
    verdicts: dict[tuple[int, tuple[str, int, str]], bool] = {}
    for (case, key), good in zip(owners, disassembler.accepts(texts), strict=True):
        verdicts[id(case), key] = verdicts.get((id(case), key), False) or good
    for case, key in owners:
        if (verdicts[id(case), ("", 0, "")] or key == ("", 0, "")) and not verdicts[id(case), key]:
            case.refused.add(key)


def _with_constants(answer: Decoded, kept: int) -> str:
    """Return a text with constants instead of scalar sources, one of which is kept."""
    head, *operands = answer.text.split(", ")
    if len(operands) + 1 != len(answer.operands):
        return answer.text
    changed = ("1" if _SCALAR.fullmatch(one) and at != kept else one for at, one in enumerate(operands, 1))
    return ", ".join([head, *changed])


def render(found: Survey, base: Survey | None = None, unsettled: Sequence[str] = ()) -> str:
    """Return the committed text of one target; with `base` only the differences from that target's rows."""
    lines = [f"ringup-isa\t1\t{found.target}\t{base.target if base else '-'}"]
    for fmt in found.formats.values():
        if base is None or base.formats.get(fmt.name) != fmt:
            fields = " ".join(f"{name}:{hi}:{lo}" for name, (hi, lo) in fmt.fields.items())
            kind = "extension" if fmt.extension else "format"
            lines.append(f"{kind}\t{fmt.name}\t{fmt.width_bits}\t{fmt.mask:x}\t{fmt.value:x}\t{fields}")
    before = {row.line() for row in base.rows} if base else set()
    after = {row.line() for row in found.rows}
    kept = {(row.format, row.op) for row in found.rows}
    if base:
        lines += [
            f"gone\t{row.format}\t{row.op:x}"
            for row in base.rows
            if row.line() not in after and (row.format, row.op) not in kept
        ]
    lines += [f"i\t{row.line()}" for row in found.rows if row.line() not in before]
    lines += [f"unsettled\t{line}" for line in unsettled]
    body = "\n".join(lines) + "\n"
    return f"{body}end\t{len(lines)}\t{zlib.crc32(body.encode()):08x}\n"


def unsettled(found: Survey) -> list[str]:
    """Return what the enumeration could not settle."""
    lines = list(ERRATA[found.target])
    for (fmt, bit), count in sorted(found.stray.items()):
        lines.append(
            f"{fmt}: bit {bit} is in no field of the document, yet changes LLVM's text of {count} instructions"
        )
    refused: dict[str, list[str]] = {}
    for row in found.refused:
        refused.setdefault(row.format, []).append(row.mnemonic)
    lines += [
        f"{fmt}: LLVM decodes these and does not assemble what it prints: {' '.join(names)}"
        for fmt, names in refused.items()
    ]
    lines.append("SCC, M0, MODE and FLAT_SCRATCH as implied operands: the disassembler does not show them")
    return lines


def regenerate(command: Sequence[str]) -> dict[str, str]:
    """Return {target: committed text} for every target; `command` starts llvm-mc 22."""
    surveys = {name: survey(Disassembler(command, name, FEATURES[name]), name) for name in TARGETS}
    return {
        name: render(found, surveys.get(BASE_TARGETS.get(name, "")), unsettled(found))
        for name, found in surveys.items()
    }


def generate_isa(llvm_root: Path) -> dict[str, str]:
    """Return the text of every target by its path below `autogen/`, from LLVM 22 unpacked at `llvm_root`.

    This takes a minute.
    """
    return {f"isa/{target}.tsv": text for target, text in regenerate(llvm_mc(llvm_root)).items()}
