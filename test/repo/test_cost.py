"""The cost of a run is counted in standard seconds, which are the same on slow and fast computers."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("ringup_cost", ROOT / "test/plugins/cost.py")
cost = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(cost)


class Item:
    def __init__(self, path):
        self.location = (path, 1, "test")


@pytest.fixture
def clock(monkeypatch):
    """Return the CPU seconds of this process so far, as the test sets them."""
    now = {"seconds": 0.0}
    monkeypatch.setattr(cost, "_cpu_seconds", lambda: now["seconds"])
    return now


def run(counter, clock, path, seconds):
    protocol = counter.pytest_runtest_protocol(Item(path))
    next(protocol)
    clock["seconds"] += seconds
    with pytest.raises(StopIteration):
        protocol.send(None)


def counter_on(slowness):
    counter = cost.Cost(None)
    counter.speed = cost.Speed(lambda: slowness * cost.STANDARD_MS)
    return counter


@pytest.mark.parametrize("slowness", [0.5, 1.0, 3.0])
def test_a_file_costs_the_same_on_every_computer(clock, slowness):
    counter = counter_on(slowness)
    run(counter, clock, "a.py", 12 * slowness)
    run(counter, clock, "a.py", 20 * slowness)
    run(counter, clock, "b.py", 29 * slowness)
    assert counter.files == pytest.approx({"a.py": 32, "b.py": 29})
    assert counter.above() == ["a.py: 32 standard CPU s, the budget of a file is 30"]
    assert counter.above(2) == []


@pytest.mark.parametrize("slowness", [1.0, 3.0])
def test_time_outside_the_tests_counts_too(clock, slowness):
    counter = counter_on(slowness)
    for number in range(50):
        run(counter, clock, f"{number}.py", (cost.TOTAL_SECONDS / 50 - 1) * slowness)
    clock["seconds"] += 51 * slowness
    assert counter.total() == pytest.approx(cost.TOTAL_SECONDS + 1)
    assert counter.above() == [
        f"the suite: {cost.TOTAL_SECONDS + 1} standard CPU s, its budget is {cost.TOTAL_SECONDS}"
    ]


def test_workers_add_up(clock):
    node = SimpleNamespace(workeroutput={"cost": (70.0, 60.0, {"a.py": 20.0}, [3.0, 3.0])})
    counter = counter_on(3.0)
    counter.pytest_testnodedown(node)
    counter.pytest_testnodedown(node)
    # Workers may share a file.
    assert counter.files == {"a.py": 40.0}
    assert counter.slowness() == 3.0


def test_a_computer_that_becomes_slower_is_measured_again(clock):
    readings = iter([9.0, *[1.0] * cost.KEPT, *[4.0] * cost.KEPT])
    # The first reading is discarded.
    speed = cost.Speed(lambda: next(readings) * cost.STANDARD_MS)
    factors = []
    for _ in range(2 * cost.KEPT):
        factors.append(speed.factor(clock["seconds"]))
        assert speed.factor(clock["seconds"] + cost.SECONDS_BETWEEN / 2) == factors[-1]
        clock["seconds"] += cost.SECONDS_BETWEEN
    assert factors[0] == factors[cost.KEPT] == 1.0
    assert factors[-1] == 4.0


def test_the_yardstick_is_the_same_work_each_time():
    assert cost.yardstick() == cost.yardstick()
    assert cost.measure_ms() > 0
