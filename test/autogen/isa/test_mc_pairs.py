"""The facts compared with the pairs of LLVM's tests: the bytes give format and opcode, the text gives mnemonic and
operands.
"""

import re
from collections import Counter

import pytest

from ringup.autogen import isa
from ringup.autogen.generate.isa.classify import size_bits
from ringup.autogen.generate.isa.probe import parse
from ringup.autogen.generate.isa.rows import base_name

# Three numbers of each target: pairs; pairs whose mnemonic agrees; instructions whose every operand agrees in number
# and size. A dual instruction counts twice.
AGREEING = {
    "gfx1100": (54873, 54872, 37692),
    "gfx1151": (856, 856, 854),
    "gfx1201": (51963, 51963, 37268),
    "gfx942": (976, 976, 958),
    "gfx950": (1442, 1442, 1308),
}
# LLVM prints these texts for words that are no instruction.
ILLEGAL = {"gfx1100": ["v_illegal"]}


def facts_of(data, text, target):
    found = isa.target(target).identify(data)
    halves = text.split(" :: ")
    return list(zip(found, halves, strict=True)) if len(found) == len(halves) else []


@pytest.mark.parametrize("target", isa.TARGETS)
def test_bytes_lead_to_the_mnemonic_llvm_prints(target, mc_pairs):
    pairs = mc_pairs(target)
    wrong = []
    for data, text in pairs:
        rows = facts_of(data, text, target)
        if not rows or any(row.mnemonic != base_name(half.split(" ")[0]) for row, half in rows):
            wrong.append(text)
    assert (len(pairs), len(pairs) - len(wrong)) == AGREEING[target][:2]
    assert wrong == ILLEGAL.get(target, [])


def why_count_differs(row, operands, text, facts):
    """Explain why a text has another number of operands than the facts; None if nothing explains it."""
    if "/*Invalid" in text:
        return "LLVM prints a remark about an operand it does not allow"
    if "returns" in row.flags and len(facts) - len(operands) == 1:
        return "an atomic that returns nothing has no vdst"
    if text == "s_endpgm":
        return "an operand that is left out when zero"
    if row.format in ("VIMAGE", "VSAMPLE", "MIMG"):
        return "addresses depend on dim, a16 and nsa"
    if row.mnemonic.startswith(("flat_atomic_pk", "global_atomic_pk")) or "lds" in text.split():
        return "data goes to or comes from elsewhere"
    return None


def why_size_differs(row, fact, size, text):
    """Explain why a register has another size than in the facts; None if nothing explains it."""
    if fact.size_bits == 16 and size == 32:
        return "a 16-bit operand in a register that has no halves, or in LLVM's older spelling"
    if fact.type == "mask" and {fact.size_bits, size} == {32, 64}:
        return "a lane mask in wave64"
    if re.match(r"v_s?wmm|global_load_tr", row.mnemonic) and size < fact.size_bits:
        return "a matrix spread over the 64 lanes of wave64"
    if row.format in ("MIMG", "VIMAGE", "VSAMPLE"):
        return "image data and addresses depend on dmask, dim, a16, d16 and tfe"
    if "f8f6f4" in row.mnemonic and fact.field in ("src0", "src1"):
        return "cbsz and blgp choose the matrix formats, and with them the sizes"
    if row.format in ("GLOBAL", "VGLOBAL") and fact.field in ("addr", "vaddr") and (fact.size_bits, size) == (64, 32):
        return "with saddr the address register is an offset"
    if fact.field == "vaddr" and re.search(r"idxen offen|offen idxen", text) and size == 64:
        return "index and offset"
    if "tfe" in text.split() and fact.field == "vdata" and size == fact.size_bits + 32:
        return "tfe adds a status dword"
    return None


@pytest.mark.parametrize("target", isa.TARGETS)
def test_operands_agree_in_number_and_size_or_the_difference_has_a_reason(target, mc_pairs):
    agreeing, reasons, unexplained = 0, Counter(), []
    for data, text in mc_pairs(target):
        for row, half in facts_of(data, text, target):
            _, operands, _ = parse(half)
            facts = [fact for fact in row.operands if fact.field != "hidden"]
            if len(facts) != len(operands):
                found = [why_count_differs(row, operands, half, facts)]
            else:
                sizes = [
                    (fact, size_bits(operand))
                    for fact, operand in zip(facts, operands, strict=True)
                    if operand.core != "null"
                ]
                found = [
                    why_size_differs(row, fact, size, half)
                    for fact, size in sizes
                    if size and fact.size_bits and size != fact.size_bits
                ]
            agreeing += not found
            reasons.update(filter(None, found))
            unexplained += [half for reason in found if reason is None]
    assert unexplained == []
    assert agreeing == AGREEING[target][2], reasons
