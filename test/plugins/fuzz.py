"""`--fuzz`: random programs and whole sweeps. `make test` runs only a few fixed cases of them.

- `@pytest.mark.seeds(3)` on a test with the argument `seed`: seeds 0, 1 and 2 in `make test`, new ones under `--fuzz`.
  `seeds(3, first=400, also=(730013,))` moves the first and adds seeds that failed once. `seeds(3, share=8)` gives the
  test eight times as much time as others under `--fuzz`.
- `sample(cases, few=40)`, a fixture: 40 of the cases in `make test`, spread evenly; under `--fuzz` all of them in
  random order. With `spread=False` the first 40. `sample.fixed` tells whether the cases are the same each time. Only
  then may a test count how often something happens.
- `@pytest.mark.sweep(8)` on a test of many parameters: 8 of its cases in `make test`, the same each time; under
  `--fuzz` all in random order.
- `@pytest.mark.fuzz`: a test, or a parameter, that runs under `--fuzz` only.

Under `--fuzz` nothing else runs. Each test function has an equal share of `--fuzz-seconds`, or several. Cases that do
not fit are left out and counted.
"""

from __future__ import annotations

import random
import time

import pytest

FUZZ_SEEDS = 500  # at most this many of one test in one run, if time allows
LEFT_OUT = "no time left for this case"
PLUGIN = "ringup-fuzz-run"


def pytest_addoption(parser):
    group = parser.getgroup("fuzz")
    group.addoption("--fuzz", action="store_true", help="run random cases and whole sweeps, and nothing else")
    group.addoption("--fuzz-seed", type=int, metavar="N", help="the first seed (default: by the clock, printed)")
    group.addoption("--fuzz-seconds", type=float, default=900, metavar="S", help="time for all of them (default 900)")
    group.addoption("--fuzz-count", type=int, default=FUZZ_SEEDS, metavar="N", help="seeds of each test (default 500)")


