"""What instructions read and write beyond their text, for every mnemonic of every processor, and the liveness and masks
that depend on it.
"""

import pytest

from ringup.autogen.isa import target
from ringup.compiler.amd.instructions.code import EXEC_LO, NULL, OFF, VCC_LO, Block, Code, Instr, Reg
from ringup.compiler.amd.instructions.effects import COSTS, EXEC_HI, M0, MODE, SCC, VCC_HI, effects
from ringup.compiler.amd.instructions.effects import EXEC_LO as EXEC_UNIT
from ringup.compiler.amd.instructions.effects import VCC_LO as VCC_UNIT
from ringup.compiler.amd.instructions.steps import Program
from ringup.compiler.amd.registers.liveness import Liveness
from ringup.compiler.amd.registers.masks import states
from ringup.errors import CompileError

A, B, C, D = (Reg("v", name=name) for name in "abcd")
S, T, PAIR, QUAD = Reg("s"), Reg("s"), Reg("s", 2), Reg("v", 4)
BOTH_EXEC = (EXEC_UNIT, EXEC_HI)

# instruction: positions written, positions read, hidden writes, hidden reads, counters. Source: RDNA3 ISA reference
ROWS = [
    (Instr("v_add_f32", A, B, C), (0,), (1, 2), (), BOTH_EXEC, ()),
    (Instr("v_fmac_f32", A, B, C), (0,), (0, 1, 2), (), BOTH_EXEC, ()),
    (Instr("v_cndmask_b32", A, B, C, VCC_LO), (0,), (1, 2, 3), (), BOTH_EXEC, ()),
    (Instr("v_cmp_lt_f32", VCC_LO, B, C), (0,), (1, 2), (), BOTH_EXEC, ()),
    (Instr("v_cmpx_lt_f32", B, C), (), (0, 1), BOTH_EXEC, BOTH_EXEC, ()),
    (Instr("v_add_co_ci_u32", A, VCC_LO, B, C, VCC_LO), (0, 1), (2, 3, 4), (), BOTH_EXEC, ()),
    (Instr("v_div_fmas_f32", A, B, C, D), (0,), (1, 2, 3), (), (VCC_UNIT, VCC_HI, *BOTH_EXEC), ()),
    (Instr("v_readlane_b32", S, A, 3), (0,), (1, 2), (), (), ()),
    (Instr("v_readfirstlane_b32", S, A), (0,), (1,), (), BOTH_EXEC, ()),
    (Instr("v_writelane_b32", A, S, 3), (0,), (0, 1, 2), (), (), ()),
    (Instr("v_swap_b32", A, B), (0, 1), (0, 1), (), BOTH_EXEC, ()),
    (Instr("v_mov_b32", A, B, row_shr=1, row_mask=15, bank_mask=15), (0,), (0, 1), (), BOTH_EXEC, ()),
    (Instr("v_mov_b32", A, B, row_shr=1, row_mask=15, bank_mask=15, bound_ctrl=1), (0,), (1,), (), BOTH_EXEC, ()),
    (Instr("v_mov_b32", A, B, row_shr=1, row_mask=10, bank_mask=15, bound_ctrl=1), (0,), (0, 1), (), BOTH_EXEC, ()),
    (Instr("v_add_f16", A, B, C, op_sel=(0, 0, 1)), (0,), (0, 1, 2), (), BOTH_EXEC, ()),
    (Instr("v_add_f16", A, B, C, op_sel=(1, 0, 0)), (0,), (1, 2), (), BOTH_EXEC, ()),
    (Instr("v_cvt_f16_f32", A, B, op_sel=(0, 1)), (0,), (0, 1), (), BOTH_EXEC, ()),
    (Instr("v_permlanex16_b32", A, B, S, T), (0,), (0, 1, 2, 3), (), BOTH_EXEC, ()),
    (Instr("v_permlanex16_b32", A, B, S, T, op_sel=(0, 1)), (0,), (0, 1, 2, 3), (), BOTH_EXEC, ()),
    (Instr("v_permlanex16_b32", A, B, S, T, op_sel=(1, 0)), (0,), (1, 2, 3), (), BOTH_EXEC, ()),
    (Instr("s_add_u32", S, T, 1), (0,), (1, 2), (SCC,), (), ()),
    (Instr("s_addc_u32", S, T, 1), (0,), (1, 2), (SCC,), (SCC,), ()),
    (Instr("s_mul_i32", S, T, 1), (0,), (1, 2), (), (), ()),
    (Instr("s_cselect_b32", S, T, 1), (0,), (1, 2), (), (SCC,), ()),
    (Instr("s_cmp_lt_u32", S, T), (), (0, 1), (SCC,), (), ()),
    (Instr("s_not_b32", S, T), (0,), (1,), (SCC,), (), ()),
    (Instr("s_mov_b32", S, T), (0,), (1,), (), (), ()),
    (Instr("s_movk_i32", S, 1), (0,), (1,), (), (), ()),
    (Instr("s_addk_i32", S, 1), (0,), (0, 1), (SCC,), (), ()),
    (Instr("s_and_saveexec_b32", S, T), (0,), (1,), (SCC, *BOTH_EXEC), BOTH_EXEC, ()),
    (Instr("s_setreg_imm32_b32", 0x801, 3), (0,), (1,), (MODE,), (), ()),
    (Instr("s_sendmsg", 3), (), (0,), (), (M0,), ("lgkmcnt",)),
    (Instr("s_load_b64", PAIR, PAIR, 0), (0,), (1, 2), (), (), ("lgkmcnt",)),
    (Instr("global_load_b128", QUAD, A, PAIR, offset=16), (0,), (1, 2), (), BOTH_EXEC, ("vmcnt",)),
    (Instr("global_load_d16_hi_b16", B, A, PAIR), (0,), (0, 1, 2), (), BOTH_EXEC, ("vmcnt",)),
    (Instr("global_store_b32", A, B, PAIR), (), (0, 1, 2), (), BOTH_EXEC, ("vscnt",)),
    (Instr("global_atomic_add_u32", A, B, PAIR), (), (0, 1, 2), (), BOTH_EXEC, ("vscnt",)),
    (Instr("global_atomic_add_u32", C, A, B, PAIR, glc=1), (0,), (1, 2, 3), (), BOTH_EXEC, ("vmcnt",)),
    (Instr("scratch_load_b32", A, OFF, OFF, offset=4), (0,), (1, 2), (), BOTH_EXEC, ("vmcnt",)),
    (Instr("ds_load_b32", A, B), (0,), (1,), (), BOTH_EXEC, ("lgkmcnt",)),
    (Instr("ds_store_2addr_b32", A, B, C, offset0=1), (), (0, 1, 2), (), BOTH_EXEC, ("lgkmcnt",)),
    (Instr("s_waitcnt_vscnt", NULL, 0), (), (0, 1), (), (), ()),
    (Instr("s_cbranch_scc1", Block("b")), (), (0,), (), (SCC,), ()),
    (Instr("s_endpgm"), (), (), (), (), ()),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=[f"{i}-{row[0].mnemonic}" for i, row in enumerate(ROWS)])
