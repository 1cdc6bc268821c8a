"""A pytest plugin for the tests in guests. Each guest's tests stay together, so that guests run side by side. After a
run of `ladder.py` or the NVIDIA tests it prints which rung was reached, and what stops the next.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

RUNGS = {
    1: "probe and VBIOS read",
    2: "discovery and IP block list",
    3: "GMC: VRAM size, GART",
    4: "PSP bring-up, the distribution's firmware",
    5: "SMU",
    6: "interrupts as MSI",
    7: "RLC, MEC, MES, KIQ",
    8: "graphics, compute and SDMA ring tests",
    9: "IB tests, Initialized amdgpu",
    10: "KFD node",
    11: "sensors follow the load",
    12: "unload, sleep, reset, a hung job, more cards",
    13: "Vulkan through RADV, page faults",
    14: "tinygrad over KFD, ROCm's runtime",
    15: "umr, amdgpu_top and nvtop read the card",
    16: "Vulkan conformance, or a public compute application",
}
# of nvidia.py, nvidia_modules.py, nvidia_nodes.py and nvidia_bare.py
NVIDIA_RUNGS = {
    1: "nouveau with made-up GSP firmware has its DRM node",
    2: "copies, fences, unload, sleep, two cards, a hung channel, page faults",
    3: "Vulkan compute through NVK",
    4: "a public Vulkan compute application",
    5: "NVIDIA's open kernel modules, asked by a client of ours",
    6: "contexts, copies, streams and events over these modules, without libcuda",
    7: "other releases: a newer kernel's nouveau with GSP 570.144",
    8: "another user-space driver: tinygrad's, on a card in process",
    9: "ringup's own driver, nvidia:0, over NVIDIA's open kernel modules",
    10: "ringup's own driver on the bare card, in turn with nouveau and with these modules",
}
NVIDIA_IN_PART = {
    3: "NVK 25.0 has no matrix instructions",
    5: "temperature and use follow work; power does in the model, and no public control tells it",
    7: "nouveau with GSP 570.144; NVIDIA's modules of another release are not tried",
}
# files whose guests have one chip each
BY_CHIP = ("ladder.py", "nvidia.py", "nvidia_modules.py", "nvidia_nodes.py", "nvidia_bare.py")
IN_PART = {15: "nvtop does, in rung 11; umr and amdgpu_top are in no package of Debian 13"}


def pytest_configure(config: pytest.Config) -> None:
    """Name the marks."""
    config.addinivalue_line("markers", "climbers(*rows): the chips that climb this rung, by default all")
    config.addinivalue_line("markers", "long: minutes, of which a slow computer has none to spare in `.ci/run`")


class ByGuest(LoadScopeScheduling):
    """Gives all tests of one guest to one worker of pytest-xdist: those of a file, or of a chip of a ladder."""

    def _split_scope(self, nodeid: str) -> str:
        file, _, test = nodeid.partition("::")
        chip = re.search(r"\[(\w+)", test) if file.endswith(BY_CHIP) else None
        return f"{file}-{chip[1]}" if chip else file


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByGuest:
    """QUIRK: pytest-xdist's own `loadgroup` knows no groups with pytest 9, whose `nodeid` takes no suffix."""
    return ByGuest(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a chip together, in the order of the file: pytest sorts by the places that chips have in the
    marks of tests.
    """
    turns = [(at, item) for at, item in enumerate(items) if isinstance(item, pytest.Function) and _climbs(item)]
    for (at, _), (_, item) in zip(turns, sorted(turns, key=lambda one: _turn(one[1])), strict=True):
        items[at] = item


def _climbs(item: pytest.Function) -> bool:
    return hasattr(item, "callspec") and "story" in item.callspec.params


def _turn(item: pytest.Function) -> tuple[int, int]:
    return item.module.ALL.index(item.callspec.params["story"]), item.function.__code__.co_firstlineno


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how far the ladder was climbed, from the tests whose name has a rung's number."""
    ran: dict[int, list[str]] = {}
    titles, in_part = RUNGS, IN_PART
    for outcome in ("passed", "failed", "error"):
        for report in terminalreporter.stats.get(outcome, []):
            if found := re.search(r"test_rung_(\d+)_\w+", report.nodeid):
                wrong = ran.setdefault(int(found[1]), [])
                if "nvidia" in report.nodeid or "/nv/" in report.nodeid:
                    titles, in_part = NVIDIA_RUNGS, NVIDIA_IN_PART
                if outcome != "passed":
                    wrong.append(report.nodeid.rpartition("::")[2])
    if not ran:
        return
    reached, stopped = 0, False
    for rung, title in titles.items():
        if rung in in_part and not ran.get(rung):
            how = f"in part: {in_part[rung]}"
        elif rung in ran and not ran[rung]:
            how = "reached"
        else:
            how = f"stopped by: {', '.join(ran.get(rung, [])) or 'its tests were not run'}"
        stopped = stopped or how != "reached"
        reached = reached if stopped else rung
        terminalreporter.write_line(f"rung {rung:2} ({title}): {how}")
    terminalreporter.write_line(f"rung {reached} is reached" + (", with all below it" if reached else ""))
