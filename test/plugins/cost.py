"""What a run costs, in CPU seconds of the tests and of the processes they start and wait for.

The last lines of a run give the total and the slowest files. CPU clocks differ, so a figure above its budget is a
warning; `--cost-fails FACTOR` makes it a failure once it is FACTOR times the budget.
"""

from __future__ import annotations

import os
import time
from collections import Counter

import pytest

TOTAL_SECONDS = 1000  # of the whole suite: `make test` has 20 CPU minutes, and lint needs some of them
FILE_SECONDS = 30
SHOWN = 5


def _cpu_seconds():
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


class Cost:
    """Counts what each test file costs; with workers, each counts and the controller adds up."""

    def __init__(self, config):
        self.config = config
        self.files = Counter()
        self.processes = 0.0
        self.started = time.monotonic()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        before = _cpu_seconds()
        try:
            return (yield)
        finally:
            self.files[item.location[0]] += _cpu_seconds() - before

    def pytest_sessionfinish(self):
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput["cost"] = (_cpu_seconds(), dict(self.files))

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        seconds, files = getattr(node, "workeroutput", {}).get("cost", (0.0, {}))
        self.processes += seconds
        self.files.update(files)

    def total(self):
        """Return the CPU seconds of every process of this run."""
        # The children of the controller are its workers, which have told their figures.
        spent = os.times()
        return self.processes + spent.user + spent.system if self.processes else _cpu_seconds()

    def above(self, factor=1.0):
        """Return a line for each budget that is passed by more than `factor`."""
        lines = [
            f"{path}: {seconds:.0f} CPU s, the budget of a file is {FILE_SECONDS}"
            for path, seconds in self.files.most_common()
            if seconds > FILE_SECONDS * factor
        ]
        if self.total() > TOTAL_SECONDS * factor:
            lines.append(f"the suite: {self.total():.0f} CPU s, its budget is {TOTAL_SECONDS}")
        return lines

    def pytest_terminal_summary(self, terminalreporter):
        total, tests = self.total(), sum(self.files.values())
        wall = time.monotonic() - self.started
        slowest = ", ".join(f"{path} {seconds:.0f}" for path, seconds in self.files.most_common(SHOWN))
        terminalreporter.write_line(
            f"cost: {total:.0f} CPU s ({total - tests:.0f} before and between the tests), {wall:.0f} s on the clock; "
            f"most: {slowest}"
        )
        for line in self.above():
            terminalreporter.write_line(f"cost: over budget: {line}")


def pytest_addoption(parser):
    parser.addoption(
        "--cost-fails",
        type=float,
        metavar="FACTOR",
        help="fail when a file or the suite costs more CPU time than FACTOR times its budget",
    )
    parser.addoption("--cost-files", metavar="FILE", help="write the CPU seconds of every test file to FILE")


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
