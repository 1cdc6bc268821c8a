"""Translations in another thread: steps do nothing until the translation is there, and the results are the same as
without the thread.
"""

import threading
from pathlib import Path

import numpy as np
import pytest

from ringup.silicon.shader.amd.translator import translations as programs
from ringup.silicon.shader.amd.translator.engine import Translator
from ringup.silicon.shader.common.state import Region
from ringup.silicon.shader.host.beside import Beside

IN, OUT = 0x20_0000, 0x30_0000
ARGS = {"user_sgprs": (IN, 0, OUT, 0), "vgpr_count": 24}
LANE = "v_lshlrev_b32_e32 v1, 2, v0\n"
ADD = LANE + "v_add_nc_u32_e32 v2, 5, v0\n global_store_b32 v1, v2, s[2:3]\n s_endpgm\n"
CALLS = LANE + Path(__file__).with_name("calls.s").read_text()
# Half of the data loaded from LDS was never written, and nothing uses it.
UNDEFINED = (
    LANE
    + """
        s_mov_b32 exec_lo, 0xffff
        ds_store_b32 v1, v0
        s_mov_b32 exec_lo, -1
        s_waitcnt lgkmcnt(0)
        ds_load_b32 v2, v1
        s_waitcnt lgkmcnt(0)
        v_mov_b32_e32 v3, v2
        s_mov_b32 exec_lo, 0xffff
        global_store_b32 v1, v3, s[2:3]
        s_endpgm
    """
)


@pytest.fixture
def engine(held):
    return Translator(beside=held)


@pytest.fixture
def out(machine):
    machine.buffer(IN, np.arange(4096))
    return machine.buffer(OUT, np.zeros(4096))


def finish(run, held):
    """Run to the end; return how many translations the run waited for."""
    jobs = 0
    for _ in range(100):
        if run.step(1000):
            return jobs
        assert not run.violations
        if run.waiting:
            assert held.given
            assert not run.step(1000)
            jobs += held.work()
            assert not run.waiting
    raise AssertionError("it does not end")


def translations(engine):
    return sum(map(len, engine.cache.values()))


def counters_at(expected, run):
    """Return counters as a program at another address would have them."""
    move, found = run.machine.dispatch.pc - expected.machine.dispatch.pc, expected.counters
    found.by_pc = {pc + move: count for pc, count in found.by_pc.items()}
    return found


@pytest.mark.parametrize(
    ("program", "options", "jobs"),
    [
        (ADD, {}, 1),
        # One translation for all lanes active, one for some.
        (ADD, {"group_count": (2, 1, 1), "partial_size": (7, 1, 1)}, 2),
        # Both targets of calls are new to it.
        (CALLS, {}, 3),
        (UNDEFINED, {"lds_size_bytes": 512}, 2),
    ],
    ids=["plain", "partial", "calls", "tracked"],
)
def test_a_dispatch_waits_for_each_translation_and_does_the_same(machine, out, engine, held, program, options, jobs):
    expected = machine.run(program, engine=Translator(), **ARGS, **options)
    wanted, out[:] = out.copy(), 0
    run = machine.start(program, engine=engine, **ARGS, **options)
    assert run.waiting
    assert not run.waves
    assert finish(run, held) == jobs
    assert (out == wanted).all()
    assert run.counters == counters_at(expected, run)
    assert run.instructions == run.counters.instructions


def test_what_comes_of_undefined_values_is_translated_once(machine, out):
    engine = Translator()
    machine.run(UNDEFINED, engine=engine, lds_size_bytes=512, **ARGS)
    assert translations(engine) == 2
    assert (out[:16] == np.arange(16)).all()


def test_dispatches_of_one_program_wait_for_one_translation(machine, out, engine, held):
    first, again = (machine.start(ADD, engine=engine, **ARGS) for _ in range(2))
    assert len(held.given) == 1
    assert not first.step(1000)
    assert not again.step(1000)
    held.work()
    for run in (again, first):
        out[:] = 0
        assert run.step(1000)
        assert (out[:32] == np.arange(32) + 5).all()
    assert machine.start(ADD, engine=engine, **ARGS).waiting is False


