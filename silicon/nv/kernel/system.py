"""A machine with one card and NVIDIA's kernel driver: the system calls on its device nodes, in this process.

The same calls on real nodes are os.open, fcntl.ioctl, mmap and poll, so one client can use either. Requests point into
this process's memory, as they do for a kernel.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from select import POLLIN, POLLPRI
from typing import Any

from ringup.autogen.linux import pci as regs
from ringup.autogen.nv import classes as nv
from ringup.autogen.nv import rm, rm_alloc, uvm
from ringup.autogen.structs import memory as struct_bytes
from ringup.errors import NotSupported
from ringup.silicon.nv.card import VirtualNvidia
from ringup.silicon.nv.gsp_side import GspEvents, GspMemory
from ringup.silicon.nv.kernel import controls, escapes, process, subdevices
from ringup.silicon.nv.kernel import uvm as uvm_driver
from ringup.silicon.nv.kernel.events import OsEvents
from ringup.silicon.nv.kernel.facts import Machine
from ringup.silicon.nv.kernel.files import CpuMapping, File, Node, Region, failure
from ringup.silicon.nv.kernel.half import KernelHalf
from ringup.silicon.nv.kernel.heap import Heap
from ringup.silicon.nv.kernel.rows import DOORBELLS
from ringup.silicon.nv.rm import memory_map, recovery
from ringup.silicon.nv.rm.boards import rows as boards
from ringup.silicon.nv.rm.controls.table import Controls
from ringup.silicon.nv.rm.manager import Manager
from ringup.silicon.nv.rm.parts import Channel

# one of each branch whose layouts are all known; what the driver does is what 535.261.03 does
RELEASES = (
    "535.261.03",
    "545.29.06",
    "550.163.01",
    "555.58.02",
    "560.35.03",
    "565.77",
    "570.195.03",
    "575.64.05",
)
# GUESS: what the loader leaves for the firmware at the end of the card's memory
FIRMWARE_BYTES = 128 << 20
# handles of UVM's own client: resserv.h has a range for those of the kernel
UVM_CLIENT, UVM_DEVICE = 0xC1E00000, 0x80
# struct nv_ioctl_xfer_t may carry larger requests: NV_ABSOLUTE_MAX_IOCTL_SIZE
LARGEST_REQUEST = 16384
SIZE_SHIFT, SIZE_MASK, NUMBER_MASK = 16, 0x3FFF, 0xFF


class VirtualKernel:
    """The driver of one release, on one card, for one process.

    Time is the card's own: it passes in `poll` and `sleep_us`, and nowhere else.
    """

    def __init__(self, card: VirtualNvidia, release: str = RELEASES[0]) -> None:
        """Take the card. Raises `NotSupported` for a release or a chip that is not modelled, `CardBusy` for a card that
        is held.
        """
        if release not in RELEASES:
            raise NotSupported(f"the virtual kernel's driver is one of {', '.join(RELEASES)}, not {release}")
        if card.chip.name not in DOORBELLS:
            raise NotSupported(f"the virtual kernel's driver knows {', '.join(DOORBELLS)}, not {card.chip.name}")
        card.hold()
        self.card, self.release = card, release
        self.machine = _machine(card, release)
        command = card.config.read(regs.PCI_COMMAND, 2)
        card.config.write(regs.PCI_COMMAND, command | regs.PCI_COMMAND_MASTER, 2)
        self.files: dict[int, File] = {}
        # whose each client is, and what MAP_MEMORY has allowed
        self.owners: dict[int, File] = {}
        self.mappings: list[CpuMapping] = []
        self.window = Heap(0, card.chip.bar1_bytes)
        self.memory_block = 0
        self._next_client, self._next_descriptor = escapes.FIRST_CLIENT, 3
        self.events = OsEvents(card.log)
        layout = memory_map.divide(card.chip.vram_bytes - FIRMWARE_BYTES, card.chip.vram_bytes)
        self.half = KernelHalf(card, card.windows.gmmu, layout.usable, self._has_event)
        effects = GspEvents(card.gsp, card.windows, card.engines, card.power, card.log)
        self.manager = Manager(
            boards.find(card.chip.name), card.chip, GspMemory(card.vram, card.host), effects, self.events, card.log,
            release, release, layout, self.half,
        )  # fmt: skip
        self.half.join(self.manager)
        self.manager.faults = card.faults
        self.manager.windows = self.machine.windows
        rows = subdevices.rows(self.machine, self.half, card.engines.now_ns)
        self.controls = Controls(controls.every(self.machine, rows))
        card.engines.fail = self._fail
        card.engines.notified = self._not_stalled
        self.uvm = self._uvm()

    def _uvm(self) -> uvm_driver.Uvm:
        """Make UVM with a client of its own."""
        manager = self.manager
        manager.alloc(UVM_CLIENT, 0, 0, nv.NV01_ROOT_CLIENT, b"")
        params = bytes(struct_bytes(rm_alloc.NV0080_ALLOC_PARAMETERS.at(self.release)()))
        manager.alloc(UVM_CLIENT, UVM_CLIENT, UVM_DEVICE, nv.NV01_DEVICE_0, params)
        return uvm_driver.Uvm(self, UVM_CLIENT, UVM_DEVICE)

    def close(self, descriptor: int) -> None:
        """Close a node: what its clients have goes, unless another open file was registered with it."""
        file = self._file(descriptor)
        del self.files[descriptor]
        file.closed = True
        if file.space is not None and file.space.helper is not file:
            self.uvm.close(file.space)
        for key in [key for key, one in self.events.files.items() if one is file]:
            del self.events.files[key]
        for one in (file, file.control):
            if one is not None and one.closed and not any(other.control is one for other in self.files.values()):
                for client in [handle for handle, owner in self.owners.items() if owner is one]:
                    self.manager.free(client, client)
                    self.forget_client(client)

    def end(self) -> None:
        """Close everything, as the end of the process does, and let the card go."""
        for descriptor in sorted(self.files, reverse=True):
            self.close(descriptor)
        self.card.close()

    # --- system calls -----------------------------------------------------------------------------------------------
    def open(self, path: str | Path, flags: int = os.O_RDWR) -> int:
        """Open a node: /dev/nvidiactl, /dev/nvidia0 or /dev/nvidia-uvm. Raises `OSError`."""
        try:
            node = Node(Path(path).name)
        except ValueError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None
        descriptor, self._next_descriptor = self._next_descriptor, self._next_descriptor + 1
        self.files[descriptor] = File(node, descriptor)
        return descriptor

    def ioctl(self, descriptor: int, request: int, argument: bytearray | memoryview | int = 0) -> int:
        """Call a node with bytes, which are changed in place, or with their address. Raises `OSError`."""
        file = self._file(descriptor)
        if file.node is Node.UVM:
            return self._uvm_call(file, request, argument)
        number, size = request & NUMBER_MASK, request >> SIZE_SHIFT & SIZE_MASK
        place = _Argument(argument)
        if number == rm.NV_ESC_IOCTL_XFER_CMD:
            layout = rm.nv_ioctl_xfer_t.at(self.release)
            if size != layout.SIZE:
                raise failure(errno.EINVAL)
            longer = layout.view(place.load(size))
            number, size, place = longer.cmd, longer.size, _Argument(int(longer.ptr))
            if size > LARGEST_REQUEST:
                raise failure(errno.EINVAL)
        data = place.load(size)
        try:
            escapes.carry_out(self, file, number, data)
        finally:
            place.store(data)
        return 0

    def _uvm_call(self, file: File, request: int, argument: bytearray | memoryview | int) -> int:
        if request == uvm.UVM_DEINITIALIZE:
            return 0
        try:
            layout = uvm_driver.layout_of(request, self.release)
        except OSError:
            self.manager.unmodelled[f"UVM request {request:#x}"] += 1
            raise
        place = _Argument(argument)
        data = place.load(layout.SIZE)
        params: Any = layout.view(data)
        uvm_driver.carry_out(self.uvm, file, request, params)
        if params.rmStatus:
            self.card.log.note("kernel", "refused", "UVM request {}: status {:#x}", request, params.rmStatus)
        place.store(data)
        return 0

    def mmap(self, descriptor: int, size_bytes: int, offset: int = 0, *, writable: bool = True) -> Region:
        """Map what MAP_MEMORY allowed for a file, or a pool of UVM's semaphores, whose address is the offset.

        Raises `OSError`.
        """
        file = self._file(descriptor)
        if file.node is Node.UVM:
            if file.space is None:
                # uvm_mmap: nothing but an address space can be mapped
                raise failure(errno.EBADFD)
            return self.uvm.region(file.space, offset, size_bytes)
        allowed = file.allowed
        if allowed is None or allowed.ended or offset:
            raise failure(errno.EINVAL)
        if not size_bytes or (allowed.exact and size_bytes != allowed.size_bytes):
            raise failure(errno.ENXIO)
        if size_bytes > allowed.size_bytes:
            raise failure(errno.ERANGE)
        if writable and not allowed.writable:
            raise failure(errno.EACCES)
        made = allowed.make(size_bytes, writable)
        allowed.regions.append(made)
        return made

    def poll(self, descriptors: Iterable[int], timeout_ms: float) -> list[tuple[int, int]]:
        """Wait until a file has an event, or for a time; return the files with POLLIN | POLLPRI. An event without data
        is gone then.
        """
        files = [self._file(one) for one in descriptors]

        def ready() -> list[File]:
            return [one for one in files if one.events or one.signalled]

        self.card.clock.run_until(lambda: bool(ready()), timeout_ms * 1_000)
        found = ready()
        for one in found:
            one.signalled = False
        return [(one.descriptor, POLLIN | POLLPRI) for one in found]

    def sleep_us(self, time_us: float) -> None:
        """Let time pass."""
        self.card.clock.sleep_us(time_us)

    @property
    def texts(self) -> dict[str, str]:
        """What a process finds in /proc."""
        return {
            "/proc/driver/nvidia/version": f"NVRM version: NVIDIA UNIX Open Kernel Module  {self.release}  (ringup)\n",
            "/proc/devices": "Character devices:\n195 nvidia\n195 nvidiactl\n511 nvidia-uvm\n",
        }

    # --- clients and mappings ---------------------------------------------------------------------------------------
    def new_client(self, owner: File, handle: int) -> int:
        """Make a client; without a handle it gets one of the driver's."""
        while not handle:
            if self._next_client not in self.owners:
                handle = self._next_client
            self._next_client += 1
        self.manager.alloc(handle, 0, 0, nv.NV01_ROOT_CLIENT, b"")
        self.owners[handle] = owner
        return handle

    def forget_client(self, handle: int) -> None:
        """Forget a client that is gone, and the files of its events."""
        self.owners.pop(handle, None)
        for key in [key for key in self.events.files if key[0] == handle]:
            del self.events.files[key]
        for mapping in [one for one in self.mappings if one.client == handle]:
            mapping.revoke()
            self.forget_mapping(mapping)

    def forget_mapping(self, mapping: CpuMapping) -> None:
        """Forget a mapping that was unmapped."""
        self.mappings.remove(mapping)

    def _file(self, descriptor: int) -> File:
        found = self.files.get(descriptor)
        if found is None:
            raise failure(errno.EBADF)
        return found

    def _has_event(self, client: int, descriptor: int) -> bool:
        return (client, descriptor) in self.events.files

    # --- from the card ----------------------------------------------------------------------------------------------
    def _fail(self, channel: Channel, code: int, text: str) -> None:
        recovery.fail(self.manager, channel, code, text, self.card.engines.now_ns())
        self.events.failed(self.manager, channel, code)

    def _not_stalled(self, channel: Channel) -> None:
        self.events.not_stalled(self.manager, channel)


