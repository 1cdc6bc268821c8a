"""Compute shaders that Mesa's NAK compiled, on the virtual SM. Results are those of NumPy.

NAK's code breaks no rule of strict mode. Copies of it with a shorter stall count, or without a scoreboard, do.
"""

import platform
import sys
from dataclasses import replace

import numpy as np
import pytest

from ringup.errors import GuestError
from ringup.silicon.shader.nv import workbench
from ringup.silicon.shader.nv.decoding.decode import decode
from ringup.silicon.shader.nv.interpreter.engine import Interpreter
from ringup.silicon.shader.nv.translator.checks import hazard
from ringup.silicon.shader.nv.translator.engine import NativeRun, Translator
from ringup.silicon.shader.nv.translator.program import blocks_of

if sys.platform != "linux" or platform.machine() != "x86_64":
    pytest.skip("Mesa's compilers are a library on Linux only", allow_module_level=True)

from nak.programs import PROGRAMS

TARGETS = ("sm_75", "sm_86", "sm_89")
WORD_BYTES, NO_BARRIER = 16, 7
# Bits of the control word. Source: Mesa's NAK, sm70_encode.rs.
STALL, WRITE_BARRIER, READ_BARRIER, WAITS = 105, 110, 113, 116


def run(target, program, words=None, engine=Interpreter):
    shader = program.shader
    code = shader.code if words is None else b"".join(word.to_bytes(WORD_BYTES, "little") for word in words)
    return workbench.run(
        engine(target), code, program.arguments, groups=(2, 1, 1), group_size=(program.size, 1, 1),
        registers=shader.registers, shared_bytes=shader.shared_bytes, local_bytes=shader.local_bytes,
        barriers=shader.barriers, parameters_at=0,
    )  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_computes_what_numpy_does(name, target):
    program = PROGRAMS[name](target, np.random.default_rng(7))
    program.check(run(target, program))


@pytest.mark.parametrize("name", PROGRAMS)
def test_both_engines_store_the_same_bytes(name):
    program, other = (PROGRAMS[name]("sm_86", np.random.default_rng(7)) for _ in range(2))
    done = run("sm_86", program, engine=lambda target: Translator(target, worthwhile=0))
    assert isinstance(done, NativeRun)
    program.check(done)
    expected = run("sm_86", other)
    assert done.instructions >= expected.instructions * 0.9
    for ours, theirs in zip(program.arguments, other.arguments, strict=True):
        assert ours.tobytes() == theirs.tobytes()


def test_a_constant_at_the_end_of_its_bank_is_translated():
    program = PROGRAMS["int64_is_made_of_halves_with_carries"]("sm_86", np.random.default_rng(7))
    engine = Translator("sm_86", worthwhile=0)
    shader = program.shader
    sizes = {"groups": (2, 1, 1), "group_size": (32, 1, 1), "registers": shader.registers, "parameters_at": 0}
    launch = workbench.start(engine, shader.code, program.arguments, **sizes).launch
    # three addresses
    exact = replace(launch, constants=(launch.constants[0]._replace(size_bytes=24), *launch.constants[1:]))
    done = workbench.start(engine, shader.code, program.arguments, **sizes)
    assert isinstance(engine.start(exact, done.memory), NativeRun)


def damaged(target, words):
    """Yield each way to cut a stall count by one, to leave out a scoreboard, or a wait for one.

    Left out is what is no hazard: that EXIT waits for what stores have read (compilers of NVIDIA do not do so), the two
    cycles behind a NOP, and those before a slow unit writes what was read; Mesa 25.0.7 leaves one there.
    """
    for at, word in enumerate(words):
        ins = decode(target, word)
        changed = []
        is_slow = {ins.control.write_barrier, ins.control.read_barrier} != {NO_BARRIER}
        if ins.control.stall > (1 if is_slow else 2):
            changed.append(word - (1 << STALL))
        if ins.control.write_barrier != NO_BARRIER:
            changed.append(word | NO_BARRIER << WRITE_BARRIER)
        if ins.control.read_barrier != NO_BARRIER and decode(target, words[at + 1]).name != "EXIT":
            changed.append(word | NO_BARRIER << READ_BARRIER)
        if ins.name != "EXIT":
            changed += [word ^ 1 << WAITS + one for one in range(6) if ins.control.waits >> one & 1]
        for other in changed:
            yield [*words[:at], other, *words[at + 1 :]]


# In the loop NAK takes the longest latency at the end of a block: four cuts there break no rule on any path.
STRAIGHT = [name for name in PROGRAMS if "loop" not in name]


@pytest.mark.parametrize("target", ["sm_75", "sm_86"])
def test_every_shortened_stall_and_dropped_scoreboard_is_caught(target):
    count = 0
    for name in STRAIGHT:
        program = PROGRAMS[name](target, np.random.default_rng(7))
        code = program.shader.code
        words = [int.from_bytes(code[at : at + 16], "little") for at in range(0, len(code), WORD_BYTES)]
        for changed in damaged(target, words):
            with pytest.raises(GuestError, match="hazard at"):
                run(target, program, changed)
            count += 1
    assert count >= 290


def found_in(target, words):
    return hazard(target, blocks_of(target, lambda at: words[at // WORD_BYTES]))


@pytest.mark.parametrize("target", ["sm_75", "sm_86"])
def test_the_translator_finds_them_before_the_program_runs(target):
    for name, make in PROGRAMS.items():
        code = make(target, np.random.default_rng(7)).shader.code
        words = [int.from_bytes(code[at : at + 16], "little") for at in range(0, len(code), WORD_BYTES)]
        assert found_in(target, words) is None
        if name in STRAIGHT:
            for changed in damaged(target, words):
                assert found_in(target, changed) is not None
