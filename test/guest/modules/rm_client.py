"""Runs in a guest: a small client of NVIDIA's open kernel modules, over /dev/nvidiactl, /dev/nvidia0 and
/dev/nvidia-uvm.

    rm_client.py card    what the card is, as JSON
    rm_client.py uvm     hand the card to nvidia-uvm, which makes channels of its own and waits for each

It is the judge's own, written from the headers of the modules 535.261.03 (nv-ioctl.h, nvos.h, uvm_linux_ioctl.h), which
autogen/nv holds as facts, with what later releases changed: the layouts of the release that is loaded are used.
Requests that a module refuses raise `Refused`. `System` has all calls of the operating system; another object of its
shape takes its place where there is no kernel.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import re
import select
import stat
import sys
import time
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ringup.autogen.nv import rm, rm_alloc, uvm
from ringup.autogen.nv import rm_ctrl_2080_bus as bus
from ringup.autogen.nv import rm_ctrl_2080_fb as fb
from ringup.autogen.nv import rm_ctrl_2080_gpu as gpu
from ringup.autogen.nv import rm_ctrl_2080_gr as gr
from ringup.autogen.structs import Struct, memory

VERSION = Path("/proc/driver/nvidia/version")
MAJOR, CONTROL_MINOR = 195, 255
CLIENT, DEVICE, SUBDEVICE = 0x41, 0x80, 0x2080
Parameters = TypeVar("Parameters", bound=Struct)
UvmRequest = uvm.UVM_INITIALIZE_PARAMS | uvm.UVM_REGISTER_GPU_PARAMS


class Refused(Exception):
    """A request that came back with a status other than NV_OK."""

    def __init__(self, what: str, status: int) -> None:
        super().__init__(f"{what}: status {status:#x}")
        self.status = status


class Region(Protocol):
    """Memory or registers that a node shows."""

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Return bytes."""
        ...

    def write(self, offset: int, data: bytes) -> None:
        """Store bytes."""
        ...

    def read32(self, offset: int) -> int:
        """Read a word in one access."""
        ...

    def write32(self, offset: int, value: int) -> None:
        """Write a word in one access."""
        ...

    def close(self) -> None:
        """Give the view back."""
        ...


class Mapped:
    """A region of the system's."""

    def __init__(self, descriptor: int, size_bytes: int, offset: int) -> None:
        self._map = mmap.mmap(descriptor, size_bytes, offset=offset)

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Return bytes."""
        return self._map[offset : offset + size_bytes]

    def write(self, offset: int, data: bytes) -> None:
        """Store bytes."""
        self._map[offset : offset + len(data)] = data

    def read32(self, offset: int) -> int:
        """Read a word in one access."""
        return ctypes.c_uint32.from_buffer(self._map, offset).value

    def write32(self, offset: int, value: int) -> None:
        """Write a word in one access."""
        ctypes.c_uint32.from_buffer(self._map, offset).value = value

    def close(self) -> None:
        """Give the view back."""
        self._map.close()


class System:
    """Linux's calls."""

    def open(self, path: str, flags: int = os.O_RDWR) -> int:
        """Open a node."""
        return os.open(path, flags)

    def close(self, descriptor: int) -> None:
        """Close a node."""
        os.close(descriptor)

    def ioctl(self, descriptor: int, request: int, argument: bytearray) -> int:
        """Do a request; `argument` has the answer afterwards."""
        return fcntl.ioctl(descriptor, request, argument)

    def mmap(self, descriptor: int, size_bytes: int, offset: int = 0) -> Region:
        """Show what a node shows."""
        return Mapped(descriptor, size_bytes, offset)

    def poll(self, descriptors: list[int], timeout_ms: int) -> list[tuple[int, int]]:
        """Return the nodes that have an event."""
        waiting = select.poll()
        for descriptor in descriptors:
            waiting.register(descriptor, select.POLLIN | select.POLLPRI)
        return waiting.poll(timeout_ms)

    def sleep_us(self, us: float) -> None:
        """Let time pass."""
        time.sleep(us / 1e6)


def node(name: str, major: int, minor: int) -> str:
    """Make a device's node if it is missing, and return its path."""
    path = f"/dev/{name}"
    if not os.path.exists(path):
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(major, minor))
    return path


def address(data: bytearray) -> int:
    """Return where bytes lie."""
    return ctypes.addressof(ctypes.c_char.from_buffer(data))


def loaded() -> str:
    """Return the release of the modules that are loaded."""
    found = re.search(r"Kernel Module.* (\d+(\.\d+)+) ", VERSION.read_text())
    if found is None:
        raise Refused(f"{VERSION} names no release", 0)
    return found[1]


