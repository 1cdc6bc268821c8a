"""What a run costs: CPU time of the tests and of the processes that they start and wait for, in standard seconds.

One computer needs three times the CPU seconds of another for the same tests, so CPU seconds alone say nothing about the
suite. Each process measures repeatedly how long a fixed piece of work (`yardstick`) takes. A standard second is the CPU
time for work that takes one second on a computer where the yardstick takes `STANDARD_MS`.

The last lines of a run give the total and the slowest files. A figure above its budget is a warning; `--cost-fails
FACTOR` makes it a failure once it is FACTOR times the budget.
"""

from __future__ import annotations

import os
import statistics
import time
from collections import Counter, deque

import pytest

STANDARD_MS = 3.0  # the yardstick between tests, on the computer on which the budgets were set
# The budget of the whole suite: `make test` has 20 CPU minutes, and lint needs some of them.
TOTAL_SECONDS = 950
FILE_SECONDS = 30
SHOWN = 5
SECONDS_BETWEEN = 2.0  # CPU time from one measurement to the next
KEPT = 5  # the median of this many measurements counts


def _cpu_seconds():
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def yardstick():
    """Do a fixed piece of work of the kinds that tests do: integers, dicts, objects, bytes."""
    table, total = {}, 0
    for number in range(6000):
        table[number * 7919 % 4096] = (number, str(number))
        total += number * number & 255
    data = bytearray(1 << 18)
    for at in range(0, len(data), 512):
        data[at : at + 4] = total.to_bytes(4, "little")
    rows = sorted(table.items(), key=lambda row: row[1][1])
    return sum(row[0] for row in rows) + len(bytes(data))


def measure_ms():
    """Return the CPU time of the yardstick here and now, in milliseconds."""
    before = time.process_time()
    yardstick()
    return (time.process_time() - before) * 1e3


class Speed:
    """How slow this computer is at the moment: 2 where it needs twice the standard computer's time."""

    def __init__(self, measure=measure_ms):
        self._measure = measure
        # The first time is slower, because memory and the interpreter's caches are cold.
        measure()
        self._recent = deque(maxlen=KEPT)
        self._measured_at = None
        self.factors = []

    def factor(self, cpu_seconds):
        """Return the factor. It is measured again if `cpu_seconds` have grown by `SECONDS_BETWEEN`."""
        if self._measured_at is None or cpu_seconds - self._measured_at >= SECONDS_BETWEEN:
            self._measured_at = cpu_seconds
            self._recent.append(self._measure())
            # Some kernels count CPU time in steps of 10 ms, and so may see none.
            self.factors.append(max(statistics.median(self._recent), 0.1) / STANDARD_MS)
        return self.factors[-1]


class Cost:
    """Counts what each test file costs. With workers, each counts and the controller adds up."""

    def __init__(self, config):
        self.config = config
        self.files = Counter()  # standard seconds
        self.speed = Speed()
        self.processes = 0.0  # CPU seconds of the workers
        self.tests = 0.0  # CPU seconds of the tests
        self.factors = []
        self.started = time.monotonic()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        before = _cpu_seconds()
        factor = self.speed.factor(before)
        before = _cpu_seconds()
        try:
            return (yield)
        finally:
            spent = _cpu_seconds() - before
            self.tests += spent
            self.files[item.location[0]] += spent / factor

    def pytest_sessionfinish(self):
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput["cost"] = (_cpu_seconds(), self.tests, dict(self.files), self.speed.factors)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        seconds, tests, files, factors = getattr(node, "workeroutput", {}).get("cost", (0.0, 0.0, {}, []))
        self.processes += seconds
        self.tests += tests
        self.files.update(files)
        self.factors += factors

    def cpu_seconds(self):
        """Return the CPU seconds of every process of this run."""
        # The children of the controller are its workers, which have reported their figures.
        spent = os.times()
        return self.processes + spent.user + spent.system if self.processes else _cpu_seconds()

    def slowness(self):
        """Return how many CPU seconds of this computer are a standard second, over the whole run."""
        return statistics.mean(self.factors or self.speed.factors or [1.0])

    def total(self):
        """Return the standard seconds of every process of this run."""
        outside = max(self.cpu_seconds() - self.tests, 0.0)
        return sum(self.files.values()) + outside / self.slowness()

    def above(self, factor=1.0):
        """Return a line for each budget that is exceeded by more than `factor`."""
        lines = [
            f"{path}: {seconds:.0f} standard CPU s, the budget of a file is {FILE_SECONDS}"
            for path, seconds in self.files.most_common()
            if seconds > FILE_SECONDS * factor
        ]
        if self.total() > TOTAL_SECONDS * factor:
            lines.append(f"the suite: {self.total():.0f} standard CPU s, its budget is {TOTAL_SECONDS}")
        return lines

    def pytest_terminal_summary(self, terminalreporter):
        total, tests = self.total(), sum(self.files.values())
        wall = time.monotonic() - self.started
        slowest = ", ".join(f"{path} {seconds:.0f}" for path, seconds in self.files.most_common(SHOWN))
        terminalreporter.write_line(
            f"cost: {total:.0f} standard CPU s ({total - tests:.0f} before and between the tests), "
            f"{self.cpu_seconds():.0f} CPU s of this computer at {self.slowness():.2f} each, {wall:.0f} s on the clock; "
            f"most: {slowest}"
        )
        for line in self.above():
            terminalreporter.write_line(f"cost: over budget: {line}")


def pytest_addoption(parser):
    parser.addoption(
        "--cost-fails",
        type=float,
        metavar="FACTOR",
        help="fail when a file or the suite costs more standard CPU time than FACTOR times its budget",
    )
    parser.addoption("--cost-files", metavar="FILE", help="write the standard CPU seconds of every test file to FILE")


def pytest_configure(config):
    config.pluginmanager.register(Cost(config), "ringup-cost-counter")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session, exitstatus):
    config = session.config
    if hasattr(config, "workerinput"):
        return
    cost = config.pluginmanager.get_plugin("ringup-cost-counter")
    if path := config.getoption("--cost-files"):
        with open(path, "w", encoding="utf-8") as out:
            out.writelines(f"{seconds:9.2f} {name}\n" for name, seconds in cost.files.most_common())
    factor = config.getoption("--cost-fails")
    if factor is not None and exitstatus == pytest.ExitCode.OK and cost.above(factor):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
