"""The objects that every user of a card needs: a client, the card's device and subdevice, an address space, the page of
doorbells.

Source: NVIDIA open-gpu-kernel-modules: cl0000.h, cl0080.h, cl2080.h, cl90f1.h, clc361.h, clc661.h; ctrl0000gpu.h.
"""

from __future__ import annotations

import logging

from ringup.autogen.nv import classes as nv
from ringup.autogen.nv import rm_alloc
from ringup.autogen.nv import rm_ctrl_0000 as root_controls
from ringup.autogen.nv import rm_ctrl_2080_fifo as fifo
from ringup.autogen.nv import rm_ctrl_2080_gpu as gpu
from ringup.drivers.cleanup import Teardown
from ringup.drivers.nv.rm import facts
from ringup.drivers.nv.rm.client import RmClient
from ringup.drivers.transport.nvidia.calls import MappedMemory
from ringup.drivers.transport.nvidia.device import NvidiaDevice
from ringup.drivers.transport.nvidia.status import RmBusy, RmRefused
from ringup.drivers.transport.nvidia.system import Kind
from ringup.errors import CardBusy, NotSupported, PermissionNeeded, RingupError

LOG = logging.getLogger(__name__)
# cl2080_notification.h, NV2080_NOTIFIERS_FIFO_EVENT_MTHD: a method of some channel has raised a non-stall interrupt
NOTIFIER_HOST = 35
DATALESS = rm_alloc.NV01_EVENT_WITHOUT_EVENT_DATA
NONSTALL = rm_alloc.NV01_EVENT_NONSTALL_INTR
# bytes of the page of doorbells, and where a channel's number is written. Source: clc361.h
DOORBELLS_BYTES = 0x10000
NOTIFY_CHANNEL_PENDING = 0x90
# pages of doorbells, newest first. A card has the one of its generation
USERMODE = (
    nv.BLACKWELL_USERMODE_A,
    nv.HOPPER_USERMODE_A,
    nv.AMPERE_USERMODE_A,
    nv.TURING_USERMODE_A,
    nv.VOLTA_USERMODE_A,
)
# in no header: g_subdevice_nvoc.c, subdeviceCtrlCmdGpuAcquireComputeModeReservation
ACQUIRE_COMPUTE_MODE_RESERVATION = 0x20800145
WITH_PARAMETERS = (nv.HOPPER_USERMODE_A, nv.BLACKWELL_USERMODE_A)


