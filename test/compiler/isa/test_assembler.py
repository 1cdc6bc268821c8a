"""The text assembler: the texts it accepts, and the errors it reports."""

import contextlib
import random
import re

import pytest

from ringup.compiler.isa.amd import processor
from ringup.compiler.isa.amd.assembly.assembler import assemble
from ringup.compiler.isa.amd.objects import elf_write
from ringup.compiler.isa.common.lexer import AssemblyError
from ringup.errors import CompileError


def code(text, target="gfx1100"):
    return assemble(text, processor(target)).text


def words(text, target="gfx1100"):
    data = code(text, target)
    return [int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data), 4)]


def test_branches_reach_labels_before_and_after():
    # llvm-mc, gfx1100: s_branch 1, s_nop 0, s_branch -2
    assert words("a:\n s_branch b\n s_nop 0\nb: s_branch a") == [0xBFA00001, 0xBF800000, 0xBFA0FFFD]


def test_numbered_labels_are_the_nearest():
    assert words("1: s_nop 0\n1: s_branch 1b\n s_branch 1f\n1: s_nop 1") == [
        0xBF800000,
        0xBFA0FFFF,
        0xBFA00000,
        0xBF800001,
    ]


def test_symbols_expressions_and_register_names():
    text = "count = 3\n.set twice, count * 2\nacc = v5\n v_mov_b32 acc, twice + 1\n s_nop (twice << 1) | 1"
    assert words(text) == [0x7E0A0287, 0xBF80000D]


def test_data_directives():
    text = '.byte 1, 2\n.short 0x304\n.long end - start\n.quad -1\n.ascii "ab"\n.fill 2, 1, 7\nstart:\n.zero 4\nend:'
    assert code(text) == bytes([1, 2, 4, 3, 4, 0, 0, 0]) + b"\xff" * 8 + b"ab\7\7" + bytes(4)


def test_alignment_of_code_is_filled_with_nops():
    assert words("s_endpgm\n.p2align 4\ns_endpgm") == [0xBFB00000, 0xBF800000, 0xBF800000, 0xBF800000, 0xBFB00000]


def test_comments_of_every_kind():
    assert words("s_nop 1 // one\n s_nop 2 ; two\n/* three\n s_nop 3 */ s_nop 4") == [
        0xBF800001,
        0xBF800002,
        0xBF800004,
    ]


def test_macros_repetitions_and_conditions():
    text = ".macro add d, a, b=v9\n v_add_f32 \\d, \\a, \\b\n.endm\nn = 2\n.rept n\n add v0, v1\n.endr\n"
    text += ".if n > 5\n s_nop 9\n.else\n add v1, v2, v3\n.endif"
    assert words(text) == [0x06001301, 0x06001301, 0x06020702]


def test_the_distance_to_a_label_fills_a_literal():
    # s_getpc_b64, then s_add_u32 with a label 20 bytes after the returned PC.
    text = "s_getpc_b64 s[0:1]\n s_add_u32 s0, s0, there@rel32@lo+4\n s_addc_u32 s1, s1, there@rel32@hi+12\n s_nop 0\nthere:"
    assert words(text)[2] == 20
    assert words(text)[4] == 0


def test_waits_may_be_written_as_sums():
    assert words("s_waitcnt vmcnt(1) & lgkmcnt(0)\n s_waitcnt 0\n s_delay_alu instid0(VALU_DEP_1) | instskip(NEXT) | instid1(SALU_CYCLE_1)") == [
        0xBF890407, 0xBF890000, 0xBF870491,
    ]  # fmt: skip


# Text, line, column and message.
ERRORS = [
    ("v_ad_f32 v0, v1, v2", 1, 1, r"gfx1100 has no v_ad_f32; did you mean v_add_f32"),
    ("s_nop 0\n  v_add_f32 v0, v1", 2, 3, r"v_add_f32 takes 3 operands, not 2"),
    ("v_add_f32 v0 v1, v2", 1, 14, r"expected ',' before v1"),
    ("v_add_f32 v0, v1, v2 glc", 1, 22, r"v_add_f32 has no modifier glc; it takes clamp, mul, div"),
    ("v_add_f32_e32 v0, v1, s2", 1, 23, r"operand 3: s2: expected a vector register"),
    ("v_fma_f32 v0, s1, s2, s3", 1, 1, r"reads 3 scalar values \(s1, s2, s3\); gfx1100 reads 2"),
    ("s_add_u32 s0, 0x1234, 0x5678", 1, 1, r"an instruction has one literal, not 0x1234 and 0x5678"),
    ("s_mov_b64 s[1:2], 0", 1, 11, r"s\[1:2\]: 2 scalar registers begin at a multiple of 2"),
    ("v_mov_b32 v256, 0", 1, 11, r"registers 0 to 255"),
    ("v_mov_b32 v[0:1], 0", 1, 11, r"v\[0:1\] has 64 bits; this operand has 32"),
    ("ds_load_b32 v0, v1 offset:65536", 1, 20, r"0 to 65535"),
    ("global_load_b32 v0, v1, off", 1, 21, r"v1 has 32 bits; this operand has 64"),
    ("v_dual_add_f32 v0, v1, v2 :: v_dual_add_f32 v2, v3, v5", 1, 1, r"one destination is an even register, the other an odd one"),
    ("v_dual_add_f32 v0, v1, v2 :: v_dual_add_f32 v3, v5, v3", 1, 1, r"first sources v1 and v5 must be in different banks"),
    ("v_dual_mov_b32 v0, v1 :: v_dual_mov_b32 v3, v2 :: v_dual_mov_b32 v5, v6", 1, 48, r"a dual instruction has two halves"),
    ("s_branch nowhere", 1, 10, r"nowhere is not defined"),
    ("a: s_nop 0\na: s_nop 0", 2, 1, r"a is defined twice"),
    ("s_waitcnt vmcnt(64)", 1, 11, r"vmcnt\(64\): the counter goes to 63"),
    ("s_getreg_b32 s0, hwreg(HW_REG_BLUE)", 1, 18, r"no hardware register HW_REG_BLUE"),
    (".amdhsa_kernel k\n.amdhsa_blue 1\n.end_amdhsa_kernel", 2, 1, r"gfx1100 has no directive \.amdhsa_blue"),
    (".unused_sources 512", 1, 17, r"512 is not a code of a source operand: 0 to 511"),
    (".blue", 1, 1, r"no directive \.blue"),
    ("v_mov_b32 v0, 1 @", 1, 17, r"expected a modifier"),
    ("s_nop 1 / 0", 1, 9, r"a division by zero"),
    (".amdgpu_metadata\nx", 1, 1, r"never closed"),
    ("v_add_f64 v[0:1], v[2:3], 0.3", 1, 27, r"needs all 64 bits of a double"),
    ("image_load v[0:3], v[4:5], s[0:7] dmask:0xf", 1, 1, r"needs its dimension"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "column", "message"), ERRORS, ids=[row[0][:40] for row in ERRORS])
