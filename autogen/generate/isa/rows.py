"""Turn one opcode's answers into a row: which field feeds which operand, kinds, sizes, directions, modifiers."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from ringup.autogen.generate.isa import bases
from ringup.autogen.generate.isa.classify import data_types, is_lane_mask, is_tied, kind_of, registers, size_bits
from ringup.autogen.generate.isa.formats import Format
from ringup.autogen.generate.isa.probe import Decoded, Operand

RETURN_BITS = {"glc": 1, "sc0": 1, "th": 1}  # the bit that makes an atomic return the old value
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
class Case:
    """An opcode under survey: where its probes start, and their answers."""

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
    # (field, operand, kind) that the assembler rejects.
    refused: set[tuple[str, int, str]] = field(default_factory=set)


def row_of(case: Case, stray: Counter[tuple[str, int]]) -> Row:
    """Turn the answers of one case into a row."""
    base = case.decoded
    # operand -> fields that change it
    feeds: dict[int, Counter[str]] = {}
    # the same, if nothing else changed
    sole: dict[int, Counter[str]] = {}
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
    # No word with such a field at its default value was legal.
    flags += [
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
    """Yield the names of all differences besides the operands' registers."""
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
    """Choose the field that feeds each operand: the one that changes nothing else, otherwise the one that is left."""
    owner: dict[int, str] = {}
    for source in (sole, feeds):
        for i in range(count):
            if i not in owner and i in source:
                free = [(n, name) for name, n in source[i].items() if name not in owner.values()]
                if free:
                    owner[i] = max(free)[1]
    return owner


def _direction(case: Case, name: str, operand: Operand) -> str:
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
    case: Case, owner: dict[int, str], kinds: dict[tuple[str, int], set[str]], texts: dict[tuple[str, int], list[str]]
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


def _hidden(case: Case) -> list[tuple[str, str, str, int, Operand]]:
    """Return registers that the text does not name: EXEC and VCC only, not SCC.

    Source: ISA documents, "V_DIV_FMAS", "V_CMPX", dual V_CNDMASK.
    """
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


def _implied_direction(case: Case, index: int) -> str:
    """Return the direction of an operand that no field feeds.

    Compares write the first, carries the second; all others are read.
    """
    core = case.decoded.operands[index].core
    if not core.startswith(("vcc", "exec", "scc", "null")):
        return "u"
    vector_compare = case.fmt.name == "VOPC" and index == 0
    carry = index == 1 and bool(re.match(r"v_(add|sub|subrev|addc|subb|subbrev)_", case.decoded.mnemonic))
    return "d" if vector_compare or carry else "u"


def _with_result(case: Case, operands: list[str]) -> list[str]:
    """Add the result of a returning atomic: its extra operand, or the data operand in both directions."""
    assert case.returning is not None
    if len(case.returning.operands) == len(case.decoded.operands):
        return [re.sub(r"^(v|s)data:u:", r"\1data:b:", text) for text in operands]
    size = size_bits(case.returning.operands[0])
    return [f"vdst:d:{kind_of(case.returning.operands[0].core)}:{size}:b{size}", *operands]


def _modifiers(case: Case, owner: dict[int, str], effects: dict[tuple[str, str], int]) -> list[str]:
    """Return `field:bits:effect` for every field that changes the text beyond an operand's register."""
    found = []
    for (name, effect), bits in sorted(effects.items()):
        if not bits or (effect == "operands" and name in RETURN_BITS) or (name in owner.values() and effect != "half"):
            continue
        signed = effect.startswith(("offset", "inst_offset")) and any(
            n == name and answer is not None and re.match(r"-", dict(answer.modifiers).get(effect, ""))
            for n, value, answer in case.answers
        )
        found.append(f"{name}:{bits:x}:{effect}" + (":s" if signed else ""))
    return found