class CardObjects:
    """One process's objects on one card."""

    def __init__(self, device: NvidiaDevice) -> None:
        """Make the client and the card's objects. The kernel's driver frees them when the nodes are closed."""
        calls = device.calls
        self.path, self.calls = device, calls
        self.client = client = RmClient(calls, calls.root(nv.NV01_ROOT_CLIENT))
        ids = client.ask(
            client.root,
            root_controls.NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2,
            root_controls.NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS,
            gpuId=device.row.gpu_id,
        )
        params = client.make(
            rm_alloc.NV0080_ALLOC_PARAMETERS,
            deviceId=ids.deviceInstance,
            hClientShare=client.root,
            vaMode=rm_alloc.NV_DEVICE_ALLOCATION_VAMODE_MULTIPLE_VASPACES,
        )
        self.device = client.alloc(client.root, nv.NV01_DEVICE_0, params)
        params = client.make(rm_alloc.NV2080_ALLOC_PARAMETERS, subDeviceId=ids.subDeviceInstance)
        self.subdevice = client.alloc(self.device, nv.NV20_SUBDEVICE_0, params)
        self.facts = facts.read(client, self.device, self.subdevice)
        self.space = client.alloc(
            self.device, nv.FERMI_VASPACE_A, client.make(rm_alloc.NV_VASPACE_ALLOCATION_PARAMETERS)
        )
        self._doorbells = self._map_doorbells()
        self.ring_doorbell = self._doorbells.mapping.write32

    def ask_to_compute(self) -> None:
        """Ask whether the card's administrator lets this process compute (`nvidia-smi -c`). Where only one process may,
        the card is this one's from now on, until its client goes.

        The driver does not stop a process that does not ask. Raises `PermissionNeeded` for a card that is closed to
        compute, `CardBusy` for one that another client has for itself.
        """
        try:
            self.client.control(self.subdevice, ACQUIRE_COMPUTE_MODE_RESERVATION, doing="asking to compute on the card")
        except RmBusy as error:
            mode = self.client.ask(
                self.subdevice,
                gpu.NV2080_CTRL_CMD_GPU_QUERY_COMPUTE_MODE_RULES,
                gpu.NV2080_CTRL_GPU_QUERY_COMPUTE_MODE_RULES_PARAMS,
            )
            if mode.rules == gpu.NV2080_CTRL_GPU_COMPUTE_MODE_RULES_COMPUTE_PROHIBITED:
                raise PermissionNeeded(
                    f"{self.path.name}: its administrator has closed the card to compute (compute mode Prohibited): "
                    "`nvidia-smi -c 0` opens it"
                ) from error
            raise CardBusy(
                f"{self.path.name}: another user has the card for itself (compute mode Exclusive_Process): wait for its "
                "end, or let several in with `nvidia-smi -c 0`; `nvidia-smi` shows who it is"
            ) from error
        # a card in parts has no compute mode
        except RmRefused as error:
            LOG.info("%s: asking to compute: %s", self.path.name, error)

    def let_work_be_long(self) -> None:
        """Ask the driver to do without its watchdog while this client is there: it takes a kernel that runs for longer
        than 7 s for a card that hangs. Where a desktop has asked for the watchdog, it stays.

        Source: OGKM kernel_rc_watchdog.c (krcWatchdogChangeState_IMPL), kernel_rc_watchdog_callback.c;
        NV_REG_STR_RM_WATCHDOG_TIMEOUT_DEFAULT of nvrm_registry.h.
        """
        try:
            self.client.control(
                self.subdevice, fifo.NV2080_CTRL_CMD_RC_SOFT_DISABLE_WATCHDOG, doing="asking for no watchdog"
            )
        # a card in parts has none
        except RmRefused as error:
            LOG.info("%s: doing without a watchdog: %s", self.path.name, error)

    def _map_doorbells(self) -> MappedMemory:
        class_id = next((one for one in USERMODE if one in self.facts.classes), None)
        if class_id is None:
            raise NotSupported(f"{self.path.name}: the driver offers no page of doorbells (classes c361 to c761)")
        params = self.client.make(rm_alloc.NV_HOPPER_USERMODE_A_PARAMS) if class_id in WITH_PARAMETERS else None
        page = self.client.alloc(self.subdevice, class_id, params)
        return self.calls.map_memory(
            self.client.root,
            self.subdevice,
            page,
            DOORBELLS_BYTES,
            Kind.REGISTERS,
            doing="mapping the page of doorbells",
        )

    def listen(self, source: int, index: int, node: int) -> int:
        """Let an event of an object wake whoever waits for the node; return the listener's handle."""
        params = self.client.make(
            rm_alloc.NV0005_ALLOC_PARAMETERS,
            hParentClient=self.client.root,
            hSrcResource=source,
            hClass=nv.NV01_EVENT_OS_EVENT,
            notifyIndex=index,
            data=node,
        )
        return self.client.alloc(source, nv.NV01_EVENT_OS_EVENT, params, "listening for an event")

    def listen_to_host(self, node: int) -> None:
        """Let interrupts that channels raise by a method wake whoever waits for the node.

        QUIRK: up to 575 the driver tells listeners of the host of nothing unless notifications of the subdevice are on.
        Source: OGKM 535.261.03 intr.c, intrServiceNonStallLeaf (activeFifoEventMthdNotifiers);
        subdevice_ctrl_event_kernel.c.
        """
        self.listen(self.subdevice, NOTIFIER_HOST | NONSTALL | DATALESS, node)
        try:
            self.client.ask(
                self.subdevice,
                fifo.NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION,
                fifo.NV2080_CTRL_EVENT_SET_NOTIFICATION_PARAMS,
                event=NOTIFIER_HOST,
                action=fifo.NV2080_CTRL_EVENT_SET_NOTIFICATION_ACTION_REPEAT,
            )
        # later releases may do without: waits then end at the end of a nap
        except RmRefused as error:
            LOG.info("%s: switching notifications of the host on: %s", self.path.name, error)

    def gpu_clock(self) -> int:
        """Read the card's clock, in ns."""
        told = self.client.ask(
            self.subdevice, fifo.NV2080_CTRL_CMD_TIMER_GET_TIME, fifo.NV2080_CTRL_TIMER_GET_TIME_PARAMS
        )
        return int(told.time_nsec)

    def close(self) -> None:
        """Give all of it back."""
        with Teardown(f"{self.path.name}: closing", logged=RingupError) as teardown:
            teardown.attempt(lambda: self.calls.unmap_memory(self._doorbells))
            teardown.attempt(lambda: self.client.free(self.client.root))
