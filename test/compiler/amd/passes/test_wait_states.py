"""Wait states of gfx942 and gfx950: LLVM 22's own pass for them, on the same instructions, is the judge."""

import random
import re
import subprocess
from pathlib import Path

import pytest

from ringup.autogen.generate.isa.probe import llvm_mc
from ringup.compiler.amd.instructions.code import VCC, Block, Code, Instr, physical
from ringup.compiler.amd.instructions.steps import Program
from ringup.compiler.amd.passes.wait_states import insert_wait_states

QUAD = {"quad_perm": (1, 0, 3, 2), "row_mask": 15, "bank_mask": 15}
ENDING = "implicit $mode, implicit $exec"
# (our instruction, our operands, LLVM's line). A letter names a register: v, w, x VGPRs, V, W, X pairs of them at even
# numbers, N, P, Q, R four, O, U eight, s, t SGPRs, S a pair. The first is the result where there is one.
FORMS = (
    ("v_add_f32", "v w x", "{v} = V_ADD_F32_e32 {w}, {x}, " + ENDING),
    ("v_mov_b32", "v s", "{v} = V_MOV_B32_e32 {s}, implicit $exec"),
    ("v_mov_b32", "v w dpp", "{v} = V_MOV_B32_dpp {v}, {w}, 177, 15, 15, 0, implicit $exec"),
    ("v_exp_f32", "v w", "{v} = V_EXP_F32_e32 {w}, " + ENDING),
    ("v_readlane_b32", "s v t", "{s} = V_READLANE_B32 {v}, {t}"),
    ("v_readfirstlane_b32", "s v", "{s} = V_READFIRSTLANE_B32 {v}, implicit $exec"),
    ("v_writelane_b32", "v 7 t", "{v} = V_WRITELANE_B32 7, {t}, {v}"),
    ("v_cmp_gt_f32", "vcc v w", "V_CMP_GT_F32_e32 {v}, {w}, implicit-def $vcc, " + ENDING),
    ("v_cmp_gt_f32", "S v w", "{S} = V_CMP_GT_F32_e64 0, {v}, 0, {w}, 0, " + ENDING),
    ("v_cndmask_b32", "v w x vcc", "{v} = V_CNDMASK_B32_e32 {w}, {x}, implicit $vcc, implicit $exec"),
    ("v_cndmask_b32", "v w x S", "{v} = V_CNDMASK_B32_e64 0, {w}, 0, {x}, {S}, implicit $exec"),
    ("v_div_fmas_f32", "v w x v", "{v} = V_DIV_FMAS_F32_e64 0, {w}, 0, {x}, 0, {v}, 0, 0, implicit $vcc, " + ENDING),
    ("v_fma_f64", "V W X V", "{V} = V_FMA_F64_e64 0, {W}, 0, {X}, 0, {V}, 0, 0, " + ENDING),
    ("v_dot2_f32_f16", "v w x v", "{v} = V_DOT2_F32_F16 0, {w}, 0, {x}, 0, {v}, 0, 0, 0, 0, 0, " + ENDING),
    ("global_load_b32", "v w S", "{v} = GLOBAL_LOAD_DWORD_SADDR {S}, {w}, 0, 0, implicit $exec"),
    ("global_store_b128", "v Q S", "GLOBAL_STORE_DWORDX4_SADDR {v}, {Q}, {S}, 0, 0, implicit $exec"),
    ("global_store_b64", "v V S", "GLOBAL_STORE_DWORDX2_SADDR {v}, {V}, {S}, 0, 0, implicit $exec"),
    ("ds_load_b32", "v w", "{v} = DS_READ_B32_gfx9 {w}, 0, 0, implicit $exec"),
    ("ds_store_b32", "v w", "DS_WRITE_B32_gfx9 {v}, {w}, 0, 0, implicit $exec"),
    ("s_mov_b32", "s t", "{s} = S_MOV_B32 {t}"),
    ("v_mfma_f32_16x16x16_f16", "Q V W R", "{Q} = V_MFMA_F32_16X16X16F16_vgprcd_e64 {V}, {W}, {R}, 0, 0, 0, " + ENDING),
    ("v_mfma_f32_16x16x16_f16", "Q V W Q", "{Q} = V_MFMA_F32_16X16X16F16_vgprcd_e64 {V}, {W}, {Q}, 0, 0, 0, " + ENDING),
    ("v_mfma_i32_16x16x32_i8", "Q V W Q", "{Q} = V_MFMA_I32_16X16X32I8_vgprcd_e64 {V}, {W}, {Q}, 0, 0, 0, " + ENDING),
    ("v_mfma_f32_16x16x4_f32", "Q v w R", "{Q} = V_MFMA_F32_16X16X4F32_vgprcd_e64 {v}, {w}, {R}, 0, 0, 0, " + ENDING),
    ("v_mfma_f32_16x16x4_f32", "Q v w Q", "{Q} = V_MFMA_F32_16X16X4F32_vgprcd_e64 {v}, {w}, {Q}, 0, 0, 0, " + ENDING),
    ("v_mfma_f32_16x16x32_f16", "Q R P Q", "{Q} = V_MFMA_F32_16X16X32_F16_vgprcd_e64 {R}, {P}, {Q}, 0, 0, 0, " + ENDING),
    ("v_mfma_i32_16x16x64_i8", "Q R P N", "{Q} = V_MFMA_I32_16X16X64_I8_vgprcd_e64 {R}, {P}, {N}, 0, 0, 0, " + ENDING),
    ("v_mfma_f32_16x16x32_fp8_bf8", "Q V W Q", "{Q} = V_MFMA_F32_16X16X32_FP8_BF8_vgprcd_e64 {V}, {W}, {Q}, 0, 0, 0, " + ENDING),
    (
        "v_mfma_f32_16x16x128_f8f6f4", "Q O U Q",
        "{Q} = V_MFMA_F32_16X16X128_F8F6F4_f8_f8_vgprcd_e64 {O}, {U}, {Q}, 0, 0, " + ENDING
    ),
    ("v_mfma_f64_16x16x4_f64", "O V W O", "{O} = V_MFMA_F64_16X16X4F64_vgprcd_e64 {V}, {W}, {O}, 0, 0, 0, " + ENDING),
)  # fmt: skip
COUNTS = {**dict.fromkeys("vwxst", 1), **dict.fromkeys("VWXS", 2), **dict.fromkeys("NPQR", 4), "O": 8, "U": 8}
# Few registers, so that instructions meet.
VGPRS, SGPRS = 16, 6


