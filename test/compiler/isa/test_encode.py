"""The encoder as the compiler calls it: its words equal llvm-mc's. Also: refusals, waits and other processors."""

import random
import re
import sys
from collections import Counter

import pytest

from ringup.compiler.isa.amd import EXEC, M0, NULL, OFF, VCC_LO, Literal, abs_, lit, neg, processor, s, v
from ringup.compiler.isa.amd.assembly.assembler import Assembler
from ringup.compiler.isa.amd.assembly.dsl import Code
from ringup.compiler.isa.amd.encoding.processor import Processor
from ringup.errors import CompileError
from ringup.silicon.shader.amd.decoding import decode as cores_decode
from ringup.silicon.shader.amd.decoding import text as cores_text

WORDS = [  # llvm-mc 22, gfx1100
    ("v_add_f32", [v[1], v[2], v[3]], {}, "02070206"),
    ("v_add_f32", [v[1], s[2], s[3]], {}, "010003d502060000"),
    ("v_add_f32", [v[1], 1.0, v[3]], {}, "f2060206"),
    ("v_add_f32", [v[1], 0x1234, v[3]], {}, "ff06020634120000"),
    ("v_add_f32", [v[1], lit(1.0), v[3]], {}, "ff0602060000803f"),
    ("v_add_f32", [v[1], neg(v[2]), abs_(v[3])], {"mul": 2}, "010203d502070228"),
    ("v_add_f32", [v[1], v[2], v[3]], {"quad_perm": (0, 1, 2, 3), "row_mask": 15, "bank_mask": 15}, "fa06020602e400ff"),
    ("s_mov_b64", [EXEC, -1], {}, "c101febe"),
    ("global_load_b32", [v[1], v[2], s[4:5]], {"offset": -4}, "fc1f52dc02000401"),
    ("global_load_b32", [v[1], v[2:3], OFF], {}, "000052dc02007c01"),
    ("s_load_b64", [s[0:1], s[2:3], 16], {}, "010004f4100000f8"),
    ("s_waitcnt_vscnt", [NULL, 0], {}, "00007cbc"),
    ("ds_store_b32", [v[0], v[1]], {"offset": 8}, "080034d800010000"),
    ("s_cbranch_scc1", [0xFFFE], {}, "feffa2bf"),
    ("s_mov_b32", [M0, 5], {}, "8500fdbe"),
    ("v_cndmask_b32", [v[0], v[1], v[2], VCC_LO], {}, "01050002"),
    ("v_cmp_lt_f32", [VCC_LO, v[1], v[2]], {}, "0105227c"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("mnemonic", "operands", "modifiers", "code"), WORDS, ids=[f"{row[0]} {row[1]}" for row in WORDS]
)
def test_words_are_llvms(mnemonic, operands, modifiers, code, llvm):
    machine = processor("gfx1100")
    word = machine.encode(mnemonic, operands, **modifiers)
    assert word.hex() == code
    # The text does not show that a literal was forced.
    if not any(isinstance(operand, Literal) for operand in operands):
        assert llvm("gfx1100").assemble([machine.text(machine.decode(word))]) == [word]


def test_the_same_plan_serves_other_registers_and_offsets():
    machine = processor("gfx1100")
    words = {machine.encode("global_load_b32", [v[i], v[i + 1], s[2 * i : 2 * i + 1]], offset=i) for i in range(50)}
    assert len(words) == 50
    assert [machine.text(machine.decode(word)).split()[1] for word in sorted(words, key=lambda w: w[0])][7] == "v7,"


def test_floats_and_integers_that_python_calls_equal_stay_apart():
    machine = processor("gfx1100")
    pairs = [(1, 1.0), (0.0, -0.0), (65535, 65535.0)]
    for one, other in pairs:
        assert machine.encode("v_add_f32", [v[0], one, v[1]]) != machine.encode("v_add_f32", [v[0], other, v[1]])


def test_a_forced_encoding_is_kept():
    machine = processor("gfx1100")
    assert len(machine.encode("v_add_f32_e64", [v[0], v[1], v[2]])) == 8
    with pytest.raises(CompileError, match="expected a vector register"):
        machine.encode("v_add_f32_e32", [v[0], v[1], s[2]])


REFUSED = [
    ("v_add_f32", [v[0], v[1]], {}, "takes 3 operands, not 2"),
    ("v_add_f32", [v[0], v[1], v[2]], {"offset": 4}, "no modifier offset"),
    ("v_fma_f64", [v[0:1], v[2:3], v[4:5], v[6]], {}, "v6 has 32 bits; this operand has 64"),
    ("global_load_b32", [v[0], v[1], s[2:3]], {"offset": 4096}, "-4096 to 4095"),
    ("v_fma_f32", [v[0], s[1], s[2], s[3]], {}, "reads 3 scalar values"),
    ("v_lshlrev_b64", [v[0:1], s[1], s[2:3]], {}, "gfx1100 reads 1 in one instruction"),
    ("v_add_f16", [v[0].l, v[1].l, v[2]], {}, "with and without"),
    ("nothing", [], {}, "gfx1100 has no nothing"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("mnemonic", "operands", "modifiers", "message"), REFUSED, ids=[row[0] + " " + row[3][:12] for row in REFUSED]
)
def test_what_an_encoding_cannot_hold_is_said(mnemonic, operands, modifiers, message):
    with pytest.raises(CompileError, match=re.escape(message) if "(" in message else message):
        processor("gfx1100").encode(mnemonic, operands, **modifiers)


def test_nonsense_is_a_type_error():
    with pytest.raises(TypeError, match="is not an operand"):
        processor("gfx1100").encode("v_mov_b32", [v[0], "v1"])


def test_three_same_scalars_are_one_read():
    assert processor("gfx1100").encode("v_fma_f32", [v[0], s[1], s[1], s[1]])


def waits_of(build, target="gfx1100"):
    code = Code(target, waits=True)
    build(code)
    machine = processor(target)
    return [machine.text(instruction) for _, instruction in machine.walk(code.bytes())]


def test_waits_are_as_late_and_little_as_counters_allow():
    def build(code):
        code.global_load_b32(v[1], v[0], s[2:3])
        code.global_load_b32(v[2], v[0], s[2:3])
        code.v_mov_b32(v[9], 0)
        code.v_add_f32(v[3], v[1], v[1])
        code.v_add_f32(v[3], v[2], v[2])

    texts = waits_of(build)
    assert [texts[3], texts[5]] == ["s_waitcnt vmcnt(1)", "s_waitcnt vmcnt(0)"]


@pytest.mark.parametrize(
    ("target", "wait"),
    [("gfx1100", "s_waitcnt lgkmcnt(0)"), ("gfx1201", "s_wait_kmcnt 0x0"), ("gfx942", "s_waitcnt lgkmcnt(0)")],
)
def test_scalar_loads_come_in_no_order(target, wait):
    name = "s_load_dword" if target == "gfx942" else "s_load_b32"

    def build(code):
        code.emit(name, s[4], s[0:1], 0)
        code.emit(name, s[5], s[0:1], 4)
        code.s_mov_b32(s[6], s[4])

    assert waits_of(build, target)[2] == wait


def test_a_loop_waits_for_what_its_round_before_began():
    def build(code):
        top = code.label()
        code.global_load_b32(v[1], v[0], s[2:3])
        code.s_cbranch_scc1(top)

    assert waits_of(build)[1] == "s_waitcnt vmcnt(0)"


def test_a_label_that_is_placed_nowhere_is_named():
    from ringup.compiler.isa.amd.assembly.dsl import Label

    code = Code("gfx1100")
    code.s_branch(Label("far"))
    with pytest.raises(CompileError, match=r"s_branch at byte 0x0: Label\(far\) has no place"):
        code.bytes()


def test_a_mnemonic_that_is_not_there_is_suggested():
    with pytest.raises(AttributeError, match="gfx1100 has no instruction v_ad_f32; did you mean v_add_f32"):
        _ = Code("gfx1100").v_ad_f32
    assert "v_add_f32" in dir(Code("gfx1100"))


def cores_seen(word):
    """Return the text that the virtual cores' own decoder gives for a word."""
    try:
        return cores_text.text(cores_decode.decode(word))
    except cores_decode.IllegalInstruction:
        return None


# For these mnemonics the text of the virtual cores is plainer: numbers instead of names, and addresses without
# brackets.
PLAINER = (
    "exp", "s_getreg_b32", "s_setreg_b32", "s_setreg_imm32_b32", "s_gl1_inv",
)  # fmt: skip


def test_random_words_mean_the_same_to_the_virtual_cores():
    """Two independent decoders. Where both find an instruction, it is the same one with the same operands.

    The reasons why only one of them finds an instruction are known. The cores refuse reserved bits and memory forms
    that they do not model. We refuse scalar ranges that begin at odd numbers, and registers that the processor lacks.
    """
    machine, pick = processor("gfx1100"), random.Random(17)
    differing, count = [], Counter()
    for _ in range(6000):
        word = pick.randbytes(12)
        ours, theirs = machine.decode(word), cores_seen(word)
        count["both" if ours and theirs else "ours" if ours else "cores" if theirs else "neither"] += 1
        if not (ours and theirs):
            continue
        text = machine.text(ours)
        mnemonic = text.split(" ")[0]
        if mnemonic in PLAINER or mnemonic.startswith(("image_", "tbuffer_")):
            same = mnemonic == theirs.split(" ")[0]
        else:
            same = sorted(text.split()) == sorted(theirs.split())
        differing += [] if same else [(word.hex(), text, theirs)]
    # Half literals with excess bits may differ.
    assert [row for row in differing if not re.match(r"v_\w+_f16\S* .*0x[0-9a-f]{5,8}\b", row[1])] == []
    assert count["both"] > 2500
    assert count["ours"] < 200
    assert count["cores"] < 200


GFX9_WORDS = [  # llvm-mc 22, gfx942
    ("v_cmpx_lt_f32_e64 s[32:33], v1, v2", "200051d001050200"),
    ("v_mov_b64_dpp v[2:3], v[4:5] row_newbcast:1 row_mask:0xf bank_mask:0xf", "fa70047e045101ff"),
    ("v_add_f32_sdwa v1, v2, 1 dst_sel:DWORD dst_unused:UNUSED_PRESERVE src0_sel:DWORD src1_sel:BYTE_2", "f902030202160682"),
    ("v_accvgpr_read_b32 v1, a2", "0140d8d302010018"),
    ("ds_append v1", "00007cd900000001"),
    ("s_set_gpr_idx_on 3, gpr_idx(SRC0,SRC1)", "830311bf"),
    ("v_writelane_b32 v1, s1, m0", "01008ad201f80000"),
    ("v_writelane_b32 v76, vcc_lo, 30", "4c008ad26a3c0100"),
    ("v_accvgpr_read_b32 v178, a16", "b240d8d310010018"),
    ("v_cmp_eq_u32_sdwa s[0:1], v1, v9 src0_sel:WORD_0 src1_sel:DWORD", "f912947d01800406"),
    ("v_cmp_eq_u32_sdwa vcc, v1, v9 src0_sel:WORD_0 src1_sel:DWORD", "f912947d01000406"),
]  # fmt: skip
GFX9_REFUSED = [
    ("ds_add_rtn_u32 v1, v2, a3", "v1 and a3 are both vector registers or both accumulation registers"),
    ("v_mfma_f32_32x32x1_2b_f32 a[0:31], v0, v1, a[2:33]", "overlaps a[0:31] in part"),
    ("ds_gws_init v3 gds", "a global wave sync reads an even register"),
    ("ds_append v1 gds", "ds_append has no modifier gds"),
    ("v_mov_b64_dpp v[2:3], v[4:5] row_shl:1 row_mask:0xf bank_mask:0xf", "has only row_newbcast:0 to row_newbcast:15"),
    ("v_dot2_f32_f16 v1, v2, v3, v4 op_sel:[1,0,0]", "no op_sel, no op_sel_hi"),
    ("v_writelane_b32 v1, s1, s2", "gfx942 reads 1 in one instruction"),
    ("s_set_gpr_idx_mode gpr_idx(SRC3)", "it takes SRC0, SRC1, SRC2, DST, each once"),
]  # fmt: skip


GFX11_WORDS = [  # llvm-mc 22, gfx1100
    ("v_sat_pk_u8_i16_e32 v5.l, 0x12345678", "ffc40a7e78563412"),
    ("s_load_b128 s[20:23], null, 0x10", "3e0508f4100000f8"),
    ("v_fmamk_f16 v5.l, v1.l, 0xffef, v3.l", "01070a6eefff0000"),
    ("s_addc_u32 s9, s9, lit(0xffffffff)", "09ff0982ffffffff"),
    ("v_add_f64 v[0:1], lit(0x3ff00000), v[2:3]", "000027d7ff0402000000f03f"),
    ("v_or_b16 v3.l, -0x8000, v1.l", "030063d7ff0202000080ffff"),
    ("v_fmaak_f16 v1.l, v1.h, v1.l, -0x4eab", "8103027055b1ffff"),
]


@pytest.mark.parametrize(("text", "code"), GFX11_WORDS, ids=[row[0].split()[0] for row in GFX11_WORDS])
def test_words_of_gfx11_are_llvms_both_ways(text, code):
    machine = processor("gfx1100")
    word = Assembler(machine).instruction_bytes(text)
    assert word.hex() == code
    assert machine.text(machine.decode(word)) == text


def test_a_negative_integer_fills_the_literal_that_always_follows():
    assembler = Assembler(processor("gfx1100"))
    assert assembler.instruction_bytes("v_fmamk_f16 v5.l, v1.l, -17, v3.l").hex() == "01070a6eefffffff"  # llvm-mc 22
    assert assembler.instruction_bytes("v_fmamk_f16 v5.l, -17, -17, v3.l").hex() == "ff060a6eefffffff"
    assert assembler.instruction_bytes("v_add_f16_e32 v5.l, -17, v3.l").hex() == "ff060a64efff0000"


@pytest.mark.parametrize(("text", "code"), GFX9_WORDS, ids=[row[0].split()[0] for row in GFX9_WORDS])
def test_words_of_gfx9_are_llvms_both_ways(text, code):
    machine = processor("gfx942")
    word = Assembler(machine).instruction_bytes(text)
    assert word.hex() == code
    assert machine.text(machine.decode(word)) == text


@pytest.mark.parametrize(("text", "message"), GFX9_REFUSED, ids=[row[0].split()[0] for row in GFX9_REFUSED])
def test_what_gfx9_decodes_and_does_not_have_is_refused(text, message):
    with pytest.raises(CompileError, match=re.escape(message)):
        Assembler(processor("gfx942")).instruction_bytes(text)


def test_plans_do_not_grow_without_bound(monkeypatch):
    for module in ("processor", "dual"):
        monkeypatch.setattr(sys.modules[f"ringup.compiler.isa.amd.encoding.{module}"], "MAX_PLANS", 20)
    machine = Processor("gfx1100", 32)
    fresh = processor("gfx1100")
    for number in range(100):
        value = 0.3 + number
        assert machine.encode("v_add_f32", [v[1], value, v[2]]) == fresh.encode("v_add_f32", [v[1], value, v[2]])
        pair = ("v_dual_mov_b32", [v[0], 1000 + number]), ("v_dual_mov_b32", [v[1], v[2]])
        assert machine.encode_dual(*pair) == fresh.encode_dual(*pair)
        assert len(machine._plans) <= 20
        assert len(machine._dual._plans) <= 20
