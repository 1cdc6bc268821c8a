"""Instruction facts by enumeration: every opcode of every format is put to an independent disassembler, field by field.

`survey` asks, `render` writes the committed text, `regenerate` does both for every target.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from ringup.autogen.generate import isa_bases as bases
from ringup.autogen.generate.isa_classify import data_types, is_lane_mask, is_tied, kind_of, registers, size_bits
from ringup.autogen.generate.isa_formats import ERRATA, TARGETS, Format, formats
from ringup.autogen.generate.isa_probe import Decoded, Disassembler, Operand, parse

FEATURES = {"gfx1100": "+real-true16", "gfx1151": "+real-true16", "gfx1201": "+real-true16", "gfx942": "", "gfx950": ""}
BASE_TARGETS = {"gfx1151": "gfx1100", "gfx950": "gfx942"}  # written as differences from another target
_EXTENSIONS = {  # extension format: code in src0, the dword that follows with src0 = v16
    "DPP16": (bases.DPP16_CODE, 0xFF00_E410), "DPP8": (bases.DPP8_CODE, 0x0539_7710), "DPP": (bases.DPP16_CODE, 0xFF00_E410),
    "SDWA": (bases.SDWA_CODE, 0x0006_0610), "SDWAB": (bases.SDWA_CODE, 0x0606_0010),
}  # fmt: skip
_RETURN_BITS = {"glc": 1, "sc0": 1, "th": 1}  # the bit that makes an atomic return what it found
_KIND_ORDER = "vastcxmnkpdoFXPifl"


@dataclass(frozen=True, slots=True)
class Row:
    """One instruction: operands and modifiers are in the committed text's notation."""

    format: str
    op: int
    mnemonic: str
    operands: tuple[str, ...]
    modifiers: tuple[str, ...]
    flags: tuple[str, ...]

    def line(self) -> str:
        """Return the committed line."""
        columns = (" ".join(self.operands), " ".join(self.modifiers), " ".join(self.flags))
        return "\t".join((self.format, f"{self.op:x}", self.mnemonic, *(column or "-" for column in columns)))


@dataclass(slots=True)
class _Case:
    """An opcode under survey: where its probes start and what came back."""

    fmt: Format
    target: str
    name: str  # format name of the row; VOPDX and VOPDY share VOPD's layout
    op: int
    base: dict[str, int]
    tail: bytes
    decoded: Decoded
    answers: list[tuple[str, int, Decoded | None]] = field(default_factory=list)  # field, value, answer
    literals: dict[str, Decoded] = field(default_factory=dict)
    extensions: list[str] = field(default_factory=list)
    returning: Decoded | None = None
    refused: set[tuple[str, int, str]] = field(
        default_factory=set
    )  # (field, operand, kind) the assembler does not take


@dataclass(frozen=True, slots=True)
class Survey:
    """All that was found of one target; `stray` counts bits outside every field that changed the text, by format."""

    target: str
    formats: dict[str, Format]
    rows: tuple[Row, ...]
    stray: dict[tuple[str, int], int]
    refused: tuple[Row, ...] = ()  # decoded, but the assembler does not take the text back


def survey(disassembler: Disassembler, target: str) -> Survey:
    """Put every opcode of every format of `target` to `disassembler`."""
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
            found = [_row(case, stray) for case in cases]
            rows += found
            refused += [row for row, case in zip(found, cases, strict=True) if ("", 0, "") in case.refused]
    return Survey(target, table, tuple(rows), dict(stray), tuple(refused))


def _legal(disassembler: Disassembler, fmt: Format, name: str, op_field: str, target: str) -> list[_Case]:
    """Return a case for each opcode that some variation of the base makes legal and that belongs to this format."""
    hi, lo = fmt.fields.get(op_field, (-1, 0))  # exports have no opcode: one instruction, number 0
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
        if legal:  # the first the assembler takes back; failing that, the first the disassembler knows
            values, tail, answer, _ = next((row for row in legal if row[3]), legal[0])
            case = _Case(fmt, target, name, op, values, tail, _half(answer, name))
            if "_atomic" in answer.mnemonic:
                case.returning = next(
                    (a for v, t, a, _ in legal if t == tail and _returns(v) and not _returns(values)), None
                )
            cases.append(case)
    return cases