def chosen(rng, letter):
    count, bank = COUNTS[letter], "s" if letter in "stS" else "v"
    step = 1 if count == 1 else 2
    return physical(bank, rng.randrange(0, (SGPRS if bank == "s" else VGPRS) - count + 1, step), count)


def named(register):
    bank = "sgpr" if register.bank == "s" else "vgpr"
    return "$" + "_".join(f"{bank}{register.first + k}" for k in range(register.count))


def one(rng, forms=FORMS):
    """Return our instruction, and LLVM's line for it."""
    mnemonic, letters, line = rng.choice(forms)
    letters = letters.split()
    registers = {letter: chosen(rng, letter) for letter in letters if letter in COUNTS}
    modifiers = QUAD if "dpp" in letters else {}
    named_too = {"vcc": VCC, "7": 7}
    operands = [named_too.get(letter, registers.get(letter)) for letter in letters if letter != "dpp"]
    return Instr(mnemonic, *operands, **modifiers), line.format(**{key: named(one) for key, one in registers.items()})


def apart(instr):
    """Return whether a matrix instruction has A and B apart from its result, as LLVM wants, and C the same or apart."""
    if not instr.mnemonic.startswith("v_mfma"):
        return True
    d, a, b, c = (set(range(one.first, one.first + one.count)) for one in instr.operands)
    return not d & (a | b) and (c == d or not c & d)


