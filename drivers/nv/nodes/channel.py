"""A channel of a card that NVIDIA's kernel driver drives: made in a group of its own, scheduled, and taken off again.

The driver's firmware runs the channels of all processes in turn. A channel that makes a mistake is stopped for good,
with all others of its group; an error notifier says why. Source: NVIDIA open-gpu-kernel-modules: alloc_channel.h,
ctrla06c.h, ctrlc36f.h, ctrl906f.h, cl906f.h (notifiers), nverror.h; kernel_channel.c.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial

from ringup.autogen.nv import classes as nv
from ringup.autogen.nv import rm_alloc, status
from ringup.autogen.nv import rm_channel as notifiers
from ringup.autogen.nv import rm_ctrl_2080_gr as gr
from ringup.autogen.nv import rm_ctrl_channel as controls
from ringup.autogen.structs import Struct
from ringup.drivers.buffer import Buffer
from ringup.drivers.cleanup import undone_on_error
from ringup.drivers.memory.access import Access
from ringup.drivers.nv.nodes.memory import NodesMemory
from ringup.drivers.nv.nodes.objects import DATALESS, NOTIFY_CHANNEL_PENDING, CardObjects
from ringup.drivers.nv.rm.facts import ENGINE_GRAPHICS
from ringup.drivers.nv.rm.xids import xid_name
from ringup.drivers.nv.submission.user_area import UserArea
from ringup.drivers.submission.hardware_queue import COMPUTE, Position
from ringup.drivers.transport.nvidia.status import RmRefused
from ringup.errors import DeviceLost

LOG = logging.getLogger(__name__)
# NV_CHANNELGPFIFO_NOTIFICATION_TYPE_ERROR: the first of a channel's notifications
ERROR_AT = 0
# of a notification: its status, which the driver writes last. Source: nvgputypes.h, NvNotification
STATUS_AT = 14
# cl906f.h: what a channel's listeners are told of
NOTIFIER_RC = 0
# clb0b5sw.h, NVB0B5_ALLOCATION_PARAMETERS_VERSION_1: a copy engine is named by its NV2080_ENGINE_TYPE
BY_ENGINE_TYPE = 1
# what the driver answers for an object that it does not have. Source: OGKM rs_server.c, serverFreeResourceTree
GONE = (status.NV_ERR_OBJECT_NOT_FOUND, status.NV_ERR_INVALID_OBJECT_HANDLE)
# an error notifier that was not written
NOT_WRITTEN = 0


@dataclass(frozen=True, slots=True)
class ChannelMemory:
    """What a channel is made with. `entries` at `gpfifo_va`; the user area lies in `page` at `userd_at`, the error
    notifier in `notifier`.
    """

    gpfifo_va: int
    entries: int
    page: Buffer
    userd_at: int
    notifier: Buffer


@dataclass(frozen=True, slots=True)
class ChannelError:
    """Why the driver stopped a channel. `code`: an Xid of nverror.h."""

    code: int
    time_ns: int

    @property
    def name(self) -> str:
        """Its name in nverror.h."""
        return xid_name(self.code)

    def __str__(self) -> str:
        return f"Xid {self.code} ({self.name})"


@dataclass(frozen=True, slots=True)
class MmuFault:
    """An access of a channel that page tables did not allow: its address, and what was wrong."""

    gpu_va: int
    kind: str


class Channel:
    """`HardwareQueue` of the submission layer: one channel on one engine."""

    def __init__(
        self,
        objects: CardObjects,
        memory: NodesMemory,
        parts: ChannelMemory,
        engine_type: int,
        engine_number: int,
        class_id: int,
    ) -> None:
        """`class_id`: of the object that the channel's methods are for."""
        self._objects, self._memory, self._parts = objects, memory, parts
        self._engine_type, self._class = engine_type, class_id
        self.engine_number = engine_number
        self.engine_name = "the graphics engine" if engine_number == COMPUTE else f"copy engine {engine_number}"
        self._page = memory.access(parts.page)
        self._notifier = memory.access(parts.notifier)
        self._area = UserArea(self._page, parts.userd_at)
        self.put_cell = self._area.put
        self._status_cell = self._half(self._notifier, ERROR_AT + STATUS_AT)
        self.group = self.handle = 0
        # the number that rings the channel's doorbell
        self.token = 0

    def __str__(self) -> str:
        return f"channel {self.token & 0xFFFF if self.handle else 'that is off'} of {self.engine_name}"

    @staticmethod
    def _half(access: Access, at: int) -> memoryview:
        if access.view is None:
            raise ValueError("a channel's error notifier lies in memory that this process sees")
        return access.view[at : at + 2].cast("H")

    # --- the hardware queue -----------------------------------------------------------------------------------------
    def map(self) -> None:
        """Make the channel and let it run; its indices start at 0."""
        # one that could not be taken off would run on in the same memory
        self._drop()
        objects, client, parts = self._objects, self._objects.client, self._parts
        self._notifier.write(0, bytes(len(self._notifier)))
        self._area.clear()
        notifier = self._memory.handle(parts.notifier)
        params = client.make(
            rm_alloc.NV_CHANNEL_GROUP_ALLOCATION_PARAMETERS,
            hObjectError=notifier,
            hVASpace=objects.space,
            engineType=self._engine_type,
        )
        self.group = client.alloc(
            objects.device, nv.KEPLER_CHANNEL_GROUP_A, params, f"making a channel group on {self.engine_name}"
        )
        with undone_on_error(self._drop):
            channel = client.make(
                rm_alloc.NV_CHANNEL_ALLOC_PARAMS,
                hObjectError=notifier,
                gpFifoOffset=parts.gpfifo_va,
                gpFifoEntries=parts.entries,
                engineType=self._engine_type,
            )
            channel.hUserdMemory[0] = self._memory.handle(parts.page)
            channel.userdOffset[0] = parts.userd_at
            # channels of a group of the graphics engine run in contexts of their own
            if self._engine_type == ENGINE_GRAPHICS:
                share = client.make(
                    rm_alloc.NV_CTXSHARE_ALLOCATION_PARAMETERS,
                    hVASpace=objects.space,
                    flags=rm_alloc.NV_CTXSHARE_ALLOCATION_FLAGS_SUBCONTEXT_ASYNC,
                )
                channel.hContextShare = client.alloc(self.group, nv.FERMI_CONTEXT_SHARE_A, share)
            self.handle = client.alloc(
                self.group, objects.facts.row.channel_class, channel, f"making a channel on {self.engine_name}"
            )
            client.alloc(self.handle, self._class, self._object(), f"making the object of {self.engine_name}")
            if self._engine_type == ENGINE_GRAPHICS:
                self._let_others_in()
            schedule = client.make(controls.NVA06C_CTRL_GPFIFO_SCHEDULE_PARAMS, bEnable=1)
            client.control(self.group, controls.NVA06C_CTRL_CMD_GPFIFO_SCHEDULE, schedule, "scheduling a channel group")
            told = client.ask(
                self.handle,
                controls.NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN,
                controls.NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN_PARAMS,
            )
            self.token = told.workSubmitToken
            self._listen(NOTIFIER_RC | DATALESS)

    def _let_others_in(self) -> None:
        """Let the card leave a long kernel for other processes' work, such as a desktop's, between its blocks (CTAs).

        GUESS: that a channel which does not ask is left when it is idle only, so that the others wait for the kernel's
        end: OGKM ctrl2080gr.h calls that the normal mode. NVIDIA's own library chooses a mode as well; which one is not
        known (test/data/nv-rm/libcuda_calls.txt).
        """
        try:
            self._objects.client.ask(
                self._objects.subdevice,
                gr.NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE,
                gr.NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_PARAMS,
                flags=gr.NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_FLAGS_CILP_SET,
                hChannel=self.handle,
                cilpPreemptMode=gr.NV2080_CTRL_SET_CTXSW_PREEMPTION_MODE_COMPUTE_CTA,
            )
        # the channel works without
        except RmRefused as error:
            LOG.info("letting others in between a kernel's blocks: %s", error)

    def _object(self) -> Struct | None:
        """Return the parameters of the object that the channel's methods are for.

        QUIRK: a copy object without parameters is one of copy engine 0, and the driver moves the channel to that
        engine's runlist: its doorbell is another then. Source: OGKM 535.261.03 kernel_ce_context.c
        (kceGetEngineDescFromAllocParams), channel_descendant.c (kfifoRunlistSetIdByEngine).
        """
        if self._engine_type == ENGINE_GRAPHICS:
            return None
        made: Struct = self._objects.client.make(
            rm_alloc.NVB0B5_ALLOCATION_PARAMETERS, version=BY_ENGINE_TYPE, engineType=self._engine_type
        )
        return made

    def _listen(self, index: int) -> None:
        """Let the channel's errors wake this process."""
        node = self._objects.path.interrupts.node
        if node >= 0:
            self._objects.listen(self.handle, index, node)

    @property
    def doorbell(self) -> partial[None]:
        """Rings the channel's doorbell when it is called."""
        return partial(self._objects.ring_doorbell, NOTIFY_CHANNEL_PENDING, self.token)

    def ring(self, value: int) -> None:
        """Ring the channel's doorbell; `Rings` of the submission layer."""
        self._objects.ring_doorbell(NOTIFY_CHANNEL_PENDING, self.token)

    def unmap(self) -> bool:
        """Take the channel off; the driver ends work that it has begun. Return whether there was no other trouble."""
        try:
            self._drop()
        except DeviceLost:
            return False
        return True

    def reset(self) -> None:
        """Take the channel off even if its work has not ended."""
        self.unmap()

    def _drop(self) -> None:
        self.handle = 0
        if not self.group:
            return
        # the channel and its objects go with the group. Where the driver refuses that, another call tries it again
        try:
            self._objects.client.free(self.group)
        except RmRefused as error:
            # an earlier call was interrupted when the driver had done it
            if error.status not in GONE:
                raise
        self.group = 0

    def position(self) -> Position:
        """Read where the channel stands: in bytes of its GPFIFO."""
        return Position(bool(self.handle), 8 * self._area.get[0], 8 * self.put_cell[0], {})

    # --- errors -----------------------------------------------------------------------------------------------------
    @property
    def is_stopped(self) -> bool:
        """Whether the driver has written the channel's error notifier."""
        return self._status_cell[0] != NOT_WRITTEN

    def error(self) -> ChannelError | None:
        """Return why the driver stopped the channel; None while it did not."""
        seen = notifiers.NvNotification.view(
            bytearray(self._notifier[ERROR_AT : ERROR_AT + notifiers.NvNotification.SIZE])
        )
        if seen.status == NOT_WRITTEN:
            return None
        stamp = seen.timeStamp.nanoseconds
        return ChannelError(seen.info32, stamp[1] << 32 | stamp[0])

    def mmu_fault(self) -> MmuFault | None:
        """Return the access that the channel was stopped for, if the driver tells one."""
        try:
            told = self._objects.client.ask(
                self.handle, controls.NV906F_CTRL_CMD_GET_MMU_FAULT_INFO, controls.NV906F_CTRL_GET_MMU_FAULT_INFO_PARAMS
            )
        except RmRefused as error:
            LOG.info("asking for the fault of a channel: %s", error)
            return None
        gpu_va = told.addrHi << 32 | told.addrLo
        text = b"".join(told.faultString).partition(b"\0")[0].decode("ascii", "replace")
        return MmuFault(gpu_va, text or f"fault of type {told.faultType}") if gpu_va or text else None