class Rm:
    """A client of the first card, with a device and a subdevice. The card is initialised as long as this is open."""

    def __init__(self, system: System | None = None, release: str = "") -> None:
        """`release`: of the modules, by default of those that are loaded."""
        self.system = system or System()
        self.release = release or loaded()
        self.control_node = self.open_control()
        # opening this node initialises the adapter
        self.card_node = self.open_card()
        self.root = self._root()
        self._next = 0xCAFE0000
        self.device = self.alloc(self.root, DEVICE, rm_alloc.NV0080_ALLOC_PARAMETERS.at(self.release)())
        self.subdevice = self.alloc(self.device, SUBDEVICE, rm_alloc.NV2080_ALLOC_PARAMETERS.at(self.release)())

    def open_control(self) -> int:
        """Open the node of the modules."""
        return self.system.open(node("nvidiactl", MAJOR, CONTROL_MINOR))

    def open_card(self) -> int:
        """Open the card's node."""
        return self.system.open(node("nvidia0", MAJOR, 0))

    def close(self) -> None:
        """Leave the card; everything that was allocated goes with the client."""
        self.system.close(self.card_node)
        self.system.close(self.control_node)

    def ask(self, number: int, request: bytearray) -> None:
        """Do one request of the modules' node; `request` has the answer afterwards."""
        self.system.ioctl(self.control_node, 3 << 30 | len(request) << 16 | rm.NV_IOCTL_MAGIC << 8 | number, request)

    def request(self, number: int, what: str, params: Parameters) -> Parameters:
        """Do one request of which `status` is part, and return its parameters, with the answer in them."""
        data = bytearray(memory(params))
        self.ask(number, data)
        memory(params)[:] = data
        if params.status:
            raise Refused(what, params.status)
        return params

    def _root(self) -> int:
        params = rm.NVOS21_PARAMETERS.at(self.release)(hClass=CLIENT)
        return int(self.request(rm.NV_ESC_RM_ALLOC, "a client", params).hObjectNew)

    def alloc(self, parent: int, number: int, params: Struct | None = None) -> int:
        """Make an object of a class; return its handle. `params` has what the driver filled in."""
        self._next += 1
        body = bytearray(memory(params)) if params is not None else bytearray(1)
        request = rm.NVOS21_PARAMETERS.at(self.release)(
            hRoot=self.root,
            hObjectParent=parent,
            hObjectNew=self._next,
            hClass=number,
            pAllocParms=address(body) if params is not None else 0,
            paramsSize=len(body) if params is not None else 0,
        )
        self.request(rm.NV_ESC_RM_ALLOC, f"an object of class {number:#x}", request)
        if params is not None:
            memory(params)[:] = body
        return self._next

    def free(self, handle: int) -> None:
        """Free an object with all below it."""
        request = rm.NVOS00_PARAMETERS.at(self.release)(hRoot=self.root, hObjectOld=handle)
        self.request(rm.NV_ESC_RM_FREE, f"freeing {handle:#x}", request)

    def control(self, handle: int, command: int, params: Parameters) -> Parameters:
        """Carry a control out, and return its parameters, with the answer in them."""
        body = bytearray(memory(params))
        memory(params)[:] = self.control_bytes(handle, command, body)
        return params

    def control_bytes(self, handle: int, command: int, body: bytearray) -> bytearray:
        """Carry a control out whose parameters are bytes."""
        request = rm.NVOS54_PARAMETERS.at(self.release)(
            hClient=self.root, hObject=handle, cmd=command, params=address(body), paramsSize=len(body)
        )
        self.request(rm.NV_ESC_RM_CONTROL, f"control {command:#010x}", request)
        return body


def uvm_major() -> int:
    """Return the number under which the kernel knows nvidia-uvm."""
    found = re.search(r"^ *(\d+) nvidia-uvm$", Path("/proc/devices").read_text(), re.MULTILINE)
    if found is None:
        raise Refused("nvidia-uvm is not in /proc/devices", 0)
    return int(found[1])


class Uvm:
    """An address space of nvidia-uvm."""

    def __init__(self, system: System, release: str) -> None:
        self.system = system
        self.node = system.open(node("nvidia-uvm", uvm_major(), 0))
        self.ask(uvm.UVM_INITIALIZE, uvm.UVM_INITIALIZE_PARAMS.at(release)())

    def ask(self, number: int, params: UvmRequest) -> None:
        """Do one request: a bare number. `rmStatus` is part of each."""
        body = bytearray(memory(params))
        self.system.ioctl(self.node, number, body)
        memory(params)[:] = body
        if params.rmStatus:
            raise Refused(f"UVM request {number}", params.rmStatus)


def facts(client: Rm, layout: Any, command: int, members: tuple[str, str], *wanted: int) -> list[int]:
    """Ask for a list of facts by index."""
    params = layout.at(client.release)()
    setattr(params, members[0], len(wanted))
    for place, index in enumerate(wanted):
        getattr(params, members[1])[place].index = index
    client.control(client.subdevice, command, params)
    return [getattr(params, members[1])[place].data for place in range(len(wanted))]


