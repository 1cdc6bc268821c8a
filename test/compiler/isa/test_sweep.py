"""Every form of every instruction with random operands and modifiers, both ways through LLVM 22: our text assembles there to our bytes, and our
bytes read back there as our text."""

import random
import re
from collections import Counter

import pytest

from ringup.compiler.isa import processor
from ringup.errors import CompileError

TRIES = 12  # a random one may break a rule that holds between operands
DIFFERENCES = (  # reason, what our text looks like, what LLVM said of it
    ("the suffix tells the long encoding", r"v_(nop|pipeflush)_e64$", r"v_(nop|pipeflush)$"),
    ("the plain number: LLVM's swizzle drops bits", r"ds_swizzle_b32 .*offset:\d+", r".*swizzle\("),
    ("LLVM does not take back what it prints of a high half", r"v_fmac_f16_e64(_dpp)? v\d+\.h", r"op_sel operand conflicts"),
    ("LLVM has no register range of that size", r"image_gather4.* tfe.* d16|image_msaa_load.*tfe", r"invalid operand"),
    ("LLVM does not decode what it assembles", r"v_(fmac_f\d+|cvt_pk_[bf][fp]8_f32|fma_mix\w+|fma_mix_f32)_e64_dpp", r"None"),
    ("LLVM's bars stand around the next operand", r"v_cndmask_b32_dpp .*\|, vcc", r".*, vcc(_lo)?\|"),
)  # fmt: skip
# (target, wave size): forms, instructions of each
COUNTS = {
    ("gfx1100", 32): (2558, 3),
    ("gfx1100", 64): (2558, 1),
    ("gfx1201", 32): (2637, 3),
    ("gfx1201", 64): (2637, 1),
    ("gfx1151", 32): (2616, 1),
}


def reason_of(text, said):
    return next(
        (why for why, ours, theirs in DIFFERENCES if re.match(ours, text) and re.match(theirs, str(said))), None
    )


@pytest.mark.parametrize(("target", "wave"), COUNTS)
def test_random_instructions_pass_through_llvm_both_ways(target, wave, llvm, maker):
    machine = processor(target, wave)
    make = maker(machine, random.Random(f"{target} {wave}"))
    forms, each = COUNTS[target, wave]
    rows, never, seen = [], [], 0
    for mnemonic in machine.mnemonics:
        for form in machine.forms(mnemonic):
            if form.row.format in ("VOPDX", "VOPDY"):
                continue
            seen += 1
            made = []
            for _ in range(TRIES * each):
                operands, modifiers = make.instruction(form)
                try:
                    word = machine.encode(form.mnemonic, operands, **modifiers)
                except CompileError:
                    continue
                made.append(word)
                if len(made) == each:
                    break
            rows += made
            never += [] if made else [form.mnemonic]
    assert seen == forms
    assert [
        name for name in never if not name.startswith("s_waitcnt_")
    ] == []  # those want null, one in six of what is tried
    texts = [machine.text(machine.decode(word)) for word in rows]
    tool = llvm(target, wave)
    assembled = tool.assemble(texts)
    told = tool.disassemble(rows)
    reasons, wrong = Counter(), []
    for word, text, code in zip(rows, texts, assembled, strict=True):
        said = code if code != word else told.get(word)
        if code == word and said == text:
            continue
        reason = reason_of(text, said)
        reasons.update([reason] if reason else [])
        wrong += [] if reason else [(text, word.hex(), said)]
    assert wrong == []
    assert sum(reasons.values()) < len(rows) // 100, reasons


@pytest.mark.parametrize("target", ["gfx1100", "gfx1201"])
def test_random_dual_instructions_are_taken_or_refused_as_by_llvm(target, llvm, maker):
    machine = processor(target)
    pick = random.Random(target)
    make = maker(machine, pick)
    halves = {
        side: [f for name in machine.mnemonics for f in machine.forms(name) if f.row.format == f"VOPD{side}"]
        for side in "XY"
    }
    assert (len(halves["X"]), len(halves["Y"])) == (14, 17)
    texts, found = [], []
    for _ in range(3000):
        parts = []
        for side in "XY":
            form = pick.choice(halves[side])
            operands = [make.operand(form, slot, 1) for slot in form.slots]
            parts.append((form.mnemonic, operands))
        shown = [f"{name} {', '.join(plain(operand) for operand in operands)}" for name, operands in parts]
        texts.append(" :: ".join(shown))
        try:
            found.append(machine.encode_dual(*parts))
        except CompileError:
            found.append(None)
    told = llvm(target).assemble(texts)
    assert [
        (t, f, c) for t, f, c in zip(texts, found, told, strict=True) if f != (c if isinstance(c, bytes) else None)
    ] == []
    good = [code for code in found if code]
    assert len(good) > 200
    decoded = llvm(target).disassemble(good)
    assert [machine.text(machine.decode(code)) for code in good] == [decoded[code] for code in good]


def plain(operand):
    value = getattr(operand, "value", None)
    return (
        hex(value)
        if isinstance(value, int)
        else hex(operand)
        if isinstance(operand, int) and operand > 64
        else str(operand)
    )
