"""GSP-RM as whoever makes objects sees it: allocate, control, free, in the bytes of the C structs.

Source: OGKM rpc.c, rpcRmApiAlloc_GSP, rpcRmApiControl_GSP, rpcRmApiFree_GSP.
"""

from __future__ import annotations

import struct as packing

from ringup.autogen.nv import gsp_rpc
from ringup.drivers.nv.gsp import releases
from ringup.drivers.nv.gsp.releases import struct
from ringup.drivers.nv.gsp.rpc import CALL_US, MAX_CALL_BYTES, Message, Rpc, name_of
from ringup.drivers.transport.nvidia.status import refusal
from ringup.errors import DeviceHung

SUCCESS = gsp_rpc.NV_VGPU_MSG_RESULT_SUCCESS
ALLOC = gsp_rpc.NV_VGPU_MSG_FUNCTION_GSP_RM_ALLOC
CONTROL = gsp_rpc.NV_VGPU_MSG_FUNCTION_GSP_RM_CONTROL
FREE = gsp_rpc.NV_VGPU_MSG_FUNCTION_FREE


class Door:
    """Calls of one running GSP-RM. All raise `RmRefused` for a status other than success, and `DeviceTimeout`,
    `DeviceHung` or `DeviceLost` for a GSP-RM that does not answer.
    """

    def __init__(self, rpc: Rpc, release: str) -> None:
        self.rpc, self._release = rpc, release
        self._alloc = struct(gsp_rpc.rpc_gsp_rm_alloc_v03_00, release)
        self._control = struct(gsp_rpc.rpc_gsp_rm_control_v03_00, release)

    @property
    def release(self) -> str:
        """The release of GSP-RM, which decides the structs' layouts."""
        return self._release

    @property
    def layouts(self) -> str:
        """The release whose structs it takes: a near one, with the same objects and controls."""
        return releases.NEAR[self._release]

    def alloc(
        self, client: int, parent: int, handle: int, class_id: int, params: bytes = b"", doing: str = ""
    ) -> bytes:
        """Make an object of a class below `parent`; return the parameters as GSP-RM has left them."""
        head = packing.pack("<7I4x", client, parent, handle, class_id, 0, len(params), 0)
        doing = doing or f"allocating class {class_id:#06x} as {handle:#x}"
        return self._ask(ALLOC, head, params, doing, self._alloc.offset_of("status"))

    def control(self, client: int, handle: int, command: int, params: bytes = b"", doing: str = "") -> bytes:
        """Send a control to an object; return the parameters as GSP-RM has left them."""
        head = packing.pack("<6I", client, handle, command, 0, len(params), 0).ljust(self._control.SIZE, b"\0")
        doing = doing or f"control {command:#010x} of object {handle:#x}"
        return self._ask(CONTROL, head, params, doing, self._control.offset_of("status"))

    def free(self, client: int, parent: int, handle: int) -> None:
        """Free an object and all below it."""
        payload = packing.pack("<4I", client, parent, handle, 0)
        doing = f"freeing {handle:#x}"
        answer = self.rpc.call(FREE, payload)
        self._check(answer, doing, gsp_rpc.NVOS00_PARAMETERS_v03_00.offset_of("status"))

    def call(self, function: int, payload: bytes, *, timeout_us: int = CALL_US) -> bytes:
        """Call another function of GSP-RM; return its answer's bytes."""
        answer = self.rpc.call(function, payload, timeout_us=timeout_us)
        if answer.result != SUCCESS:
            raise refusal(answer.result, f"calling {name_of(function)}")
        return answer.payload

    def _ask(self, function: int, head: bytes, params: bytes, doing: str, status_at: int) -> bytes:
        if len(params) > MAX_CALL_BYTES:
            raise ValueError(f"{doing}: {len(params)} bytes of parameters; {MAX_CALL_BYTES} are the most")
        answer = self.rpc.call(function, head + params)
        self._check(answer, doing, status_at)
        got = answer.payload[len(head) : len(head) + len(params)]
        if len(got) < len(params):
            raise DeviceHung(f"{doing}: GSP-RM answered with {len(got)} bytes of {len(params)}; reset the card")
        return got

    @staticmethod
    def _check(answer: Message, doing: str, status_at: int) -> None:
        if len(answer.payload) >= status_at + 4 and (status := packing.unpack_from("<I", answer.payload, status_at)[0]):
            raise refusal(status, doing)
        if answer.result != SUCCESS:
            raise refusal(answer.result, doing)
        if len(answer.payload) < status_at + 4:
            raise DeviceHung(f"{doing}: GSP-RM answered with {len(answer.payload)} bytes, without a status")
