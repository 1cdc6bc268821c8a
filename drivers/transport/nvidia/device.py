"""The path to one card that NVIDIA's kernel driver has: its nodes, its events, whether it is lost. There are no
registers but the page of doorbells.
"""

from __future__ import annotations

import errno
import getpass
import logging
import os
from functools import partial
from pathlib import Path
from typing import Final

from ringup.drivers.cleanup import Teardown, undone_on_error
from ringup.drivers.transport.linux import advice
from ringup.drivers.transport.linux.kernel import Kernel, explained
from ringup.drivers.transport.nvidia.calls import Calls, CardRow
from ringup.drivers.transport.nvidia.system import CONTROL_NODE, Happened, LinuxSystem, System, node_of
from ringup.drivers.transport.seam import Clock
from ringup.errors import DeviceHung, DeviceLost, NoSuchCard, NotSupported, PermissionNeeded, RingupError

LOG = logging.getLogger(__name__)
US_PER_MS = 1000
ABSENT = (errno.ENOENT, errno.ENXIO, errno.ENODEV)


class NodeEvents:
    """The seam's `Interrupts`: events of the card's channels wake a sleeping process through an open node."""

    def __init__(self, device: NvidiaDevice) -> None:
        self._device = device
        # the node that events come through, and how they are ended; -1 before `connect`
        self.node, self._end = -1, _nothing

    def connect(self, client: int, device: int) -> int:
        """Let events of a client come through a node of their own; return it. Objects ask for events by its number."""
        path, calls = self._device, self._device.calls
        node = path.open_node(node_of(path.row.minor), "listening for its events")
        with undone_on_error(partial(path.system.close, node)):
            calls.register(node)
            calls.listen(client, device, node)
        self.node = node
        self._end = partial(calls.stop_listening, client, device, node)
        return node

    def wait(self, timeout_us: float) -> tuple[int, ...]:
        """Sleep until an event comes, at most that long. Return (0,) if one came."""
        if self.node < 0:
            self._device.clock.sleep_us(timeout_us)
            return ()
        # the kernel sleeps whole milliseconds
        happened = self._device.system.poll([self.node], -(-int(timeout_us) // US_PER_MS))
        if happened is Happened.GONE:
            self._device.lose(DeviceLost("its node hangs up"))
            # a node that hangs up does so at once, each time
            self._device.clock.sleep_us(timeout_us)
        return (0,) if happened is Happened.EVENT else ()

    def close(self) -> None:
        """Get no events any more. Twice is harmless."""
        node, self.node = self.node, -1
        if node < 0:
            return
        with Teardown("closing", logged=RingupError) as teardown:
            teardown.attempt(self._end)
            teardown.attempt(partial(self._device.system.close, node))


class NvidiaDevice:
    """One card, used by this process; other processes may use it too."""

    # the driver that uses it
    driver_module: Final = "ringup.drivers.nv.nodes.card"
    polls_vram: Final = False
    remote: Final = None

    def __init__(self, name: str, minor: int, system: System | None = None) -> None:
        """Open the nodes of card `minor`, which starts the card if nobody uses it yet.

        Raises `NotSupported` without the driver or for a release that is too old, `NoSuchCard`, `PermissionNeeded`,
        `DeviceHung` if the driver cannot start the card.
        """
        self.name, self.system = name, system or LinuxSystem()
        self.clock: Clock = self.system.clock
        self._closed = False
        self._lost = ""
        try:
            self.calls = Calls(self.system, name)
        except OSError as error:
            raise self._refused(CONTROL_NODE, error) from error
        with undone_on_error(self.calls.close):
            self.row = self._row(minor)
            self.calls.attach(minor, f"opening {name}", partial(self._refused, node_of(minor)))
            self.interrupts = NodeEvents(self)

    @property
    def release(self) -> str:
        """The release of the kernel's driver."""
        return self.calls.release

    @property
    def lost(self) -> bool:
        """Whether the card is gone, as far as was noticed."""
        return bool(self._lost)

    @property
    def why_lost(self) -> str:
        """For errors once the card is lost, after its name."""
        return self._lost or "is there"

    def lose(self, error: DeviceLost) -> None:
        """Remember that the card is gone."""
        self._lost = self._lost or f"is gone ({error}): open it again once `ringup list` shows it"

    def open_node(self, path: str, doing: str) -> int:
        """Open a node; the caller closes it."""
        try:
            return self.system.open(path)
        except OSError as error:
            raise self._refused(path, error, f"{self.name}: {doing}") from error

    def close(self) -> None:
        """Close the nodes: the kernel's driver frees all that this process had of the card. Twice is harmless."""
        if self._closed:
            return
        self._closed = True
        with Teardown(f"{self.name}: closing", logged=RingupError) as teardown:
            teardown.attempt(self.interrupts.close)
            teardown.attempt(self.calls.close)
            teardown.attempt(self.system.end)

    def _row(self, minor: int) -> CardRow:
        rows = self.calls.cards()
        for row in rows:
            if row.minor == minor:
                return row
        there = ", ".join(f"nvidia:{row.minor} at {row.address}" for row in rows) or "none"
        raise NoSuchCard(f"opening {self.name}: the kernel's driver has no card with that number; it has {there}")

    def _refused(self, path: str, error: OSError, doing: str = "") -> RingupError:
        """Return the error for a node that cannot be opened."""
        doing, kernel = doing or f"opening {self.name}", getattr(self.system, "kernel", None) or Kernel()
        if error.errno in (errno.EACCES, errno.EPERM):
            return PermissionNeeded(f"{doing}: no permission for {path}: {join(kernel, kernel.path(path))}")
        if error.errno in ABSENT:
            return NotSupported(f"{doing}: {path} is not there: {missing(kernel)}")
        # nvidia_open: the adapter cannot be initialised
        if error.errno == errno.EIO:
            return DeviceHung(
                f"{doing}: the kernel's driver cannot start the card ({path}: {error.strerror}); `dmesg` says why (NVRM)"
            )
        return explained(error, f"{doing}: opening {path}")


def missing(kernel: Kernel) -> str:
    """Say what to do where the nodes are not there."""
    if not kernel.text(kernel.path("/proc/driver/nvidia/version")):
        return (
            "load NVIDIA's kernel driver (`modprobe nvidia`), or let ringup drive the card itself: `ringup list` shows "
            "its pci: name"
        )
    return "the driver is loaded without nodes: `nvidia-modprobe -c 0` makes them, as root"


def join(kernel: Kernel, path: Path) -> str:
    """Say how a user gets the right to use a node."""
    try:
        return advice.join_group(kernel, path, getpass.getuser(), os.getgroups())
    except (KeyError, OSError):
        return "its mode does not let this user open it: NVreg_DeviceFileMode of the module nvidia sets it"


def _nothing() -> None:
    """End nothing."""
