"""Machine IR to text and back, and the problems that the checker finds."""

import pytest
import random_machine

from ringup.compiler.machine.build import Builder
from ringup.compiler.machine.check import problems
from ringup.compiler.machine.ir import F32, I1, I32, I64, VOID, If, Loop, Param, Region, Value, walk
from ringup.compiler.machine.text import parse, print_function
from ringup.errors import CompileError

EXAMPLE = """\
kernel scale(a: i64 buffer, out: i64 buffer written size=4096, n: i32, x: f32) group=64 lds=256 wave=32 grid=4,1,1 {
  %0: f32 u = const[-0x0.0p+0]
  %1: i32 u = const[0]
  %2: i64 u = param[0]
  %3: i64 u = param[1]
  %4: i32 u = param[2]
  %5: i32 = thread_id
  %6: i1 = lt_u(%5, %4)
  loop %7 u = %1 to %4 step 2 carrying (%8: f32 = %0, %9: i32 u = %1) unroll 4 at_least_once {
    %10: f32 = load[4](%2, %5, %6)
    %11: f32 = fma(%10, %10, %8)
    %12: i32 u = add(%9, %7)
    if %6 {
      store(%3, %5, %11)
    }
  } following (%11, %12) results (%13: f32, %14: i32 u)
  %15: i32 = atomic[('add', 8)](%3, %5, %14)
  %16: f32x2 = vector(%13, %13)
}
"""


def test_text_is_read_back_as_it_was():
    function = parse(EXAMPLE)
    assert print_function(function) == EXAMPLE
    assert problems(function) == []
    loop = next(one for one in function.body.items if isinstance(one, Loop))
    assert (loop.step, loop.unroll, loop.at_least_once, len(loop.body.items)) == (2, 4, True, 4)
    assert function.params[1] == Param("out", I64, True, True, 4096)
    assert str(function.body.items[0].imm) == "-0.0"


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_random_functions_are_read_back_and_good(first):
    for seed in range(first, first + 20):
        function, _, _ = random_machine.random_function(seed)
        text = print_function(function)
        again = parse(text)
        assert print_function(again) == text
        assert problems(function) == problems(again) == []
        assert len(walk(again.body)) == len(walk(function.body))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("%5: i32 = thread_id", "%5: i32 = thread_idd", r"line 7: .*: expected an operation of machine IR"),
        ("fma(%10, %10, %8)", "fma(%10, %8)", r"line 11: .*: expected 3 operands of fma, not 2"),
        ("fma(%10, %10, %8)", "fma(%10, %99, %8)", r"line 11: .*: expected %99 to be defined before it is used"),
        ("%12: i32 u", "%11: i32 u", r"line 12: .*: expected %11 to be defined once"),
        ("%5: i32 =", "%5: i33 =", r"line 7: .*: expected a type of i1, i8"),
        ("const[0]", "const[zero]", r"line 3: .*: expected a number"),
        ("  } following (%11, %12)", "  } following (%11)", r"line 16: .*: expected 2 values that follow"),
        ("kernel scale(", "kernel (", r"line 1: .*: expected a kernel's head"),
    ],
)
def test_text_that_cannot_be_read(old, new, message):
    assert old in EXAMPLE
    with pytest.raises(CompileError, match=message):
        parse(EXAMPLE.replace(old, new, 1))


def test_a_text_cut_short():
    lines = EXAMPLE.splitlines()
    for count in range(len(lines)):
        with pytest.raises(CompileError, match="machine IR, line"):
            parse("\n".join(lines[:count]))


def small():
    b = Builder("f", [Param("a", I64, True), Param("out", I64, True, True)], 64)
    return b, b.op("thread_id", I32)


def broken(change):
    """Return the problems of a function to which a value was added."""
    b, thread = small()
    change(b, thread)
    return problems(b.function)


def add(b, *value, uniform=False):
    made = Value(*value, uniform=uniform)
    b.function.body.items.append(made)
    return made


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda b, t: add(b, "add", I32, (t,)), "has 1 operands, not 2"),
        (lambda b, t: add(b, "add", I64, (t, t)), "mixes i32, i32 into i64"),
        (lambda b, t: add(b, "fadd", I32, (t, t)), "does not work with i32"),
        (lambda b, t: add(b, "add", I32, (t, Value("const", I32, (), 1))), "is not defined before, in scope"),
        (lambda b, t: add(b, "add", I32, (t, t), uniform=True), "claims to be uniform"),
        (lambda b, t: add(b, "frobnicate", I32, (t, t)), "no such operation"),
        (lambda b, t: add(b, "store", VOID, (b.param(1), t, t, t), 0), "is not an i1"),
        (lambda b, t: add(b, "store", VOID, (b.param(0), t, t), 0), "not `written`"),
        (lambda b, t: add(b, "load", F32, (t, t), 0), "has base i32 and offset i32"),
        (lambda b, t: add(b, "bitcast", I64, (t,)), "the bits differ"),
        (lambda b, t: add(b, "extract", I32, (t,), 1), "has no element 1"),
        (lambda b, t: add(b, "shuffle_xor", I32, (t,), 32), "a wave has no lane 32"),
        (lambda b, t: add(b, "shuffle_up", I32, (t,), 16), "a row has no lane 16"),
        (lambda b, t: add(b, "param", I32, (), 0, uniform=True), "there is no argument 0 of that type"),
        (lambda b, t: add(b, "select", I32, (t, t, t)), "selects from i32 and i32 by i32"),
        (lambda b, t: b.function.body.items.append(If(t, Region())), "is not an i1"),
        (
            lambda b, t: b.function.body.items.append(If(b.op("lt_u", I1, t, b.const(3)), Region([Value("barrier", VOID)]))),
            "is not reached by all threads",
        ),
    ],
)  # fmt: skip
def test_what_the_checker_finds(change, message):
    found = broken(change)
    assert any(message in one for one in found), found


def test_loops_that_do_not_fit():
    b, thread = small()
    with b.loop(0, 4, 1, [thread]) as loop:
        inside = b.add(loop.carried[0], 1)
        loop.following.append(inside)
    assert problems(b.function) == []
    loop.results[0].uniform = True
    assert any("claims to be uniform" in one for one in problems(b.function))
    loop.results[0].uniform = False
    # The value is out of reach here.
    b.add(inside, 5)
    assert any("is not defined before, in scope" in one for one in problems(b.function))
    loop.following.clear()
    assert any("0 following" in one for one in problems(b.function))