def test_an_error_says_where_and_what(text, line, column, message):
    with pytest.raises(AssemblyError, match=message) as caught:
        code(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    shown = str(caught.value).splitlines()
    assert shown[-2] == f"  {text.splitlines()[line - 1]}"
    assert shown[-1].index("^") == column + 1


@pytest.mark.parametrize("text", [
    "s_nop " + "-" * 5000 + "1", "s_nop " + "(" * 5000 + "1",
        "v_mov_b32 v0, " + "neg(" * 3000 + "v1", ".rept 1000000\n.rept 1000000\n.endr\n.endr",
    ".macro m\n m\n.endm\n m", ".fill 0x7fffffff, 8, 0", ".p2align 60", "s_nop 1 << 1000000",
], ids=["signs", "brackets", "neg", "rept", "macro", "fill", "align", "shift"])  # fmt: skip
def test_what_would_never_end_is_refused(text):
    with pytest.raises(CompileError):
        code(text)


def test_a_branch_too_far_is_named_with_its_reach():
    with pytest.raises(AssemblyError, match=r"the label is 40000 dwords away; a branch reaches -32768 to 32767"):
        code("s_branch far\n.fill 40000, 4, 0\nfar:")


def test_twenty_errors_are_reported_together():
    with pytest.raises(CompileError) as caught:
        code("v_bad v0\n" * 30)
    assert str(caught.value).count("gfx1100 has no v_bad") == 20


def test_a_text_for_another_processor_is_refused():
    with pytest.raises(AssemblyError, match="the text is for gfx942; it is assembled for gfx1100"):
        code('.amdgcn_target "amdgcn-amd-amdhsa--gfx942"')


def test_random_text_is_refused_in_words():
    pick = random.Random(3)
    alphabet = "v_add s[]:0123,|-()@.\"'x/;{}\n mulop"
    machine = processor("gfx1100")
    for _ in range(500):
        text = "".join(pick.choice(alphabet) for _ in range(60))
        with contextlib.suppress(CompileError):
            assemble(text, machine)


TOKENS = [
    "[", "]", ":", ",", "(", ")", '"', "'", "|", "-", "*", "<<", "%", "..", ".L", "1b", "1f", "0x", "1e999", "inf", "9" * 20, "-1", "s[",
    "v[0:", "v256", "s106", ".macro x", ".endm", ".if", ".endif", ".rept 5", ".endr", ".amdhsa_kernel q", ".end_amdhsa_kernel", ".byte",
    ".org", "=", "::",
    ".p2align 99", "@", "#", "\0", "é", "/*", "*/", ".amdgpu_metadata", "hwreg(",
    "sendmsg(", "quad_perm:[0,", "dpp8:[", "lit(", "neg(", ";",
]  # fmt: skip


def changed(text, pick):
    """Return a text with characters or words left out, repeated, replaced or inserted."""
    for _ in range(pick.choice([1, 1, 2, 3])):
        at, end = sorted(pick.randrange(len(text) + 1) for _ in range(2))
        end = min(end, at + 12)
        words = text.split()
        how = pick.randrange(5)
        if how == 4 and words:
            text = text.replace(pick.choice(words), pick.choice(TOKENS + words), 1)
        else:
            text = (
                text[:at]
                + ["", pick.choice(TOKENS), text[at:end] * 2, chr(pick.randrange(32, 127))][how % 4]
                + text[end if how % 4 else at + 1 :]
            )
    return text


def refusal(text, machine):
    """Return the assembler's error for a text; empty if the text becomes a code object."""
    try:
        elf_write.write(assemble(text, machine, "x.s"))
    except CompileError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("target", ["gfx1100", "gfx1201", "gfx942"])
def test_changed_texts_are_assembled_or_refused_with_line_and_column(target, mc_pairs):
    pick = random.Random(f"lines of {target}")
    texts = [f"one:\n  {text}\n  s_endpgm\n" for _, text in mc_pairs(target)]
    asked = [changed(pick.choice(texts), pick) for _ in range(1500)]
    answers = [(text, refusal(text, processor(target))) for text in asked]
    refused = [(text, said) for text, said in answers if said]
    assert 500 < len(refused) < 1500
    for text, said in refused:
        places = re.findall(r"^x\.s:(\d+):(\d+): \S", said, re.M)
        assert places, (text, said)
        most = len(re.split(r"[\n;]", text)) + 1
        assert all(1 <= int(line) <= most for line, _ in places), (text, said)
