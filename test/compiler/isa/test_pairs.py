"""The (bytes, text) pairs of LLVM's tests, in both directions. Every text assembles to LLVM's bytes, and every word
disassembles to the text that LLVM 22 prints.

Intended differences are listed by kind, with their reason and their number.
"""

import re
from collections import Counter

import pytest

from ringup.compiler.isa.amd import processor
from ringup.compiler.isa.amd.assembly.assembler import Assembler
from ringup.errors import CompileError

WAVES = {"gfx1100": (32, 64), "gfx1151": (32, 64), "gfx1201": (32, 64), "gfx942": (64,), "gfx950": (64,)}
# The number of texts, and how many of them LLVM 22 accepts in some mode with the same bytes as ours.
ASSEMBLED = {
    "gfx1100": (54871, 54427),
    "gfx1151": (856, 856),
    "gfx1201": (51961, 51601),
    "gfx942": (975, 966),
    "gfx950": (1441, 1440),
}
NO_SEXT = "v_pk_fmac_f16_sdwa v5, v1, sext(v2) dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:DWORD"
# Texts that LLVM accepts and we refuse, with the reason.
NOT_TAKEN = {
    "gfx1100": {"v_illegal": "LLVM's own name for the word zero, which is no instruction"},
    "gfx942": {NO_SEXT: "LLVM takes the sign extension of a float and encodes nothing of it"},
    "gfx950": {NO_SEXT: "LLVM takes the sign extension of a float and encodes nothing of it"},
}


# `make fuzz` assembles 52,000 texts of a second family.
LONG = {"gfx1201": pytest.mark.fuzz}


@pytest.mark.parametrize("target", [pytest.param(target, marks=LONG.get(target, ())) for target in WAVES])
def test_every_text_assembles_to_the_same_bytes(target, llvm, mc_pairs):
    texts = sorted({text for _, text in mc_pairs(target)})
    # With .l and .h, or without.
    halves = (True, False) if target.startswith("gfx1") else (True,)
    assemblers = {wave: Assembler(processor(target, wave)) for wave in WAVES[target]}
    taken = Counter()
    same, refused, wrong = 0, [], []
    answers = {wave: [llvm(target, wave, half).assemble(texts) for half in halves] for wave in WAVES[target]}
    for i, text in enumerate(texts):
        for wave in WAVES[target]:
            right = {answer[i] for answer in answers[wave] if isinstance(answer[i], bytes)}
            if not right:
                continue
            taken[text] += 1
            try:
                found = assemblers[wave].instruction_bytes(text)
            except CompileError:
                refused.append(text)
            else:
                same += found in right
                wrong += [] if found in right else [(text, wave, found, right)]
            # Only texts that this wave size refuses need the other one.
            break
    assert wrong == []
    assert refused == list(NOT_TAKEN.get(target, ()))
    assert (len(texts), same) == ASSEMBLED[target]


# Distinct words; those that LLVM 22 decodes without a remark; those with the same text here.
DISASSEMBLED = {
    "gfx1100": (39819, 39755, 39746),
    "gfx1151": (855, 855, 855),
    "gfx1201": (37680, 37631, 37624),
    "gfx942": (975, 975, 974),
    "gfx950": (1441, 1441, 1440),
}
# LLVM's text, ours, and how many on gfx1100, gfx1201, gfx942 and gfx950. LLVM assembles its own text to other bytes, or
# refuses it.
OTHER_TEXTS = {
    r"ds_swizzle_b32 .*:swizzle\(.*": (r"ds_swizzle_b32 v\d+, v\d+ offset:\d+( gds)?", (5, 4, 0, 0)),
    r"s_delay_alu .*/\* invalid .*": (r"s_delay_alu 0x[0-9a-f]+", (1, 1, 0, 0)),
    r"v_(nop|pipeflush)": (r"v_(nop|pipeflush)_e64", (2, 2, 0, 0)),
    r"v_pk_fmac_f16_sdwa v5, v1, v2 .*": (r"v_pk_fmac_f16_sdwa v5, v1, -v2 .*", (0, 0, 1, 1)),
}
# LLVM's own name for the word zero.
NO_INSTRUCTION = {"gfx1100": ["v_illegal"]}


@pytest.mark.parametrize("target", WAVES)
def test_every_word_has_the_text_llvm_prints(target, llvm, mc_pairs):
    words = sorted({word for word, _ in mc_pairs(target)})
    machine = processor(target)
    tool = llvm(target, machine.wave_size)
    told = tool.disassemble(words)
    clean = {word: told[word] for word in words if word in told and "/*Invalid" not in told[word]}
    same, none, others = 0, [], []
    for word, wanted in clean.items():
        instruction = machine.decode(word)
        if instruction is None:
            none.append(wanted)
        elif machine.text(instruction) == wanted and instruction.size_bytes == len(word):
            same += 1
        else:
            others.append((word, wanted, machine.text(instruction)))
    assert none == NO_INSTRUCTION.get(target, [])
    kinds = Counter(
        theirs
        for _, wanted, found in others
        for theirs, (ours, _) in OTHER_TEXTS.items()
        if re.fullmatch(theirs, wanted) and re.fullmatch(ours, found)
    )
    places = ["gfx1100", "gfx1201", "gfx942", "gfx950"]
    counts = {theirs: numbers[places.index(target)] for theirs, (_, numbers) in OTHER_TEXTS.items() if target in places}
    assert (kinds, len(others)) == (Counter({theirs: n for theirs, n in counts.items() if n}), kinds.total())
    assert [
        row for row, back in zip(others, tool.assemble([row[1] for row in others]), strict=True) if back == row[0]
    ] == []
    assert (len(words), len(clean), same) == DISASSEMBLED[target]