def test_waves_that_are_killed_wait_for_nothing(machine, out, engine, held):
    run = machine.start(ADD, engine=engine, **ARGS)
    run.kill()
    assert not run.waiting
    assert run.step(1000)
    held.work()
    assert run.step(1000)
    assert not out.any()
    later = machine.start(CALLS, engine=engine, **ARGS)
    held.work()
    assert not later.step(1000)
    assert later.waiting
    later.kill()
    assert later.step(1000)
    assert not out.any()


@pytest.mark.parametrize("moved", [True, False])
def test_code_that_changed_meanwhile_is_translated_anew(machine, out, engine, held, moved):
    """The code changes by another mapping of its address, or in place."""
    run = machine.start(ADD, engine=engine, **ARGS)
    region, raw = machine.arena.regions[-1]
    other = np.frombuffer(machine.assemble(ADD.replace("5", "6")), np.uint8)
    if moved:
        machine.arena.regions[-1] = (Region(region.gpu_va, other.size, other.ctypes.data, writable=False), other)
        machine.arena.epoch += 1
    else:
        raw[:] = other
    held.work()
    assert not run.step(1000)
    assert run.waiting
    held.work()
    assert run.step(1000)
    assert (out[:32] == np.arange(32) + 6).all()


def test_shapes_of_groups_never_run_different_code(machine, out, engine, held):
    """Full groups have a translation when the code changes. Partial groups still wait for theirs."""
    run = machine.start(ADD, engine=engine, group_count=(2, 1, 1), partial_size=(7, 1, 1), **ARGS)
    _, raw = machine.arena.regions[-1]
    held.work()
    assert not run.step(1000)
    raw[:] = np.frombuffer(machine.assemble(ADD.replace("5", "6")), np.uint8)
    # The translation in progress is wasted.
    assert finish(run, held) == 3
    assert (out[:32] == np.arange(32) + 6).all()


def test_what_a_translation_raises_comes_out_of_the_step(machine, out, engine, held, monkeypatch):
    monkeypatch.setattr("ringup.silicon.shader.amd.translator.translations.Threader", lambda *_: 1 // 0)
    run, again = (machine.start(ADD, engine=engine, **ARGS) for _ in range(2))
    held.work()
    with pytest.raises(ZeroDivisionError):
        run.step(1000)
    monkeypatch.undo()
    assert (finish(run, held), finish(again, held)) == (1, 0)
    assert (out[:32] == np.arange(32) + 5).all()


def test_a_thread_translates_and_ends_with_what_it_began(machine, out):
    before, gate = threading.active_count(), threading.Event()
    with Beside() as beside:
        engine = Translator(beside=beside)
        run = machine.start(ADD, engine=engine, **ARGS)
        for _ in range(60_000):
            if run.step(1000):
                break
            gate.wait(0.001)
        assert (out[:32] == np.arange(32) + 5).all()
        beside.submit(gate.wait, 60)
        run = machine.start(ADD.replace("5", "7"), engine=engine, **ARGS)
        assert not run.step(1000)
        gate.set()
    assert threading.active_count() == before
    run.kill()
    assert run.step(1000)


def test_better_code_is_not_waited_for(machine, out, engine, held, monkeypatch):
    monkeypatch.setattr(programs, "OUTGROWN", 1)
    assert finish(machine.start(ADD, engine=engine, **ARGS), held) == 1
    again = machine.start(ADD, engine=engine, **ARGS)
    # The job is the better code.
    assert held.given
    # The run uses the old code.
    assert finish(again, held) == 0
    held.work()
    ((quick, thorough),) = engine.cache.values()
    assert finish(machine.start(ADD, engine=engine, **ARGS), held) == 0
    assert quick.made.result().work == 2 * thorough.made.result().work > 0
