"""Barriers of part of a group, reductions at barriers, calls, and the card's timer. What they do is in the PTX ISA:
"bar, barrier", "globaltimer".
"""

import numpy as np
import pytest

from ringup.compiler.isa.sass import Control
from ringup.compiler.isa.sass.dsl import Code
from ringup.errors import GuestError
from ringup.silicon.shader.nv import workbench
from ringup.silicon.shader.nv.interpreter.engine import Interpreter
from ringup.silicon.shader.nv.translator.engine import Translator

THREADS = 128
ENGINES = {
    "interpreter": lambda **more: Interpreter("sm_86", **more),
    "translator": lambda **more: Translator("sm_86", worthwhile=0, **more),
}


def begin():
    """Begin a program: R0 the thread, R1 four times it, R2 and R3 the address of its word of the buffer."""
    code = Code("sm_86", "k", registers=16)
    code.S2R("R0, SR_TID.X", write=0, stall=2)
    code.SHF.L.U32("R1, R0, 0x2, RZ", wait=(0,), stall=6)
    code.IADD3("R2, P0, PT, R1, c[0x0][0x0], RZ", stall=14)
    code.IADD3.X("R3, PT, PT, RZ, c[0x0][0x4], RZ, P0, !PT", stall=6)
    return code


def finish(code, register, wait=()):
    code.STG.E(f"[R2], R{register}", wait=wait, read=1, stall=2)
    code.EXIT("", stall=5)
    return code.kernel().code


def run(code, engine, group=THREADS, out=None, **more):
    out = np.zeros(group, np.uint32) if out is None else out
    workbench.run(
        ENGINES[engine](**more), code, [out], registers=16, parameters_at=0, groups=(1, 1, 1), group_size=(group, 1, 1),
        shared_bytes=4 * THREADS, barriers=16,
    )  # fmt: skip
    return out


@pytest.mark.parametrize("engine", ENGINES)
def test_warps_that_only_arrive_go_on_and_those_that_wait_see_their_stores(engine):
    """Warps 0 and 1 wait for what warps 2 and 3 store, which arrive and end."""
    code = begin()
    code.ISETP.GE.AND("P1, PT, R0, 0x40, PT", stall=14)
    code.STS("[R1], R0", guard="P1", read=1, stall=2)
    code.BAR.ARV("0x3, 0x80", guard="P1", wait=(1,), stall=6)
    code.BAR.SYNC.DEFER_BLOCKING("0x3, 0x80", guard="!P1", stall=6)
    code.LOP3.LUT("R4, R1, 0x100, RZ, 0x3c, !PT", stall=6)
    code.LDS("R4, [R4]", guard="!P1", write=2, stall=2)
    found = run(finish(code, 4, wait=(2,)), engine)
    assert found[:64].tolist() == list(range(64, 128))


@pytest.mark.parametrize("engine", ENGINES)
def test_two_halves_of_a_group_wait_at_barriers_of_their_own(engine):
    """Each half changes words with its other warp; the second half's barrier is used twice."""
    code = begin()
    code.ISETP.GE.AND("P1, PT, R0, 0x40, PT", stall=14)
    code.STS("[R1], R0", read=1, stall=2)
    code.BAR.SYNC.DEFER_BLOCKING("0x1, 0x40", guard="!P1", wait=(1,), stall=6)
    code.BAR.SYNC.DEFER_BLOCKING("0x2, 0x40", guard="P1", stall=6)
    code.BAR.SYNC.DEFER_BLOCKING("0x2, 0x40", guard="P1", stall=6)
    code.LOP3.LUT("R4, R1, 0x80, RZ, 0x3c, !PT", stall=6)
    code.LDS("R4, [R4]", write=2, stall=2)
    assert run(finish(code, 4, wait=(2,)), engine).tolist() == [one ^ 32 for one in range(THREADS)]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("group", [THREADS, 80])