def _returns(values: dict[str, int]) -> bool:
    return any(values.get(name, 0) & bit for name, bit in _RETURN_BITS.items())


def _belongs(fmt: Format, word: int, answer: Decoded) -> bool:
    """Tell whether a legal word is an instruction of this format and not of another that shares its identifying bits."""
    mnemonic = answer.mnemonic
    if mnemonic == "v_illegal" or "/*" in answer.text:
        return False
    if fmt.name in ("SOP2", "SOPK"):  # SOPK, SOP1, SOPC and SOPP are carved out of the top of these
        return (
            word >> 28 != 0b1011
            if fmt.name == "SOP2"
            else word >> 23 not in (0b1_0111_1101, 0b1_0111_1110, 0b1_0111_1111)
        )
    if fmt.name == "VOP2":
        return word >> 25 not in (0b011_1111, 0b011_1110)
    if fmt.name in ("VOP3A", "VOP3B") and word >> 23 & 0x1FF == 0b1_1010_0111:  # VOP3P lies at the top of their opcodes
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


def _ask_fields(disassembler: Disassembler, cases: list[_Case], op_field: str) -> None:
    """Try every field of every case with other values, and every bit that belongs to no field."""
    probes: list[bytes] = []
    owners: list[tuple[_Case, str, int]] = []
    literal = bases.LITERAL.to_bytes(4, "little")
    rdna = disassembler.cpu.startswith(
        "gfx1"
    )  # CDNA's 64-bit formats take no literal (CDNA3 ISA 6.2.1), and LLVM crashes when asked
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


def _ask_extensions(disassembler: Disassembler, cases: list[_Case], table: dict[str, Format]) -> None:
    """Find which extension dwords each case takes."""
    owners, probes = [], []
    for case in cases:
        if "src0" not in case.fmt.fields or case.tail:
            continue
        for name, (code, dword) in _EXTENSIONS.items():
            if (name in table and (name == "SDWAB") == (case.fmt.name == "VOPC")) or (
                name.startswith("DPP") and name in table
            ):
                owners.append((case, name))
                dword |= 0x0600_0000 if name == "SDWA" and "vsrc1" in case.fmt.fields else 0
                probes.append(_bytes(case.fmt, case.base | {"src0": code}, dword.to_bytes(4, "little")))
    for (case, name), answer in zip(owners, disassembler.decode(probes), strict=True):
        if answer is not None and "/*" not in answer.text:
            case.extensions.append(name)


def _confirm_kinds(disassembler: Disassembler, cases: list[_Case]) -> None:
    """Put one text of every kind an operand showed to the assembler, which refuses what the disassembler merely lets pass."""
    owners: list[tuple[_Case, tuple[str, int, str]]] = []
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
                    owners.append((case, (name, i, letter)))
                    texts.append(answer.text)
    verdicts: dict[tuple[int, tuple[str, int, str]], bool] = {}
    for (case, key), good in zip(owners, disassembler.accepts(texts), strict=True):
        verdicts[id(case), key] = verdicts.get((id(case), key), False) or good
    for case, key in owners:
        if (verdicts[id(case), ("", 0, "")] or key == ("", 0, "")) and not verdicts[id(case), key]:
            case.refused.add(key)