def pytest_configure(config):
    if not config.getoption("--fuzz"):
        return
    if config.option.fuzz_seed is None:
        # The seed changes each minute. Workers receive the controller's.
        config.option.fuzz_seed = int(time.time() // 60) % 2_000_000 * 1000
    config.pluginmanager.register(Run(config), PLUGIN)


def pytest_report_header(config):
    if config.getoption("--fuzz"):
        return f"fuzz: seeds from {config.option.fuzz_seed}, {config.option.fuzz_seconds:.0f} s"
    return None


def pytest_generate_tests(metafunc):
    mark = metafunc.definition.get_closest_marker("seeds")
    if mark is None:
        return
    few, first = mark.args[0], mark.kwargs.get("first", 0)
    seeds = [*range(first, first + few), *mark.kwargs.get("also", ())]
    if metafunc.config.getoption("--fuzz"):
        start = metafunc.config.option.fuzz_seed
        seeds = range(start, start + metafunc.config.option.fuzz_count)
    metafunc.parametrize("seed", seeds, ids=[f"seed{seed}" for seed in seeds])


def _is_fuzz(item):
    return any(item.get_closest_marker(name) for name in ("fuzz", "seeds", "sweep")) or "sample" in item.fixturenames


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    fuzz = config.getoption("--fuzz")
    kept = [item for item in items if _is_fuzz(item)] if fuzz else _few(items)
    if len(kept) < len(items):
        # These are not reported as deselected: each half has its own command.
        items[:] = kept
    if fuzz:
        config.pluginmanager.get_plugin(PLUGIN).share_out(items)


def _few(items):
    """Return what `make test` runs. Of a sweep it is as many cases as the sweep says, chosen by the test's
    name alone.
    """
    kept, sweeps = [], {}
    for item in items:
        if not item.get_closest_marker("fuzz"):
            kept.append(item)
            if item.get_closest_marker("sweep"):
                sweeps.setdefault(_function(item), []).append(item)
    left_out = set()
    for function, cases in sweeps.items():
        few = cases[0].get_closest_marker("sweep").args[0]
        left_out.update(random.Random(function).sample(cases, max(0, len(cases) - few)))
    return [item for item in kept if item not in left_out]


def _function(item):
    return item.nodeid.split("[", 1)[0]


def _shares(item):
    mark = item.get_closest_marker("seeds")
    return mark.kwargs.get("share", 1) if mark else 1


class Run:
    """The clock of one process of a `--fuzz` run."""

    def __init__(self, config):
        self.config = config
        self.seconds = config.option.fuzz_seconds
        self.workers = getattr(config, "workerinput", {}).get("workercount", 1)
        self.started = time.monotonic()
        self.shares = {}
        self.begun = {}
        self.spent = {}
        # cases that ran, cases left out
        self.counts = [0, 0]

    def share_out(self, items):
        functions = {}
        for item in items:
            functions.setdefault(_function(item), []).append(item)
        # What does not fit is a different part of a sweep each time.
        for one in functions.values():
            random.Random(self.config.option.fuzz_seed).shuffle(one)
        items[:] = [item for one in functions.values() for item in one]
        shares = {name: _shares(one[0]) for name, one in functions.items()}
        whole = self.seconds * self.workers / max(1, sum(shares.values()))
        self.shares = {name: whole * share for name, share in shares.items()}
        self.started = time.monotonic()

    def left(self, function):
        """Return the seconds that a function of tests still has."""
        now = time.monotonic()
        return min(
            self.shares.get(function, self.seconds) - self.spent.get(function, 0.0), self.seconds - (now - self.started)
        )

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item):
        if self.left(_function(item)) <= 0:
            self.counts[1] += 1
            pytest.skip(LEFT_OUT)
        self.counts[0] += 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report):
        # A case that does not fit is not a skipped test.
        if report.skipped and LEFT_OUT in str(report.longrepr):
            return "", "", ""
        return None

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item):
        before = time.monotonic()
        try:
            return (yield)
        finally:
            function = _function(item)
            self.spent[function] = self.spent.get(function, 0.0) + time.monotonic() - before

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item, call):
        report = yield
        if report.failed:
            again = f"pytest '{_function(item)}' --fuzz --fuzz-seed {_seed(item)}"
            report.sections.append(("once more", again + (" --fuzz-count 1" if "seed" in _parameters(item) else "")))
        return report

    def pytest_sessionfinish(self):
        if hasattr(self.config, "workeroutput"):
            self.config.workeroutput["fuzz"] = self.counts

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node):
        counts = getattr(node, "workeroutput", {}).get("fuzz", (0, 0))
        self.counts = [mine + theirs for mine, theirs in zip(self.counts, counts, strict=True)]

    def pytest_terminal_summary(self, terminalreporter):
        ran, left_out = self.counts
        terminalreporter.write_line(
            f"fuzz: {ran} cases, seeds from {self.config.option.fuzz_seed}; {left_out} more did not fit in "
            f"{self.seconds:.0f} s; again with --fuzz-seed {self.config.option.fuzz_seed}"
        )


def _parameters(item):
    return getattr(item, "callspec", None).params if hasattr(item, "callspec") else {}


def _seed(item):
    return _parameters(item).get("seed", item.config.option.fuzz_seed)


@pytest.fixture
def sample(request):
    """`sample(cases, few=40)` yields 40 of a sweep's cases, the same each time. With `--fuzz` it yields all, shuffled,
    until time is up.
    """
    run = request.config.pluginmanager.get_plugin(PLUGIN)

    def draw(cases, few, *, spread=True):
        cases = list(cases)
        if run is None:
            yield from cases[:: -(-len(cases) // few) if spread else 1][:few]
            return
        random.Random(run.config.option.fuzz_seed).shuffle(cases)
        until = time.monotonic() + run.left(_function(request.node))
        for case in cases:
            if time.monotonic() > until:
                return
            yield case

    draw.fixed = run is None
    return draw