def test_a_reduction_at_a_barrier_counts_the_threads_of_the_group(engine, group):
    """How many threads have a number of which bits 0 and 1 are not 1; whether all or some have one below 80."""
    code = begin()
    code.LOP3.LUT("R4, R0, 0x3, RZ, 0xc0, !PT", stall=6)
    code.ISETP.NE.AND("P1, PT, R4, 0x1, PT", stall=14)
    code.ISETP.LT.AND("P2, PT, R0, 0x50, PT", stall=14)
    code.BAR.RED.POPC.DEFER_BLOCKING("0x0, P1", read=1, stall=6)
    code.B2R.RESULT("R5", write=2, wait=(1,), stall=2)
    code.BAR.RED.AND.DEFER_BLOCKING("0x0, P2", read=1, wait=(2,), stall=6)
    code.B2R.RESULT("RZ, P1", write=2, wait=(1,), stall=2)
    code.BAR.RED.OR.DEFER_BLOCKING("0x0, P2", read=1, wait=(2,), stall=6)
    code.B2R.RESULT("RZ, P2", write=2, wait=(1,), stall=2)
    code.IADD3("R5, R5, 0x1000, RZ", guard="P1", wait=(2,), stall=6)
    code.IADD3("R5, R5, 0x2000, RZ", guard="P2", stall=6)
    found = run(finish(code, 5), engine, group)
    expected = sum(one & 3 != 1 for one in range(group)) + 0x1000 * (group <= 80) + 0x2000
    assert found.tolist() == [expected] * group


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ("0x1, 0x40", "0x1, 0x80", r"barrier 1 is for 128 threads here, for 64 elsewhere"),
        ("0x1, 0x30", "0x1, 0x30", r"illegal at .* a barrier of 48 threads, which is no multiple of 32"),
    ],
)
def test_a_barrier_that_warps_use_differently_is_reported(first, second, why):
    code = begin()
    code.ISETP.GE.AND("P1, PT, R0, 0x20, PT", stall=14)
    code.BAR.SYNC.DEFER_BLOCKING(first, guard="!P1", stall=6)
    code.BAR.SYNC.DEFER_BLOCKING(second, guard="P1", stall=6)
    with pytest.raises(GuestError, match=why):
        run(finish(code, 0), "interpreter")


@pytest.mark.parametrize("engine", ENGINES)
def test_the_global_timer_is_the_cards(engine):
    now = 0x12_3456_7890
    code = begin()
    code.S2R("R4, SR_GLOBALTIMERLO", write=2, stall=2)
    code.S2R("R5, SR_GLOBALTIMERHI", write=3, stall=2)
    code.IADD3("R4, R4, R5, RZ", wait=(2, 3), stall=6)
    assert set(run(finish(code, 4), engine, 32, now_ns=lambda: now)) == {0x3456_7890 + 0x12}


@pytest.mark.parametrize("how", ["CALL.REL.NOINC 0xb0", "CALL.ABS.NOINC R8", "CALL.REL.NOINC R8 0x0", "BRX R8 0x20"])
def test_a_function_is_called_by_place_and_by_register(how):
    """It adds 5 to the thread's number, and returns to the pair that its caller has left in R6."""
    back, function = workbench.CODE + 0x90, workbench.CODE + 0xB0
    # what is added to the pair: nothing, the program's begin, the next instruction's address and 0x20
    far = function - {"0x0": workbench.CODE, "0x20": workbench.CODE + 0x90 + 0x20}.get(how.split()[-1], 0)
    code = begin()
    for register, word in enumerate((back, back >> 32, far, far >> 32), 6):
        code.MOV(f"R{register}, {word & 0xFFFF_FFFF:#x}", stall=6)
    code.emit(how, Control(6))
    finish(code, 0)
    code.IADD3("R0, R0, 0x5, RZ", stall=6)
    code.RET.ABS.NODEC("R6 0x0", stall=6)
    assert run(code.kernel().code, "translator", 32).tolist() == [one + 5 for one in range(32)]