def _row(case: _Case, stray: Counter[tuple[str, int]]) -> Row:
    """Turn the answers of one case into a row."""
    base = case.decoded
    feeds: dict[int, Counter[str]] = {}  # operand -> fields that change it
    sole: dict[int, Counter[str]] = {}  # the same, where nothing else changed
    effects: dict[tuple[str, str], int] = {}  # (field, effect) -> bits
    kinds: dict[tuple[str, int], set[str]] = {}
    texts: dict[tuple[str, int], list[str]] = {}
    for name, value, answer in case.answers:
        if answer is None:
            continue
        if not name:
            if answer.text != base.text:
                stray[case.name, value] += 1
            continue
        bits = value ^ case.base[name]
        changed = [i for i, (a, b) in enumerate(zip(base.operands, answer.operands, strict=False)) if a.core != b.core]
        for i in changed if bases.feeds_operands(name) else ():
            feeds.setdefault(i, Counter())[name] += 1
            if len(changed) == 1 and len(answer.operands) == len(base.operands):
                sole.setdefault(i, Counter())[name] += 1
            kinds.setdefault((name, i), set()).add(kind_of(answer.operands[i].core))
            texts.setdefault((name, i), []).append(answer.operands[i].core)
        for effect in _effects(base, answer):
            key = (name, effect)
            effects[key] = effects.get(key, 0) | (bits if bits & bits - 1 == 0 else 0)
    owner = _owners(len(base.operands), feeds, sole)
    operands, flags = _operands(case, owner, kinds, texts), []
    modifiers = _modifiers(case, owner, effects)
    flags += [name.lower() for name in case.extensions]
    if case.returning is not None:
        flags.append("returns")
        operands = _with_result(case, operands)
    start = bases.default(case.fmt, case.target)
    flags += [  # no word with this field at its usual value was legal
        f"needs-{name}={value}"
        for name, value in case.base.items()
        if value != start[name] and not name.startswith("op") and case.fmt.fields[name][0] == case.fmt.fields[name][1]
    ]
    if case.tail:
        flags.append("nsa" if "nsa" in case.fmt.fields else "tail")
    return Row(case.name, case.op, base_name(base.mnemonic), tuple(operands), tuple(modifiers), tuple(flags))


def base_name(mnemonic: str) -> str:
    """Return the mnemonic without the suffix that only names the encoding."""
    return re.sub(r"(_e32|_e64|_dpp|_sdwa|_e64_dpp)$", "", mnemonic)


def _effects(base: Decoded, answer: Decoded) -> Iterable[str]:
    """Name what differs besides the operands' registers."""
    if answer.mnemonic != base.mnemonic:
        yield "mnemonic"
    before, after = dict(base.modifiers), dict(answer.modifiers)
    for name in before.keys() | after.keys():
        if before.get(name) != after.get(name):
            yield "omod" if name in ("mul", "div") else name
    if len(base.operands) != len(answer.operands):
        yield "operands"
    for a, b in zip(base.operands, answer.operands, strict=False):
        for mark in a.marks ^ b.marks:
            if mark not in ("lo", "hi"):
                yield mark
        if {"lo", "hi"} <= a.marks ^ b.marks:
            yield "half"


def _owners(count: int, feeds: dict[int, Counter[str]], sole: dict[int, Counter[str]]) -> dict[int, str]:
    """Choose the field that feeds each operand: the one that changes nothing else, else the one that is left."""
    owner: dict[int, str] = {}
    for source in (sole, feeds):
        for i in range(count):
            if i not in owner and i in source:
                free = [(n, name) for name, n in source[i].items() if name not in owner.values()]
                if free:
                    owner[i] = max(free)[1]
    return owner


def _direction(case: _Case, name: str, operand: Operand) -> str:
    """Return d (written), u (read) or b (both), by the field, the mnemonic and the disassembler's tied operands."""
    mnemonic = case.decoded.mnemonic
    accumulates = re.match(r"v_(dual_)?(fmac|mac|dot\d+c|dot\d+acc|pk_fmac)_", mnemonic) and name.startswith("vdst")
    if (
        accumulates
        or is_tied(case.decoded, operand)
        or (re.match(r"s_(cmov|bitset|addk|mulk)", mnemonic) and name == "sdst")
    ):
        return "b"
    if name == "sdst":
        return "u" if re.match(r"s_(cmpk|setreg|waitcnt|subvector)", mnemonic) else "d"
    if name in ("vdst", "vdstx", "vdsty"):
        return "d"
    if name in ("vdata", "sdata"):
        return "u" if re.search(r"_(store|atomic|prefetch)|_probe|^s_(dcache|atc)", mnemonic) else "d"
    return "u"


