"""Runs in a guest: a small client of NVIDIA's open kernel modules, over /dev/nvidiactl, /dev/nvidia0 and
/dev/nvidia-uvm.

    rm_client.py card    what the card is, as JSON
    rm_client.py uvm     hand the card to nvidia-uvm, which makes channels of its own and waits for each

It is the judge's own, written from the headers of the modules 535.261.03 (nv-ioctl.h, nvos.h, uvm_linux_ioctl.h), which
autogen/nv holds as facts. Requests that a module refuses raise `Refused`.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import re
import stat
import sys
from pathlib import Path
from typing import Any, TypeVar

from ringup.autogen.nv import rm, rm_alloc, uvm
from ringup.autogen.nv import rm_ctrl_2080_bus as bus
from ringup.autogen.nv import rm_ctrl_2080_fb as fb
from ringup.autogen.nv import rm_ctrl_2080_gpu as gpu
from ringup.autogen.nv import rm_ctrl_2080_gr as gr
from ringup.autogen.nv.status import NV_OK
from ringup.autogen.structs import Struct, memory

RELEASE = "535.261.03"
MAJOR, CONTROL_MINOR = 195, 255
CLIENT, DEVICE, SUBDEVICE = 0x41, 0x80, 0x2080
Parameters = TypeVar("Parameters", bound=Struct)
UvmRequest = uvm.UVM_INITIALIZE_PARAMS | uvm.UVM_REGISTER_GPU_PARAMS


class Refused(Exception):
    """A request that came back with a status other than NV_OK."""

    def __init__(self, what: str, status: int) -> None:
        super().__init__(f"{what}: status {status:#x}")
        self.status = status


def node(name: str, major: int, minor: int) -> str:
    """Make a device's node if it is missing, and return its path."""
    path = f"/dev/{name}"
    if not os.path.exists(path):
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(major, minor))
    return path


def address(data: bytearray) -> int:
    """Return where bytes lie."""
    return ctypes.addressof(ctypes.c_char.from_buffer(data))


def ask(descriptor: int, number: int, request: bytearray) -> None:
    """Do one request of the modules' nodes; `request` has the answer afterwards."""
    fcntl.ioctl(descriptor, 3 << 30 | len(request) << 16 | rm.NV_IOCTL_MAGIC << 8 | number, request)


class Rm:
    """A client of the first card, with a device and a subdevice. The card is initialised as long as this is open."""

    def __init__(self) -> None:
        self.control_node = os.open(node("nvidiactl", MAJOR, CONTROL_MINOR), os.O_RDWR)
        # opening this node initialises the adapter
        self.card_node = os.open(node("nvidia0", MAJOR, 0), os.O_RDWR)
        self.root = self._root()
        self._next = 0xCAFE0000
        self.device = self.alloc(self.root, DEVICE, rm_alloc.NV0080_ALLOC_PARAMETERS.at(RELEASE)())
        self.subdevice = self.alloc(self.device, SUBDEVICE, rm_alloc.NV2080_ALLOC_PARAMETERS.at(RELEASE)())

    def close(self) -> None:
        """Leave the card; everything that was allocated goes with the client."""
        os.close(self.card_node)
        os.close(self.control_node)

    def _root(self) -> int:
        request = rm.NVOS21_PARAMETERS.at(RELEASE)(hClass=CLIENT)
        data = bytearray(memory(request))
        ask(self.control_node, rm.NV_ESC_RM_ALLOC, data)
        answer = rm.NVOS21_PARAMETERS.at(RELEASE).view(data)
        if answer.status != NV_OK:
            raise Refused("a client", answer.status)
        return int(answer.hObjectNew)

    def alloc(self, parent: int, number: int, params: Struct | None = None) -> int:
        """Make an object of a class; return its handle. `params` has what the driver filled in."""
        self._next += 1
        body = bytearray(memory(params)) if params is not None else bytearray(1)
        layout = rm.NVOS21_PARAMETERS.at(RELEASE)
        request = bytearray(
            memory(
                layout(
                    hRoot=self.root,
                    hObjectParent=parent,
                    hObjectNew=self._next,
                    hClass=number,
                    pAllocParms=address(body) if params is not None else 0,
                    paramsSize=len(body) if params is not None else 0,
                )
            )
        )
        ask(self.control_node, rm.NV_ESC_RM_ALLOC, request)
        if status := layout.view(request).status:
            raise Refused(f"an object of class {number:#x}", status)
        if params is not None:
            memory(params)[:] = body
        return self._next

    def free(self, handle: int) -> None:
        """Free an object with all below it."""
        layout = rm.NVOS00_PARAMETERS.at(RELEASE)
        request = bytearray(memory(layout(hRoot=self.root, hObjectOld=handle)))
        ask(self.control_node, rm.NV_ESC_RM_FREE, request)
        if status := layout.view(request).status:
            raise Refused(f"freeing {handle:#x}", status)

    def control(self, handle: int, command: int, params: Parameters) -> Parameters:
        """Carry a control out, and return its parameters, with the answer in them."""
        body = bytearray(memory(params))
        memory(params)[:] = self.control_bytes(handle, command, body)
        return params

    def control_bytes(self, handle: int, command: int, body: bytearray) -> bytearray:
        """Carry a control out whose parameters are bytes."""
        layout = rm.NVOS54_PARAMETERS.at(RELEASE)
        request = bytearray(
            memory(layout(hClient=self.root, hObject=handle, cmd=command, params=address(body), paramsSize=len(body)))
        )
        ask(self.control_node, rm.NV_ESC_RM_CONTROL, request)
        if status := layout.view(request).status:
            raise Refused(f"control {command:#010x}", status)
        return body


