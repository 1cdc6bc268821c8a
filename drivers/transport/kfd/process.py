"""What this process has of /dev/kfd.

The kernel keeps one context for each process, from the first open of /dev/kfd until the process ends: closing the node
does not end it. A GPU's address space is that of the render node that was used first, and so is the page of event
slots. So both stay open here, and a card that is opened again uses them. Source: Linux amdkfd kfd_process.c
(kfd_create_process, kfd_process_notifier_release), kfd_chardev.c (kfd_ioctl_acquire_vm), kfd_events.c.
"""

from __future__ import annotations

import errno
import getpass
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ringup.autogen.amd import kfd
from ringup.drivers.cleanup import undone_on_error
from ringup.drivers.transport.kfd.calls import NODE, Apertures, Calls, Event
from ringup.drivers.transport.kfd.topology import Node
from ringup.drivers.transport.linux import advice
from ringup.drivers.transport.linux.kernel import Kernel
from ringup.errors import CardBusy, DeviceHung, NoSuchCard, NotSupported

# The slots of events: a quadword each, which the kernel resets to ones. Source: kfd_events.c
EVENT_PAGE_BYTES = kfd.KFD_SIGNAL_EVENT_LIMIT * 8
SLOT_BYTES = 8
# Ours: below the addresses of buffers, above what the kernel keeps for itself (kfd_flat_memory.c, SVM_USER_BASE)
EVENT_PAGE_VA = 0x8000_0000
EVENT_PAGE_FLAGS = (
    kfd.KFD_IOC_ALLOC_MEM_FLAGS_GTT
    | kfd.KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE
    | kfd.KFD_IOC_ALLOC_MEM_FLAGS_NO_SUBSTITUTE
    | kfd.KFD_IOC_ALLOC_MEM_FLAGS_COHERENT
    | kfd.KFD_IOC_ALLOC_MEM_FLAGS_UNCACHED
)


# what Linux does when a card leaves amdgpu while processes use any
SUSPENDED = (
    "Linux then stops the queues of all processes on all cards until amdgpu is loaded again: end the processes that use /dev/kfd, "
    "then `modprobe -r amdgpu` and `modprobe amdgpu`"
)


@dataclass
class Gpu:
    """One GPU of the process. `stopped`: why the kernel runs none of its queues any more; empty while it does."""

    node: Node
    render: int
    apertures: Apertures
    in_use: bool = False
    stopped: str = ""


