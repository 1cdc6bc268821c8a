"""`--quick-seconds N`: tests that would begin later than N seconds are skipped, and the last lines count them."""

from __future__ import annotations

import time

import pytest

REASON = "no time left for it"


def pytest_addoption(parser):
    parser.addoption(
        "--quick-seconds", type=float, default=0.0, help="begin no test later than this, s; 0: all of them"
    )


class Quick:
    """Skips tests that would begin too late."""

    def __init__(self, seconds):
        self.seconds, self.end = seconds, 0.0

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self):
        # The time starts with the first test: collection does not count.
        self.end = self.end or time.monotonic() + self.seconds
        if time.monotonic() > self.end:
            pytest.skip(REASON)

    def pytest_terminal_summary(self, terminalreporter):
        late = [one for one in terminalreporter.stats.get("skipped", []) if REASON in str(one.longrepr)]
        if late:
            terminalreporter.write_line(f"quick: {len(late)} tests did not fit; `make test` runs them")


def pytest_configure(config):
    if seconds := config.getoption("--quick-seconds"):
        config.pluginmanager.register(Quick(seconds), "ringup-quick-skips")