@pytest.fixture(scope="module")
def llc(headers):
    """`llc(target, functions)` returns for each function the wait states that LLVM puts before each of its lines."""
    *loader, program = llvm_mc(headers("llvm-22"))
    command = [*loader, str(Path(program).with_name("llc")), "-mtriple=amdgcn", "-x", "mir"]

    def run(target, functions):
        text = "\n".join(functions) + "\n"
        done = subprocess.run(
            [*command, f"-mcpu={target}", "-run-pass", "post-RA-hazard-rec", "-o", "-", "-"],
            input=text, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert not done.returncode, done.stderr[:2000]
        return done.stdout.split("\nname:")[1:]

    return run


def waits(lines, is_nop):
    """Return the wait states of the nops before each other line."""
    found, missing = [], 0
    for line in lines:
        count = is_nop(line)
        if count is None:
            found.append(missing)
            missing = 0
        else:
            missing += count
    return found


def llvm_nop(line):
    found = re.match(r"S_NOP (\d+)", line)
    return int(found[1]) + 1 if found else None


def our_nop(step):
    return step.instr.operands[0] + 1 if step.instr.mnemonic == "s_nop" else None


def random_code(rng, size, forms=FORMS):
    return [pair for pair in (one(rng, forms) for _ in range(size)) if apart(pair[0])]


def text_of(number, blocks, places):
    """Return LLVM's text of a function with these lines in its blocks."""
    bodies = [
        "\n".join((place, *(f"    {line}" for line in lines))) for place, lines in zip(places, blocks, strict=True)
    ]
    return "\n".join((f"---\nname: f{number}\nbody: |", *bodies, "..."))


def listed(answer):
    """Return the instructions of LLVM's answer."""
    return [
        line.strip()
        for line in answer.split("bb.0:")[1].splitlines()
        if re.match(r"\s+(early-clobber |renamable )?[$A-Z]", line)
    ]


# CDNA4 has them too.
DEEPER = ("v_mfma_f32_16x16x32_f16", "v_mfma_i32_16x16x64_i8", "v_mfma_f32_16x16x128_f8f6f4")
TARGETS = pytest.mark.parametrize("target", ["gfx942", "gfx950"])


def matrices(name=None, target="gfx950"):
    there = [form for form in FORMS if form[0].startswith("v_mfma") and name in (None, form[0])]
    return [form for form in there if target == "gfx950" or form[0] not in DEEPER]


@TARGETS
@pytest.mark.seeds(2)
def test_llvm_inserts_as_many_wait_states(target, seed, llc):
    """With matrix instructions of one kind: of a wide operand written by two, LLVM waits for the later one only."""
    rng = random.Random(seed)
    plain = [form for form in FORMS if form not in matrices()]
    texts, programs = [], []
    for number in range(100):
        made = random_code(rng, 14, plain + matrices(rng.choice(matrices(target=target))[0]) * 3)
        texts.append(text_of(number, [[line for _, line in made] + ["S_ENDPGM 0"]], ["  bb.0:"]))
        block = Block("b0", 0, [*(instr for instr, _ in made), Instr("s_endpgm", 0)])
        program = Program(Code(f"f{number}", target, [block], [], 0, 64, 64))
        insert_wait_states(program)
        programs.append(program)
    for program, answer in zip(programs, llc(target, texts), strict=True):
        lines = listed(answer)
        expected, found = waits(lines, llvm_nop), waits(program.blocks[0], our_nop)
        rest = [line for line in lines if llvm_nop(line) is None]
        text = "\n".join(f"{a} {b}  {line}" for a, b, line in zip(expected, found, rest, strict=True))
        assert found == expected, f"LLVM's, ours:\n{text}"


@TARGETS
@pytest.mark.seeds(2)
def test_llvm_finds_no_wait_state_missing(target, seed, llc):
    """Every second program has a loop, with one matrix instruction: of several that reach a place on different ways,
    LLVM confuses which is how far away.
    """
    rng = random.Random(seed)
    plain = [form for form in FORMS if form not in matrices()]
    texts, counts = [], []
    for number in range(100):
        is_loop = number % 2 == 0
        first = random_code(rng, 8, plain if is_loop else plain + matrices(target=target))
        loop = (
            random_code(rng, 6, plain) + random_code(rng, 1, matrices(target=target))
            if is_loop
            else random_code(rng, 8, plain + matrices(target=target))
        )
        rng.shuffle(loop)
        lines = {id(instr): line for instr, line in (*first, *loop)}
        blocks = [Block(f"b{i}", min(i, 1), [instr for instr, _ in made]) for i, made in enumerate((first, loop, []))]
        branch, end = Instr("s_cbranch_scc1", blocks[1 if is_loop else 2]), Instr("s_endpgm", 0)
        lines |= {id(branch): f"S_CBRANCH_SCC1 %bb.{1 if is_loop else 2}, implicit $scc", id(end): "S_ENDPGM 0"}
        blocks[1].instrs.append(branch)
        blocks[2].instrs.append(end)
        program = Program(Code(f"f{number}", target, blocks, [], 0, 64, 64))
        insert_wait_states(program)
        made = [
            [lines.get(id(step.instr)) or f"S_NOP {step.instr.operands[0]}" for step in steps]
            for steps in program.blocks
        ]
        after = "%bb.1, %bb.2" if is_loop else "%bb.2"
        places = ["  bb.0:\n    successors: %bb.1", f"  bb.1:\n    successors: {after}", "  bb.2:"]
        texts.append(text_of(number, made, places))
        counts.append(sum(map(len, made)))
    for text, answer, count in zip(texts, llc(target, texts), counts, strict=True):
        lines = listed(answer)
        assert len(lines) == count, f"{text}\nLLVM adds to it:\n" + "\n".join(lines)