class Process:
    """The context of one process, and the nodes that it holds open."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.gpus: dict[int, Gpu] = {}
        # of the driver: see `KfdDevice.addresses`
        self.addresses: dict[tuple[int, int], object] = {}
        # why the kernel runs no queue of any process any more; empty while it does
        self.stopped = ""
        self._node = -1
        self._page_handle = 0
        self._page_gpus: set[int] = set()

    def attach(self, node: Node, name: str) -> tuple[Calls, Gpu]:
        """Use a GPU: open its nodes and take its address space, if that was not done yet.

        Raises `PermissionNeeded` with the group to join, `NotSupported` for a kernel without what it takes, `CardBusy`
        if this process has the card open, `DeviceHung` if the kernel stopped this process's queues.
        """
        calls = Calls(self.kernel, self._open_node(name), name)
        _ = calls.version
        gpu = self.gpus.get(node.gpu_id)
        if gpu is None:
            gpu = self.gpus[node.gpu_id] = self._take(calls, node, name)
        if gpu.in_use:
            raise CardBusy(f"opening {name}: this process (pid {os.getpid()}) has it open; close it there first")
        if self.stopped:
            raise DeviceHung(f"opening {name}: {self.stopped}")
        if gpu.stopped:
            raise DeviceHung(f"opening {name}: {gpu.stopped}; start a new process")
        gpu.in_use = True
        return calls, gpu

    @property
    def suspended(self) -> bool:
        """Whether amdkfd has taken all queues of all processes off, as before a sleep: it refuses /dev/kfd then."""
        try:
            os.close(os.open(self.kernel.path(NODE), os.O_RDWR | os.O_CLOEXEC))
        except OSError as error:
            return error.errno == errno.EINVAL
        return False

    def signal_event(self, calls: Calls, gpu: Gpu) -> int:
        """Create a signal event whose slot the GPU reaches."""
        gpu_id = gpu.node.gpu_id
        if self._page_handle:
            if gpu_id not in self._page_gpus:
                calls.map(self._page_handle, [gpu_id], "the page of event slots")
                self._page_gpus.add(gpu_id)
            return calls.create_event(Event.SIGNAL)
        handle, _offset = calls.alloc(
            gpu_id, EVENT_PAGE_VA, EVENT_PAGE_BYTES, EVENT_PAGE_FLAGS, doing="the page of event slots"
        )
        with undone_on_error(lambda: calls.free(handle)):
            calls.map(handle, [gpu_id], "the page of event slots")
            with undone_on_error(lambda: calls.unmap(handle, [gpu_id])):
                event = calls.create_event(Event.SIGNAL, page_handle=handle)
        # ORDER: from here on the kernel refuses to free it
        self._page_handle, self._page_gpus = handle, {gpu_id}
        return event

    def close(self) -> None:
        """Close the nodes. The kernel's context stays until the process ends, so nothing can be attached again."""
        for gpu in self.gpus.values():
            os.close(gpu.render)
        self.gpus.clear()
        if self._node >= 0:
            os.close(self._node)
            self._node = -1

    def _open_node(self, name: str) -> int:
        if self._node < 0:
            self._node = open_node(self.kernel, self.kernel.path(NODE), f"opening {name}")
        return self._node

    def _take(self, calls: Calls, node: Node, name: str) -> Gpu:
        gpu_id, doing = node.gpu_id, f"opening {name}"
        if not gpu_id:
            raise NoSuchCard(f"{doing}: the kernel does not tell the GPU's number: a device cgroup may forbid the card")
        # ORDER: the kernel lists a GPU's apertures for a process that may use it, before it has its address space
        apertures = calls.apertures().get(gpu_id)
        if apertures is None:
            raise NoSuchCard(
                f"{doing}: amdkfd does not list GPU {gpu_id} for this process: it was unplugged or unbound"
            )
        if not apertures.gpuvm_base <= EVENT_PAGE_VA < apertures.gpuvm_limit:
            raise NotSupported(
                f"{doing}: the kernel lets user queues use addresses {apertures.gpuvm_base:#x} to {apertures.gpuvm_limit:#x} only, "
                "as on old cards"
            )
        if not node.render_minor:
            raise NotSupported(f"{doing}: amdkfd names no render node of the card: the kernel is older than 4.18")
        render = open_node(self.kernel, node.render_path, doing)
        with undone_on_error(lambda: os.close(render)):
            calls.acquire_vm(gpu_id, render)
        return Gpu(node, render, apertures)


@lru_cache(maxsize=1)
def _of_process(_pid: int) -> Process:
    """Return the process's own context. A child after a fork has another number and begins anew."""
    return Process(Kernel())


def own() -> Process:
    """Return the context of this process."""
    return _of_process(os.getpid())


def open_node(kernel: Kernel, path: Path, doing: str) -> int:
    """Open a node of amdgpu. The errors say what is missing: the driver, the group."""
    if refusal := missing(kernel, path):
        raise NotSupported(f"{doing}: {refusal}")
    return kernel.open(path, doing, remedy=lambda code: _advice(kernel, path, code))


def missing(kernel: Kernel, path: Path) -> str:
    """Say what to do about a node that is not there; empty for one that is."""
    if path.exists():
        return ""
    return f"{kernel.shown(path)} is not there: load the kernel's amdgpu (`modprobe amdgpu`), built with HSA_AMD, for the card"


def permission(kernel: Kernel, path: Path) -> str:
    """Say what to do about a node that this user may not use; empty for one that may be used."""
    if os.access(path, os.R_OK | os.W_OK):
        return ""
    return f"no permission for {kernel.shown(path)}: {_join(kernel, path)}"


def _advice(kernel: Kernel, path: Path, code: int | None) -> str:
    if code in (errno.EACCES, errno.EPERM):
        return _join(kernel, path)
    if code == errno.EINVAL and path == kernel.path(NODE):
        return f"the computer is about to sleep, or a card was taken from amdgpu while a process used it: {SUSPENDED}"
    return "see `dmesg`"


def _join(kernel: Kernel, path: Path) -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = ""
    return advice.join_group(kernel, path, user, os.getgroups())
