"""Translations of SASS in another thread: steps do nothing until the translation is there, and what runs then is what
memory holds then. And those kept on disk.
"""

import ctypes

import numpy as np
import pytest

from ringup.compiler.isa.sass.dsl import Code
from ringup.silicon.shader.host.code_cache import CodeCache
from ringup.silicon.shader.nv import workbench
from ringup.silicon.shader.nv.translator import translations
from ringup.silicon.shader.nv.translator.engine import NativeRun, Translator

THREADS = 64


def adding(number):
    """Code that stores the thread's number plus another one."""
    code = Code("sm_86", "k", registers=8)
    code.S2R("R0, SR_TID.X", write=0, stall=2)
    code.SHF.L.U32("R1, R0, 0x2, RZ", wait=(0,), stall=6)
    code.IADD3("R2, P0, PT, R1, c[0x0][0x0], RZ", stall=14)
    code.IADD3.X("R3, PT, PT, RZ, c[0x0][0x4], RZ, P0, !PT", stall=6)
    code.IADD3(f"R4, R0, {number:#x}, RZ", stall=6)
    code.STG.E("[R2], R4", read=1, stall=2)
    code.EXIT("", stall=5)
    return code.kernel().code


@pytest.fixture
def out():
    return np.zeros(THREADS, np.uint32)


@pytest.fixture
def launched(out):
    """The launch of a program that adds 5, and its memory."""
    run = workbench.start(
        Translator("sm_86", worthwhile=0),
        adding(5),
        [out],
        registers=8,
        parameters_at=0,
        groups=(1, 1, 1),
        group_size=(THREADS, 1, 1),
    )
    return run.launch, run.memory


def finish(run):
    for _ in range(100):
        if run.step(1000):
            assert run.violations == []
            return
    raise AssertionError("it does not end")


def test_steps_do_nothing_until_the_translation_is_there(launched, out, held):
    run = Translator("sm_86", worthwhile=0, beside=held).start(*launched)
    assert run.waiting
    assert not run.step(1000)
    assert (run.instructions, run.warps, not out.any()) == (0, [], True)
    assert held.work() == 1
    assert not run.waiting
    finish(run)
    assert out.tolist() == list(range(5, 5 + THREADS))
    assert run.instructions > 0


def test_a_program_that_changes_while_it_is_translated_runs_as_it_is_then(launched, out, held):
    launch, memory = launched
    run = Translator("sm_86", worthwhile=0, beside=held).start(launch, memory)
    code = adding(9)
    ctypes.memmove(memory.region(launch.program, write=False).pointer, code, len(code))
    held.work()
    finish(run)
    assert out.tolist() == list(range(9, 9 + THREADS))


def test_a_launch_that_is_killed_while_it_waits_has_ended(launched, out, held):
    run = Translator("sm_86", worthwhile=0, beside=held).start(*launched)
    run.kill()
    assert not run.waiting
    assert run.step(1000)
    held.work()
    assert run.step(1000)
    assert not out.any()


def test_another_process_takes_the_translation_from_disk(launched, out, tmp_path, monkeypatch):
    finish(Translator("sm_86", worthwhile=0, on_disk=CodeCache(tmp_path)).start(*launched))
    assert list(tmp_path.iterdir())
    out[:] = 0
    monkeypatch.delattr(translations, "Lowering")
    run = Translator("sm_86", worthwhile=0, on_disk=CodeCache(tmp_path)).start(*launched)
    assert isinstance(run, NativeRun)
    finish(run)
    assert out.tolist() == list(range(5, 5 + THREADS))
