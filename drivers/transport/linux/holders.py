"""Other processes that hold a card: with its nodes open or its BARs mapped."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ringup.drivers.transport.linux import nvidia_proc
from ringup.drivers.transport.linux.function import Function
from ringup.drivers.transport.linux.kernel import Kernel
from ringup.drivers.transport.linux.lock import process

# files of a function with names that begin so give access to its memory
RESOURCES = ("resource", "rom")


@dataclass(frozen=True, slots=True)
class Use:
    """A process and the node through which it holds the card."""

    pid: int
    command: str
    node: str

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command}) has {self.node} open"


@dataclass(frozen=True, slots=True)
class Survey:
    """The uses that were found, and how many processes could not be read."""

    uses: tuple[Use, ...]
    hidden: int


def survey(kernel: Kernel, functions: Iterable[Function]) -> Survey:
    """Look through every process but this one for nodes of the functions."""
    return survey_nodes(kernel, {node for function in functions for node in nodes_of(function)})


def survey_nodes(kernel: Kernel, nodes: set[str]) -> Survey:
    """Look through every process but this one for nodes, given by their paths."""
    uses: list[Use] = []
    hidden = 0
    for name in kernel.names(kernel.path("proc")):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        held = _held(kernel, kernel.path("proc", name))
        if held is None:
            hidden += 1
            continue
        for node in sorted(held & nodes):
            who = process(kernel, int(name))
            uses.append(Use(int(name), who.command if who else "", kernel.shown(Path(node))))
    return Survey(tuple(uses), hidden)


def nodes_of(function: Function) -> Iterator[str]:
    """Yield the paths through which a function is used: BARs, VFIO's group or node, DRM and sound nodes, the node
    of NVIDIA's driver.
    """
    kernel = function.kernel
    folder = function.path.resolve()
    for name in kernel.names(folder):
        # the file `resource` is the table of BARs: it gives no access
        if name.startswith(RESOURCES) and name != "resource":
            yield str(folder / name)
    if function.group:
        yield str(kernel.path("dev/vfio", function.group))
    for name in kernel.names(folder / "vfio-dev"):
        yield str(kernel.path("dev/vfio/devices", name))
    for name in kernel.names(folder / "drm"):
        yield str(kernel.path("dev/dri", name))
    for card in kernel.names(folder / "sound"):
        for name in kernel.names(folder / "sound" / card):
            yield str(kernel.path("dev/snd", name))
    if function.driver == nvidia_proc.DRIVER:
        number = nvidia_proc.minor(kernel, function.address)
        if number is not None:
            yield str(kernel.path(nvidia_proc.CARD_NODE.format(number)))


def _held(kernel: Kernel, folder: Path) -> set[str] | None:
    """Return what a process has open or mapped; None when it may not be read. A process that ended has nothing."""
    try:
        names = os.listdir(folder / "fd")
    except PermissionError:
        return None
    except OSError:
        return set()
    held: set[str] = set()
    for name in names:
        try:
            held.add(os.readlink(folder / "fd" / name))
        except OSError:
            continue  # closed meanwhile
    for line in kernel.text(folder / "maps").splitlines():
        _, slash, rest = line.partition("/")
        if slash:
            held.add(f"/{rest}")
    return held