def _operands(
    case: _Case, owner: dict[int, str], kinds: dict[tuple[str, int], set[str]], texts: dict[tuple[str, int], list[str]]
) -> list[str]:
    base = case.decoded
    found = []
    for i, operand in enumerate(base.operands):
        name = owner.get(i, "")
        letters = {kind_of(operand.core)} | {
            letter for letter in kinds.get((name, i), set()) if (name, i, letter) not in case.refused
        }
        size = size_bits(operand)
        if not size:
            counts = Counter(registers(text)[2] for text in texts.get((name, i), ()) if kind_of(text) in "vs")
            size = 32 * max(counts, key=lambda n: (counts[n], n), default=0)
        if (
            name in case.literals
            and i < len(case.literals[name].operands)
            and "0x1234" in case.literals[name].text
            and (name, i, "l") not in case.refused
        ):
            letters.add("l")
        if not name and case.tail and operand.core == "0x1234":
            name, letters = "literal", {"l"}
        if len(letters) > 1 and letters & set("GHWDU"):
            letters -= {"i"}
        if name.startswith("simm") and re.match(r"s_(c?branch|call|subvector)", base.mnemonic):
            letters = {"L"}
        direction = _direction(case, name, operand) if name else _implied_direction(case, i)
        found.append((name or "implied", direction, "".join(sorted(letters, key=_letter_order)), size, operand))
    found += _hidden(case)
    types = data_types(base.mnemonic, [row[3] for row in found], [row[1] != "u" for row in found])
    last = len(base.operands) - 1
    types = [
        "mask"
        if row[0] == "hidden" or is_lane_mask(base.mnemonic, row[0], i, last)
        else ""
        if bases.is_address(row[0])
        else kind
        for i, (row, kind) in enumerate(zip(found, types, strict=True))
    ]
    return [
        f"{name}:{direction}:{letters}:{size}:{kind}" + (f"={operand.core}" if name in ("implied", "hidden") else "")
        for (name, direction, letters, size, operand), kind in zip(found, types, strict=True)
    ]


def _hidden(case: _Case) -> list[tuple[str, str, str, int, Operand]]:
    """Registers that the text does not name. Source: ISA documents, "V_DIV_FMAS", "V_CMPX", dual V_CNDMASK: EXEC and VCC only, not SCC."""
    mnemonic = case.decoded.mnemonic
    wave32 = case.target.startswith("gfx1")
    size = 32 if wave32 else 64
    if re.match(r"v_(div_fmas|dual_cndmask)", mnemonic):
        return [("hidden", "u", "c", size, Operand("vcc_lo" if wave32 else "vcc"))]
    if mnemonic.startswith("v_cmpx"):
        return [("hidden", "d", "x", size, Operand("exec_lo" if wave32 else "exec"))]
    return []


def _letter_order(letter: str) -> tuple[int, str]:
    return (_KIND_ORDER.find(letter) % 64, letter)


def _implied_direction(case: _Case, index: int) -> str:
    """An operand no field feeds: the first is written by compares, the second by carries, all others are read."""
    core = case.decoded.operands[index].core
    if not core.startswith(("vcc", "exec", "scc", "null")):
        return "u"
    vector_compare = case.fmt.name == "VOPC" and index == 0
    carry = index == 1 and bool(re.match(r"v_(add|sub|subrev|addc|subb|subbrev)_", case.decoded.mnemonic))
    return "d" if vector_compare or carry else "u"


def _with_result(case: _Case, operands: list[str]) -> list[str]:
    """Add what a returning atomic writes: its extra operand, or the data operand in both directions."""
    assert case.returning is not None
    if len(case.returning.operands) == len(case.decoded.operands):
        return [re.sub(r"^(v|s)data:u:", r"\1data:b:", text) for text in operands]
    size = size_bits(case.returning.operands[0])
    return [f"vdst:d:{kind_of(case.returning.operands[0].core)}:{size}:b{size}", *operands]


def _modifiers(case: _Case, owner: dict[int, str], effects: dict[tuple[str, str], int]) -> list[str]:
    """Return `field:bits:effect` for every field that changes the text beyond an operand's register."""
    found = []
    for (name, effect), bits in sorted(effects.items()):
        if not bits or (effect == "operands" and name in _RETURN_BITS) or (name in owner.values() and effect != "half"):
            continue
        signed = effect.startswith(("offset", "inst_offset")) and any(
            n == name and answer is not None and re.match(r"-", dict(answer.modifiers).get(effect, ""))
            for n, value, answer in case.answers
        )
        found.append(f"{name}:{bits:x}:{effect}" + (":s" if signed else ""))
    return found


def render(found: Survey, base: Survey | None = None, unsettled: Sequence[str] = ()) -> str:
    """Return the committed text of one target; with `base`, only what differs from that target's rows."""
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
    """Say what the enumeration could not settle."""
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