@dataclass(slots=True)
class _Argument:
    """The argument of a call: bytes, or an address."""

    place: bytearray | memoryview | int

    def load(self, size_bytes: int) -> bytearray:
        """Return a copy of its bytes. Raises `OSError` (EFAULT)."""
        if isinstance(self.place, int):
            return bytearray(process.load(self.place, size_bytes))
        if len(self.place) < size_bytes:
            raise failure(errno.EFAULT)
        return bytearray(self.place[:size_bytes])

    def store(self, data: bytearray) -> None:
        """Store bytes. Raises `OSError` (EFAULT)."""
        if isinstance(self.place, int):
            process.store(self.place, data)
        else:
            self.place[: len(data)] = data


def _machine(card: VirtualNvidia, release: str) -> Machine:
    """Return where the card is: its place on the bus, and its windows' addresses."""
    bus, slot = next(iter(card.places.values()))[:2] if card.places else (1, 0)

    def window(index: int) -> int:
        low = card.config.read(regs.PCI_BASE_ADDRESS_0 + 4 * index, 4)
        high = card.config.read(regs.PCI_BASE_ADDRESS_0 + 4 * index + 4, 4) if low & 4 else 0
        return (high << 32 | low) & ~0xF

    return Machine(release, 0, bus, slot, (window(0), window(1), window(3)))


def address_of(data: bytearray) -> int:
    """Return where bytes lie, for a pointer in a request."""
    return ctypes.addressof(ctypes.c_char.from_buffer(data))
