"""Fixtures that every folder of tests may use."""

import gc
import importlib.util
import signal
import sys
from pathlib import Path

import pytest
from hypothesis.internal.conjecture import providers

from ringup.autogen.generate.manifest import load
from ringup.autogen.generate.sources import Sources
from ringup.tools.common.paths import cache_folder

# A shell without job control starts background jobs with SIGINT and SIGQUIT ignored, and children inherit that. Some
# tests send SIGINT.
for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)

# With Python's own thresholds a tenth of the suite's time goes into garbage collections, nearly all of it into those of
# the oldest generation. `_settle` collects after each file.
gc.set_threshold(20_000, 10, 20)

# Hypothesis draws some values from the constants of all loaded modules. To read those of the generated tables takes
# each process 8 s.
providers._get_local_constants = providers.Constants

# Only the top conftest may name plugins.
pytest_plugins = ["ringup.silicon.fixtures"]


def _plugin(name):
    """Load a plugin from the folder `plugins` beside this file, which is not a package."""
    spec = importlib.util.spec_from_file_location(
        f"ringup_test_{name}", Path(__file__).parent / "plugins" / f"{name}.py"
    )
    sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[spec.name])
    return sys.modules[spec.name]


def pytest_addoption(parser, pluginmanager):
    for name in ("competitor", "cost", "fuzz", "metal", "quick", "unjudged"):
        pluginmanager.register(_plugin(name), f"ringup-{name}")
    parser.addoption(
        "--tree",
        action="append",
        default=[],
        metavar="NAME=DIR",
        help="a header package given by path, such as nvidia-580=DIR",
    )
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write what commands print to test/tools/golden instead of comparing it",
    )


def _settle():
    """Keep long-lived objects out of later garbage collections.

    Twelve thousand items, tables and compiled code are millions of objects. Tests that look for leaks collect often.
    """
    gc.collect()
    gc.freeze()


def pytest_collection_finish(session):
    _settle()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item, nextitem):
    yield
    if nextitem is None or nextitem.path != item.path:
        _settle()


@pytest.fixture(scope="session")
def sources(request):
    """The header packages that are available: the fetched ones, and those named with --tree."""
    trees = dict(text.split("=", 1) for text in request.config.getoption("--tree"))
    return Sources(load(), cache_folder(), {name: Path(folder) for name, folder in trees.items()})


@pytest.fixture(scope="session")
def headers(sources):
    """`headers("linux")` is the root of that header package. A missing package fails the test; it never skips it."""
    return sources.root