def test_reads_and_writes(row):
    instr, defs, uses, hidden_defs, hidden_uses, counters = row
    found = effects("gfx1100").of(instr)
    # Its first operand names a hardware register, not one of a register file.
    if instr.mnemonic.startswith("s_setreg"):
        defs = found.defs
        uses = found.uses
    assert (found.defs, found.uses) == (defs, uses)
    assert (set(found.hidden_defs), set(found.hidden_uses)) == (set(hidden_defs), set(hidden_uses))
    assert found.counters == counters


@pytest.mark.parametrize("name", ["gfx1100", "gfx1151", "gfx1201", "gfx942", "gfx950"])
def test_every_instruction_has_effects(name):
    table, kinds = effects(name), set()
    for row in target(name).instructions:
        if row.format.startswith("VOPD"):
            continue
        operands = [one for one in row.operands if one.field != "hidden"]
        returns = {"glc": 1, "sc0": 1, "th": "TH_ATOMIC_RETURN"} if "returns" in row.flags else {}
        found = table.of(Instr(row.mnemonic, *[0] * len(operands), **returns))
        kinds.add(found.kind)
        memory = row.format in (
            "GLOBAL",
            "VGLOBAL",
            "SCRATCH",
            "VSCRATCH",
            "DS",
            "VDS",
            "SMEM",
            "MUBUF",
            "VBUFFER",
            "FLAT",
            "VFLAT",
        )
        if memory and found.access:
            assert found.counters, row.mnemonic
            loads = any(one.direction != "use" for one in operands)
            assert loads == (found.access in ("read", "atomic")), row.mnemonic
        assert found.latency > 0
        assert found.cycles > 0
    assert kinds <= COSTS.keys()
    assert {"valu", "trans", "quarter", "double", "wmma", "salu", "smem", "lds", "vmem", "branch"} <= kinds


