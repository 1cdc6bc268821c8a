"""Kernels that wait for memory cost the simulation little, however long they wait, and soon see what they wait for.
Kernels that compute take the time of their instructions.
"""

import struct

import pytest

import ringup
from ringup.errors import DeviceTimeout
from ringup.silicon.shader.amd.translator.engine import TranslatedRun
from ringup.silicon.shader.amd.translator.repeats import Repeats

SOURCE = """
typedef volatile __global int *P;
__kernel void flag(P p) { while (!p[1]) ; }
__kernel void counter(P p) { while (!p[1]) p[0]++; }
__kernel void barrier(P p) {
  if (__builtin_amdgcn_workitem_id_x() < 32) while (!p[1]) ;
  __builtin_amdgcn_s_barrier();
}
__kernel void compute(P p, int n) { int x = 1; for (int i = 0; i < n; i++) x = x * 5 + i; p[2] = x; }
"""
WAIT_S = 0.2


@pytest.fixture
def bench(virtual_card, opencl, monkeypatch):
    """An open card, its program, a buffer of zeros, and a list that grows with each step of a dispatch."""
    steps = []
    step = TranslatedRun.step
    monkeypatch.setattr(TranslatedRun, "step", lambda run, count: steps.append(count) or step(run, count))
    radeon = virtual_card("navi31", vram_bytes=1 << 30)
    with ringup.open(radeon.name, transport={"card": radeon}) as card:
        memory = card.alloc(4096)
        card.copy.fill(memory, 0).wait()
        yield radeon, card, card.load(opencl(SOURCE, "gfx1100")), memory, steps


def start(bench, name, *arguments, groups=1):
    _, card, program, memory, _ = bench
    stream = card.compute.stream()
    stream.dispatch(program[name], (groups, 1, 1), (64, 1, 1), [memory.gpu_va, *arguments])
    return card.compute.submit(stream)


@pytest.mark.parametrize("groups", [1, 200])
@pytest.mark.parametrize("name", ["flag", "counter", "barrier"])
def test_a_kernel_that_waits_takes_few_steps_and_sees_the_flag_soon(bench, name, groups):
    radeon, card, _, memory, steps = bench
    point = start(bench, name, groups=groups)
    with pytest.raises(DeviceTimeout):
        point.wait(WAIT_S)
    # a step each 2 us would be 100,000
    assert len(steps) < 8_000
    before = radeon.clock.now_ns
    card.copy.fill(memory, 1, 4, 4).wait()
    point.wait(1)
    # each wave takes its turns, some of them 1 ms apart
    assert radeon.clock.now_ns - before < 50_000_000
    assert radeon.violations == []


def test_a_kernel_that_computes_takes_the_time_of_its_instructions(bench):
    radeon, card, _, memory, _ = bench
    before = radeon.clock.now_ns
    busy = radeon.gc.dispatcher.busy_ns
    start(bench, "compute", 300_000).wait(1)
    executed = radeon.gc.dispatcher.busy_ns - busy
    assert executed > 600_000
    assert executed <= radeon.clock.now_ns - before <= executed + 200_000
    x = 1
    for i in range(300_000):
        x = (x * 5 + i) & 0xFFFF_FFFF
    assert struct.unpack_from("<I", card.copy.download(memory), 8)[0] == x


def test_repeats_are_found_whatever_their_period_and_only_then():
    for lead, period in ((0, 1), (0, 7), (5, 3), (100, 250)):
        found = Repeats()
        states = [b"lead %d" % i for i in range(lead)] + [b"loop %d" % (i % period) for i in range(3000)]
        seen = []
        for one in states:
            found.look(one)
            seen.append(found.period)
        assert seen[: lead + period] == [0] * (lead + period)
        assert seen[-1] == period
    for number in range(5000):
        found.look(b"now %d" % number)
        # the states of one more turn may be what comes back
        assert found.period in (0, 250) if number < 250 else found.period == 0
