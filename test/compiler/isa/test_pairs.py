"""LLVM's own (bytes, text) pairs, both ways: every text assembles to LLVM's bytes, every word's text is what LLVM 22 prints for it today.

What is meant to differ is listed by kind with its reason, and counted.
"""

import re
from collections import Counter

import pytest

from ringup.compiler.isa import processor
from ringup.compiler.isa.assembler import Assembler
from ringup.errors import CompileError

WAVES = {"gfx1100": (32, 64), "gfx1151": (32, 64), "gfx1201": (32, 64), "gfx942": (64,), "gfx950": (64,)}
# texts; texts that LLVM 22 takes in some mode, and that give the same bytes here; texts by the reason why they do not
ASSEMBLED = {
    "gfx1100": (54871, 54427, {"v_illegal is LLVM's own name for the word zero, which is no instruction": 1}),
    "gfx1151": (856, 856, {}),
    "gfx1201": (51961, 51601, {}),
    "gfx942": (975, 961, {"a DPP or SDWA encoding that the row of facts lacks": 6}),
    "gfx950": (1441, 1435, {"a DPP or SDWA encoding that the row of facts lacks": 6}),
}


def why_not_assembled(text):
    if text == "v_illegal":
        return "v_illegal is LLVM's own name for the word zero, which is no instruction"
    if re.match(r"v_(cvt_(pk_)?f32_[fb][fp]8|mov_b64)_(dpp|sdwa)|v_pk_fmac_f16_sdwa", text):
        return "a DPP or SDWA encoding that the row of facts lacks"
    return None


@pytest.mark.parametrize("target", WAVES)
def test_every_text_assembles_to_the_same_bytes(target, llvm, mc_pairs):
    texts = sorted({text for _, text in mc_pairs(target)})
    halves = (True, False) if target.startswith("gfx1") else (True,)  # .l and .h, or none
    assemblers = {wave: Assembler(processor(target, wave)) for wave in WAVES[target]}
    taken = Counter()
    same, reasons, wrong = 0, Counter(), []
    answers = {wave: [llvm(target, wave, half).assemble(texts) for half in halves] for wave in WAVES[target]}
    for i, text in enumerate(texts):
        for wave in WAVES[target]:
            right = {answer[i] for answer in answers[wave] if isinstance(answer[i], bytes)}
            if not right:
                continue
            taken[text] += 1
            try:
                found = assemblers[wave].instruction_bytes(text)
            except CompileError as error:
                found = error
            if found in right:
                same += 1
            else:
                reason = why_not_assembled(text)
                reasons.update([reason] if reason else [])
                wrong += [] if reason else [(text, wave, found, right)]
            break  # the other wave size is told apart by texts that only it takes
    assert wrong == []
    assert (len(texts), same, dict(reasons)) == ASSEMBLED[target]


# distinct words; those LLVM 22 decodes without a remark of its own; the same text here; words by the reason for another one
DISASSEMBLED = {
    "gfx1100": (39819, 39755, 39746, {
        "the plain number: LLVM's swizzle drops bits": 5, "the plain number: LLVM prints invalid delays as remarks": 1,
        "the suffix tells the long encoding": 2, "v_illegal is no instruction": 1,
    }),
    "gfx1151": (855, 855, 855, {}),
    "gfx1201": (37680, 37631, 37623, {
        "the plain number: LLVM's swizzle drops bits": 4, "the plain number: LLVM prints invalid delays as remarks": 1,
        "the plain number: LLVM prints an expression": 1, "the suffix tells the long encoding": 2,
    }),
    "gfx942": (975, 975, 969, {"a DPP or SDWA encoding that the row of facts lacks": 6}),
    "gfx950": (1441, 1441, 1435, {"a DPP or SDWA encoding that the row of facts lacks": 6}),
}  # fmt: skip


def why_another_text(wanted, found):
    if found == f"{wanted}_e64" and wanted in ("v_nop", "v_pipeflush"):
        return "the suffix tells the long encoding"
    if "swizzle(" in wanted and re.search(r"offset:\d+", found or ""):
        return "the plain number: LLVM's swizzle drops bits"
    if "invalid instid" in wanted:
        return "the plain number: LLVM prints invalid delays as remarks"
    if wanted.startswith("s_version (("):
        return "the plain number: LLVM prints an expression"
    if wanted == "v_illegal":
        return "v_illegal is no instruction"
    if re.match(r"v_(cvt_(pk_)?f32_[fb][fp]8|mov_b64)_(dpp|sdwa)|v_pk_fmac_f16_sdwa", wanted):
        return "a DPP or SDWA encoding that the row of facts lacks"
    return None


@pytest.mark.parametrize("target", WAVES)
def test_every_word_has_the_text_llvm_prints(target, llvm, mc_pairs):
    words = sorted({word for word, _ in mc_pairs(target)})
    machine = processor(target)
    told = llvm(target, machine.wave_size).disassemble(words)
    clean = {word: told[word] for word in words if word in told and "/*Invalid" not in told[word]}
    same, reasons, wrong = 0, Counter(), []
    for word, wanted in clean.items():
        instruction = machine.decode(word)
        found = machine.text(instruction) if instruction else None
        if found == wanted and instruction.size_bytes == len(word):
            same += 1
            continue
        reason = why_another_text(wanted, found)
        reasons.update([reason] if reason else [])
        wrong += [] if reason else [(word.hex(), wanted, found)]
    assert wrong == []
    assert (len(words), len(clean), same, dict(reasons)) == DISASSEMBLED[target]