def identity(client: Rm, form: int) -> bytes:
    """Return the card's identity, as text or as 16 bytes."""
    params = gpu.NV2080_CTRL_GPU_GET_GID_INFO_PARAMS.at(client.release)(flags=form)
    client.control(client.subdevice, gpu.NV2080_CTRL_CMD_GPU_GET_GID_INFO, params)
    return bytes(params.data[0 : params.length])


def card(client: Rm) -> dict[str, Any]:
    """Return what the card is."""
    name = gpu.NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS.at(client.release)()
    client.control(client.subdevice, gpu.NV2080_CTRL_CMD_GPU_GET_NAME_STRING, name)
    ids = bus.NV2080_CTRL_BUS_GET_PCI_INFO_PARAMS.at(client.release)()
    client.control(client.subdevice, bus.NV2080_CTRL_CMD_BUS_GET_PCI_INFO, ids)
    version, gpcs, tpcs, per_tpc, warps, threads, banks, registers, cores, tensor_cores = facts(
        client,
        gr.NV2080_CTRL_GR_GET_INFO_V2_PARAMS,
        gr.NV2080_CTRL_CMD_GR_GET_INFO_V2,
        ("grInfoListSize", "grInfoList"),
        gr.NV2080_CTRL_GR_INFO_INDEX_SM_VERSION,
        gr.NV2080_CTRL_GR_INFO_INDEX_SHADER_PIPE_COUNT,
        gr.NV2080_CTRL_GR_INFO_INDEX_SHADER_PIPE_SUB_COUNT,
        gr.NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_SM_PER_TPC,
        gr.NV2080_CTRL_GR_INFO_INDEX_MAX_WARPS_PER_SM,
        gr.NV2080_CTRL_GR_INFO_INDEX_MAX_THREADS_PER_WARP,
        gr.NV2080_CTRL_GR_INFO_INDEX_SM_REG_BANK_COUNT,
        gr.NV2080_CTRL_GR_INFO_INDEX_SM_REG_BANK_REG_COUNT,
        gr.NV2080_CTRL_GR_INFO_INDEX_GPU_CORE_COUNT,
        gr.NV2080_CTRL_GR_INFO_INDEX_TENSOR_CORE_COUNT,
    )
    usable, bus_bits, l2_bytes, ram_type = facts(
        client,
        fb.NV2080_CTRL_FB_GET_INFO_V2_PARAMS,
        fb.NV2080_CTRL_CMD_FB_GET_INFO_V2,
        ("fbInfoListSize", "fbInfoList"),
        fb.NV2080_CTRL_FB_INFO_INDEX_USABLE_RAM_SIZE,
        fb.NV2080_CTRL_FB_INFO_INDEX_BUS_WIDTH,
        fb.NV2080_CTRL_FB_INFO_INDEX_L2CACHE_SIZE,
        fb.NV2080_CTRL_FB_INFO_INDEX_RAM_TYPE,
    )
    return {
        "name": bytes(memory(name))[4:].split(b"\0")[0].decode(),
        "uuid": identity(client, gpu.NV2080_GPU_CMD_GPU_GET_GID_FLAGS_FORMAT_ASCII).rstrip(b"\0").decode(),
        "pci": [ids.pciDeviceId, ids.pciSubSystemId],
        "sm_version": version,
        "gpcs": gpcs,
        "sm_count": tpcs * per_tpc,
        "usable_kib": usable,
        "warps_per_sm": warps,
        "threads_per_warp": threads,
        "registers_per_sm": banks * registers,
        "cores": cores,
        "tensor_cores": tensor_cores,
        "bus_bits": bus_bits,
        "l2_bytes": l2_bytes,
        "ram_type": ram_type,
    }


def register(client: Rm, space: Uvm) -> None:
    """Hand the card to nvidia-uvm. It makes channels on the copy engines, and waits until each has done something."""
    params = uvm.UVM_REGISTER_GPU_PARAMS.at(client.release)(rmCtrlFd=client.control_node, hClient=client.root)
    memory(params)[:16] = identity(client, gpu.NV2080_GPU_CMD_GPU_GET_GID_FLAGS_FORMAT_BINARY)
    space.ask(uvm.UVM_REGISTER_GPU, params)


def main(words: list[str]) -> int:
    """Do what the first word says, and print its result as JSON."""
    client = Rm()
    if words == ["card"]:
        result: Any = card(client)
    elif words == ["uvm"]:
        register(client, Uvm(client.system, client.release))
        result = "registered"
    else:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    sys.stdout.write(json.dumps(result) + "\n")
    client.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