def uvm_major() -> int:
    """Return the number under which the kernel knows nvidia-uvm."""
    found = re.search(r"^ *(\d+) nvidia-uvm$", Path("/proc/devices").read_text(), re.MULTILINE)
    if found is None:
        raise Refused("nvidia-uvm is not in /proc/devices", 0)
    return int(found[1])


class Uvm:
    """An address space of nvidia-uvm."""

    def __init__(self) -> None:
        self.node = os.open(node("nvidia-uvm", uvm_major(), 0), os.O_RDWR)
        self.ask(uvm.UVM_INITIALIZE, uvm.UVM_INITIALIZE_PARAMS.at(RELEASE)())

    def ask(self, number: int, params: UvmRequest) -> None:
        """Do one request: a bare number. `rmStatus` is part of each."""
        body = bytearray(memory(params))
        fcntl.ioctl(self.node, number, body)
        memory(params)[:] = body
        if params.rmStatus:
            raise Refused(f"UVM request {number}", params.rmStatus)


def facts(client: Rm, layout: Any, command: int, members: tuple[str, str], *wanted: int) -> list[int]:
    """Ask for a list of facts by index."""
    params = layout.at(RELEASE)()
    setattr(params, members[0], len(wanted))
    for place, index in enumerate(wanted):
        getattr(params, members[1])[place].index = index
    client.control(client.subdevice, command, params)
    return [getattr(params, members[1])[place].data for place in range(len(wanted))]


def identity(client: Rm, form: int) -> bytes:
    """Return the card's identity, as text or as 16 bytes."""
    params = gpu.NV2080_CTRL_GPU_GET_GID_INFO_PARAMS.at(RELEASE)(flags=form)
    client.control(client.subdevice, gpu.NV2080_CTRL_CMD_GPU_GET_GID_INFO, params)
    return bytes(params.data[0 : params.length])


def card(client: Rm) -> dict[str, Any]:
    """Return what the card is."""
    name = gpu.NV2080_CTRL_GPU_GET_NAME_STRING_PARAMS.at(RELEASE)()
    client.control(client.subdevice, gpu.NV2080_CTRL_CMD_GPU_GET_NAME_STRING, name)
    ids = bus.NV2080_CTRL_BUS_GET_PCI_INFO_PARAMS.at(RELEASE)()
    client.control(client.subdevice, bus.NV2080_CTRL_CMD_BUS_GET_PCI_INFO, ids)
    version, gpcs, tpcs, per_tpc = facts(
        client,
        gr.NV2080_CTRL_GR_GET_INFO_V2_PARAMS,
        gr.NV2080_CTRL_CMD_GR_GET_INFO_V2,
        ("grInfoListSize", "grInfoList"),
        gr.NV2080_CTRL_GR_INFO_INDEX_SM_VERSION,
        gr.NV2080_CTRL_GR_INFO_INDEX_SHADER_PIPE_COUNT,
        gr.NV2080_CTRL_GR_INFO_INDEX_SHADER_PIPE_SUB_COUNT,
        gr.NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_SM_PER_TPC,
    )
    (usable,) = facts(
        client,
        fb.NV2080_CTRL_FB_GET_INFO_V2_PARAMS,
        fb.NV2080_CTRL_CMD_FB_GET_INFO_V2,
        ("fbInfoListSize", "fbInfoList"),
        fb.NV2080_CTRL_FB_INFO_INDEX_USABLE_RAM_SIZE,
    )
    return {
        "name": bytes(memory(name))[4:].split(b"\0")[0].decode(),
        "uuid": identity(client, gpu.NV2080_GPU_CMD_GPU_GET_GID_FLAGS_FORMAT_ASCII).rstrip(b"\0").decode(),
        "pci": [ids.pciDeviceId, ids.pciSubSystemId],
        "sm_version": version,
        "gpcs": gpcs,
        "sm_count": tpcs * per_tpc,
        "usable_kib": usable,
    }


def register(client: Rm, space: Uvm) -> None:
    """Hand the card to nvidia-uvm. It makes channels on the copy engines, and waits until each has done something."""
    params = uvm.UVM_REGISTER_GPU_PARAMS.at(RELEASE)(rmCtrlFd=client.control_node, hClient=client.root)
    memory(params)[:16] = identity(client, gpu.NV2080_GPU_CMD_GPU_GET_GID_FLAGS_FORMAT_BINARY)
    space.ask(uvm.UVM_REGISTER_GPU, params)


def main(words: list[str]) -> int:
    """Do what the first word says, and print its result as JSON."""
    client = Rm()
    if words == ["card"]:
        result: Any = card(client)
    elif words == ["uvm"]:
        register(client, Uvm())
        result = "registered"
    else:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    sys.stdout.write(json.dumps(result) + "\n")
    client.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
