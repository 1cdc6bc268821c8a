"""Errors of programs on the virtual SM. Words are NAK's, or fields of them changed."""

import pytest

from ringup.compiler.isa.sass.dsl import Code
from ringup.errors import GuestError
from ringup.silicon.shader.nv import workbench
from ringup.silicon.shader.nv.interpreter.engine import Interpreter
from ringup.silicon.shader.nv.translator.engine import Translator

# Mesa 25.2.7's NAK, sm_86.
S2R_R0_TID_X = 0x000E4200000021000000000000007919
EXIT = 0x001FC20003800000000000000000794D
# LDG.E R1, [R2]
LDG = 0x00004400001EE9000000000002017381


ENGINES = {
    "interpreter": lambda strict: Interpreter("sm_86", strict=strict),
    "translator": lambda strict: Translator("sm_86", strict=strict, worthwhile=0),
}


def run(words, arguments=(), registers=8, strict=True, engine="interpreter", **sizes):
    code = b"".join(word.to_bytes(16, "little") for word in words)
    sizes = {"groups": (1, 1, 1), "group_size": (32, 1, 1), **sizes}
    return workbench.run(ENGINES[engine](strict), code, arguments, registers=registers, parameters_at=0, **sizes)


def test_an_access_to_no_buffer_names_the_instruction_and_the_warp():
    # Registers begin as zero here, so the address is 0.
    message = r"memory at 0x100000010 in wave \(0, 0, 0, 0\): LDG.E.* R1, \[R2\].*: read of 0x0"
    with pytest.raises(GuestError, match=message):
        run([S2R_R0_TID_X, LDG, EXIT], strict=False)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_address_that_was_never_written_is_reported(engine):
    with pytest.raises(GuestError, match=r"uninitialised at .* R2 is an address and was never given a value in lane 0"):
        run([S2R_R0_TID_X, LDG, EXIT], engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_guard_that_was_never_written_is_reported(engine):
    with pytest.raises(GuestError, match=r"uninitialised at .* @P3 EXIT: P3 guards it and was never given a value"):
        run([EXIT & ~(7 << 12) | 3 << 12, EXIT], engine=engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_value_that_some_lanes_lack_is_followed_to_what_it_decides(engine):
    code = Code("sm_86", "k", registers=8)
    code.S2R("R0, SR_TID.X", write=0, stall=2)
    code.ISETP.LT.AND("P0, PT, R0, 0x5, PT", wait=(0,), stall=14)
    code.MOV("R1, 0x10", guard="P0", stall=6)
    # of R1 alone, so it has a value in the same lanes; R2 has one in all
    code.LOP3.LUT("R3, R1, 0xf0, RZ, 0xc0, !PT", stall=6)
    code.IADD3("R2, R1, R0, RZ", stall=6)
    code.SHF.L.U32("R2, R2, 0x2, RZ", stall=6)
    code.STS("[R2], R0", read=1, stall=2)
    code.STS("[R3], R0", read=1, stall=2)
    code.EXIT("", stall=5)
    words = [int.from_bytes(code.kernel().code[at : at + 16], "little") for at in range(0, 144, 16)]
    with pytest.raises(GuestError, match=r"STS \[R3\], R0.* R3 is an address and was never given a value in lane 5"):
        run(words, engine=engine, shared_bytes=1024)


def test_a_register_beyond_the_launch_is_reported():
    with pytest.raises(GuestError, match=r"register at .*: S2R R9, SR_TID.X: R9 is beyond the 8 registers"):
        run([S2R_R0_TID_X | 9 << 16, EXIT])


def test_a_program_without_exit_is_reported():
    with pytest.raises(GuestError, match="no buffer is there, 0x0 bytes past the end of the program"):
        run([S2R_R0_TID_X])


def test_a_word_that_is_no_instruction_is_reported():
    with pytest.raises(GuestError, match=r"illegal at 0x100000000 .* is no instruction of sm_86"):
        run([0x001FC200038000000000000000000FFF])


def test_a_launch_that_no_core_can_start_is_refused():
    with pytest.raises(ValueError, match="a group of 2048 threads; cores take 1 to 1024"):
        run([EXIT], group_size=(2048, 1, 1))


def test_bits_of_a_word_that_the_tables_do_not_explain_make_it_illegal():
    with pytest.raises(GuestError, match="is no instruction"):
        run([EXIT | 1 << 50])


def test_groups_and_warps_are_numbered_and_the_last_warp_may_be_partial():
    done = run([S2R_R0_TID_X, EXIT], groups=(3, 2, 1), group_size=(40, 1, 1))
    assert done.counters.waves == 12
    assert done.counters.lanes == 6 * 40 * 2