def test_what_the_processor_lacks_is_named():
    with pytest.raises(CompileError, match="gfx1100 has no instruction s_add_f32"):
        effects("gfx1100").of(Instr("s_add_f32", S, S, T))
    with pytest.raises(CompileError, match="v_add_f32 has 2 operands here; gfx1100 takes 3"):
        effects("gfx1100").of(Instr("v_add_f32", A, B))
    with pytest.raises(CompileError, match="no back end for gfx90a"):
        effects("gfx90a")


def live(reg, program, liveness, k=0):
    """Return the instructions at whose start a register is live."""
    mask = liveness.mask[program.base[reg] + k]
    return [i for i in range(liveness.count) if mask >> 2 * i & 1]


def prepared(*blocks, inputs=()):
    program = Program(Code("k", "gfx1100", list(blocks), list(inputs), 0, 32))
    return program, Liveness(program)


def test_a_value_read_around_a_loop_is_live_in_all_of_it():
    head = Block("head", 1, [Instr("v_add_f32", B, A, A), Instr("s_nop", 0)])
    tail = Block("tail", 1, [Instr("v_mov_b32", C, B), Instr("s_cbranch_scc1", head)])
    program, liveness = prepared(
        Block("entry", 0, [Instr("v_mov_b32", A, 0)]), head, tail, Block("end", 0, [Instr("s_endpgm")])
    )
    assert live(A, program, liveness) == [1, 2, 3, 4]
    assert live(B, program, liveness) == [2, 3]
    assert live(C, program, liveness) == []


def test_parts_of_a_wide_register_live_each_for_themselves():
    wide = Reg("v", 2)
    body = [Instr("v_mov_b32", wide[0], 0), Instr("s_nop", 0), Instr("v_mov_b32", wide[1], 0)]
    body += [Instr("v_mov_b32", A, wide[0]), Instr("v_mov_b32", B, wide[1])]
    program, liveness = prepared(Block("b", 0, body))
    assert live(wide, program, liveness, 0) == [1, 2, 3]
    assert live(wide, program, liveness, 1) == [3, 4]


def condition(*inside, restore="s_mov_b32", before=(), behind=()):
    saved = Reg("s")
    back = Instr(restore, EXEC_LO, saved) if restore == "s_mov_b32" else Instr(restore, EXEC_LO, EXEC_LO, saved)
    return [*before, Instr("s_and_saveexec_b32", saved, VCC_LO), *inside, back, *behind]


@pytest.mark.parametrize("restore", ["s_mov_b32", "s_or_b32"])
def test_a_write_under_a_mask_ends_nothing_that_lives_outside(restore):
    body = condition(
        Instr("v_mov_b32", A, 1),
        Instr("v_mov_b32", B, A),
        restore=restore,
        before=[Instr("v_mov_b32", A, 0)],
        behind=[Instr("v_mov_b32", C, A)],
    )
    program, liveness = prepared(Block("b", 0, body))
    assert live(A, program, liveness) == [1, 2, 3, 4, 5]
    assert states(program).within(1, 0)
    assert not states(program).within(0, 1)


def test_a_value_of_one_mask_alone_ends_where_it_is_written_again():
    body = condition(
        Instr("v_mov_b32", A, 1),
        Instr("v_mov_b32", B, A),
        Instr("s_nop", 0),
        Instr("v_mov_b32", A, 2),
        Instr("v_mov_b32", B, A),
    )
    program, liveness = prepared(Block("b", 0, body))
    assert live(A, program, liveness) == [2, 5]


def test_an_unknown_mask_keeps_everything():
    body = [
        Instr("v_mov_b32", A, 0),
        Instr("s_mov_b32", EXEC_LO, S),
        Instr("v_mov_b32", A, 1),
        Instr("v_mov_b32", B, A),
    ]
    program, liveness = prepared(Block("b", 0, body), inputs=[S])
    assert live(A, program, liveness) == [1, 2, 3]


def test_a_mask_register_that_is_written_twice_restores_nothing_known():
    body = condition(Instr("v_mov_b32", A, 1))
    program, _ = prepared(Block("b", 0, [*body, Instr("s_mov_b32", body[0].operands[0], 0)]))
    found = states(program)
    assert [state for _, state in found.changes[0]] == [1, 2]
    assert not found.within(2, 0)
