"""The system calls of /dev/kfd: each is one method, and each refusal is an error that says what to do.

Source: Linux include/uapi/linux/kfd_ioctl.h; amdkfd kfd_chardev.c (which errno means what), kfd_events.c,
kfd_process_queue_manager.c, kfd_device_queue_manager.c.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

from ringup.autogen.amd import kfd
from ringup.autogen.layout import Struct
from ringup.autogen.structs import memory
from ringup.drivers.transport.linux.kernel import Kernel, explained
from ringup.errors import CardBusy, DeviceLost, NotSupported, OutOfMemory, PermissionNeeded, RingupError, TransportError

NODE = "dev/kfd"
MAJOR = 1
MAX_GPUS = 256  # ours: nodes whose apertures are read
ALL_OF_IT = kfd.KFD_MAX_QUEUE_PERCENTAGE
MAX_WAIT_MS = 1 << 30
NORMAL_PRIORITY = 7  # of 0 to 15. Source: ROCr amd_aql_queue.cpp: HSA_QUEUE_PRIORITY_NORMAL
MASK32 = 0xFFFF_FFFF
# The errors that mean something else than usually (`linux/kernel.py`, REASONS), by call. "": by every call.
Meaning = tuple[type[RingupError], str]
TOO_OLD = "the kernel has no such call"
# The interface from which on a call is there; others are older than every kernel that ringup knows. Source:
# kfd_ioctl.h, the list of versions at its top
SINCE: Mapping[str, tuple[int, int]] = {"svm": (1, 5), "available_memory": (1, 9), "export_dmabuf": (1, 12)}
# Of shared memory: both sides may work on it at once, kernels may run from it, and the kernel maps it at once, not when
# an access fails
SHARED_FLAGS = (
    kfd.KFD_IOCTL_SVM_FLAG_HOST_ACCESS
    | kfd.KFD_IOCTL_SVM_FLAG_COHERENT
    | kfd.KFD_IOCTL_SVM_FLAG_GPU_EXEC
    | kfd.KFD_IOCTL_SVM_FLAG_GPU_ALWAYS_MAPPED
)
SIZE_SHIFT = 16  # of the argument's size in a call's number. Source: asm-generic/ioctl.h, _IOC_SIZESHIFT
GONE = "the card or its driver has gone: see `dmesg`, and open it again once amdgpu drives it"
MEANINGS: Mapping[str, Mapping[int, Meaning]] = {
    "": {
        errno.ENOTTY: (NotSupported, TOO_OLD),
        errno.EBADF: (
            TransportError,
            "a process uses the node that it opened itself: open the card again after a fork",
        ),
        errno.ENODEV: (DeviceLost, GONE),
        errno.ESRCH: (DeviceLost, GONE),
        errno.EIO: (DeviceLost, GONE),
        errno.EINTR: (TransportError, "a signal interrupted it: call it again"),
    },
    "acquire_vm": {
        errno.EBUSY: (
            CardBusy,
            "this process uses the card through another render node descriptor already, such as ROCm's runtime: use one of the two",
        ),
    },
    "alloc_memory_of_gpu": {
        errno.EADDRINUSE: (
            TransportError,
            "memory at these addresses is shared with a card already, by `share` or by another library of this process",
        ),
        errno.EFAULT: (TransportError, "the memory is not this process's own, or was unmapped"),
        errno.EPERM: (PermissionNeeded, "the kernel lets no device use that memory"),
    },
    "create_queue": {
        errno.ENOSPC: (OutOfMemory, "this process has all the queues that the kernel gives it: close one"),
        errno.EBUSY: (OutOfMemory, "the doorbells of this process are used up: close a queue"),
        errno.EPERM: (OutOfMemory, "the queues of all processes are as many as the kernel allows: end one"),
        errno.ENOMEM: (OutOfMemory, "there is no free engine queue, doorbell page or memory for it: close a queue"),
    },
    "get_dmabuf_info": {
        errno.EBADF: (TransportError, "the file descriptor is closed"),
        errno.EINVAL: (TransportError, "the file descriptor is of no memory of amdgpu's that cards can share"),
    },
    "import_dmabuf": {
        errno.EBADF: (TransportError, "the file descriptor is closed"),
        errno.EINVAL: (
            TransportError,
            "the file descriptor is of no memory of amdgpu's, or of another card's, which the kernel does not map here",
        ),
    },
    # kfd_chardev.c, kfd_ioctl_svm; kfd_svm.c, svm_range_check_attr, svm_range_check_vm, svm_range_is_valid
    "svm": {
        errno.EPERM: (NotSupported, "the kernel is built without HSA_AMD_SVM"),
        errno.EINVAL: (NotSupported, "the kernel shares no memory of processes with this card: `dmesg` may say why"),
        errno.EADDRINUSE: (TransportError, "a buffer of a card, or memory that is pinned, has these addresses"),
        errno.EFAULT: (TransportError, "the memory is not this process's own, or was unmapped"),
    },
    "create_event": {
        errno.ENOSPC: (OutOfMemory, "this process has all the events that the kernel gives it"),
    },
}


class Queue(IntEnum):
    """What runs in a queue."""

    PM4 = kfd.KFD_IOC_QUEUE_TYPE_COMPUTE
    AQL = kfd.KFD_IOC_QUEUE_TYPE_COMPUTE_AQL
    SDMA = kfd.KFD_IOC_QUEUE_TYPE_SDMA
    SDMA_OF_ENGINE = kfd.KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID


class Event(IntEnum):
    """Kinds of events."""

    SIGNAL = kfd.KFD_IOC_EVENT_SIGNAL
    HW_EXCEPTION = kfd.KFD_IOC_EVENT_HW_EXCEPTION
    MEMORY = kfd.KFD_IOC_EVENT_MEMORY


class Apertures(NamedTuple):
    """Ranges of addresses of one GPU in this process. `lds`, `scratch`: how kernels reach these in the flat space."""

    lds_base: int
    scratch_base: int
    gpuvm_base: int
    gpuvm_limit: int


class Allocation(NamedTuple):
    """Memory: the kernel's number for it, and where the render node maps it."""

    handle: int
    mmap_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSpec:
    """A queue that is to be created. The addresses are the GPU's: the write pointer, the read pointer, the ring, the
    buffer for work that ends out of order (0: none), the area for saved waves (0: none). `engine`: of SDMA_OF_ENGINE.
    """

    kind: Queue
    ring_va: int
    ring_bytes: int
    rptr_va: int
    wptr_va: int
    eop_va: int = 0
    eop_bytes: int = 0
    save_va: int = 0
    save_bytes: int = 0
    control_stack_bytes: int = 0
    engine: int = 0
    priority: int = NORMAL_PRIORITY


class Created(NamedTuple):
    """A queue: the kernel's number for it, and its doorbell as an offset for `mmap` of /dev/kfd."""

    number: int
    doorbell_offset: int


class MemoryFault(NamedTuple):
    """What the kernel says of an access that failed. `gpu_va` is the start of a page."""

    gpu_id: int
    gpu_va: int
    not_present: bool
    read_only: bool
    no_execute: bool
    imprecise: bool
    error_type: int


class HwException(NamedTuple):
    """A reset of the card that the kernel reports."""

    gpu_id: int
    reset_type: int
    reset_cause: int
    memory_lost: bool


class Woken(NamedTuple):
    """How a wait for events ended: what came of faults and exceptions, and whether anything came at all."""

    came: bool
    faults: tuple[MemoryFault, ...] = ()
    exceptions: tuple[HwException, ...] = ()


class Calls:
    """The calls on one open /dev/kfd. `name` begins the errors."""

    def __init__(self, kernel: Kernel, node: int, name: str) -> None:
        self.kernel, self.node, self.name = kernel, node, name
        self._version: tuple[int, int] | None = None

    # --- the process ------------------------------------------------------------------------------------------------
    @property
    def version(self) -> tuple[int, int]:
        """The version of the kernel's interface. Raises `NotSupported` for another major version."""
        if self._version is None:
            said = kfd.kfd_ioctl_get_version_args()
            self._ask("get_version", kfd.AMDKFD_IOC_GET_VERSION, said)
            self._version = int(said.major_version), int(said.minor_version)
        if self._version[0] != MAJOR:
            raise NotSupported(
                f"{self.name}: /dev/kfd has interface {self._shown_version}, and ringup knows {MAJOR}.x: update ringup"
            )
        return self._version

    def apertures(self) -> dict[int, Apertures]:
        """Return the apertures of the process's GPUs, by gpu_id."""
        asked = kfd.kfd_ioctl_get_process_apertures_new_args()
        self._ask("get_process_apertures_new", kfd.AMDKFD_IOC_GET_PROCESS_APERTURES_NEW, asked)
        count = min(int(asked.num_of_nodes), MAX_GPUS)
        if not count:
            return {}
        rows = _Rows(kfd.kfd_process_device_apertures, count)
        asked = kfd.kfd_ioctl_get_process_apertures_new_args(
            kfd_process_device_apertures_ptr=rows.address, num_of_nodes=count
        )
        self._ask("get_process_apertures_new", kfd.AMDKFD_IOC_GET_PROCESS_APERTURES_NEW, asked)
        found = [rows[place] for place in range(min(int(asked.num_of_nodes), count))]
        return {
            int(row.gpu_id): Apertures(
                int(row.lds_base), int(row.scratch_base), int(row.gpuvm_base), int(row.gpuvm_limit)
            )
            for row in found
        }

    def acquire_vm(self, gpu_id: int, render_node: int) -> None:
        """Make an open render node's address space that of this process's queues: once for each GPU and process."""
        args = kfd.kfd_ioctl_acquire_vm_args(drm_fd=render_node, gpu_id=gpu_id)
        self._ask("acquire_vm", kfd.AMDKFD_IOC_ACQUIRE_VM, args)

    def clocks(self, gpu_id: int) -> tuple[int, int]:
        """Return the card's counter, and the host's raw monotonic clock in ns at the same moment."""
        args = kfd.kfd_ioctl_get_clock_counters_args(gpu_id=gpu_id)
        self._ask("get_clock_counters", kfd.AMDKFD_IOC_GET_CLOCK_COUNTERS, args)
        return int(args.gpu_clock_counter), int(args.cpu_clock_counter)

    def set_memory_policy(self, gpu_id: int, *, coherent: bool) -> None:
        """Choose how memory without a policy of its own is cached. Newer cards ignore it."""
        policy = kfd.KFD_IOC_CACHE_POLICY_COHERENT if coherent else kfd.KFD_IOC_CACHE_POLICY_NONCOHERENT
        args = kfd.kfd_ioctl_set_memory_policy_args(gpu_id=gpu_id, default_policy=policy, alternate_policy=policy)
        self._ask("set_memory_policy", kfd.AMDKFD_IOC_SET_MEMORY_POLICY, args)

    def set_trap_handler(self, gpu_id: int, code_va: int, data_va: int) -> None:
        """Let waves run `code_va` on exceptions; the kernel's own handler calls it."""
        args = kfd.kfd_ioctl_set_trap_handler_args(tba_addr=code_va, tma_addr=data_va, gpu_id=gpu_id)
        self._ask("set_trap_handler", kfd.AMDKFD_IOC_SET_TRAP_HANDLER, args)

    # --- memory -----------------------------------------------------------------------------------------------------
    def available_bytes(self, gpu_id: int) -> int | None:
        """Return how much VRAM may be allocated now; None where the kernel does not say (before interface 1.9)."""
        args = kfd.kfd_ioctl_get_available_memory_args(gpu_id=gpu_id)
        try:
            self._ask("available_memory", kfd.AMDKFD_IOC_AVAILABLE_MEMORY, args)
        except NotSupported:
            return None
        return int(args.available)

    def alloc(
        self, gpu_id: int, gpu_va: int, size_bytes: int, flags: int, *, user_address: int = 0, doing: str = ""
    ) -> Allocation:
        """Allocate memory for an address; it is not mapped there yet. `user_address`: of the caller's own pages."""
        args = kfd.kfd_ioctl_alloc_memory_of_gpu_args(
            va_addr=gpu_va, size=size_bytes, mmap_offset=user_address, gpu_id=gpu_id, flags=flags & MASK32
        )
        self._ask("alloc_memory_of_gpu", kfd.AMDKFD_IOC_ALLOC_MEMORY_OF_GPU, args, doing)
        return Allocation(int(args.handle), int(args.mmap_offset))

    def free(self, handle: int) -> None:
        """Free memory that is mapped nowhere."""
        args = kfd.kfd_ioctl_free_memory_of_gpu_args(handle=handle)
        self._ask("free_memory_of_gpu", kfd.AMDKFD_IOC_FREE_MEMORY_OF_GPU, args)

    def map(self, handle: int, gpu_ids: Sequence[int], doing: str = "") -> None:
        """Map memory at its address for GPUs."""
        ids = (ctypes.c_uint32 * len(gpu_ids))(*gpu_ids)
        args = kfd.kfd_ioctl_map_memory_to_gpu_args(
            handle=handle, device_ids_array_ptr=ctypes.addressof(ids), n_devices=len(gpu_ids)
        )
        self._ask("map_memory_to_gpu", kfd.AMDKFD_IOC_MAP_MEMORY_TO_GPU, args, doing)

    def unmap(self, handle: int, gpu_ids: Sequence[int]) -> None:
        """Unmap memory from GPUs; they no longer reach it when this returns."""
        ids = (ctypes.c_uint32 * len(gpu_ids))(*gpu_ids)
        args = kfd.kfd_ioctl_unmap_memory_from_gpu_args(
            handle=handle, device_ids_array_ptr=ctypes.addressof(ids), n_devices=len(gpu_ids)
        )
        self._ask("unmap_memory_from_gpu", kfd.AMDKFD_IOC_UNMAP_MEMORY_FROM_GPU, args)

    def export_dmabuf(self, handle: int, doing: str = "") -> int:
        """Return a new file descriptor of memory, for other processes and drivers. The caller closes it."""
        args = kfd.kfd_ioctl_export_dmabuf_args(handle=handle, flags=os.O_CLOEXEC | os.O_RDWR)
        self._ask("export_dmabuf", kfd.AMDKFD_IOC_EXPORT_DMABUF, args, doing)
        return int(args.dmabuf_fd)

    def dmabuf(self, node: int, doing: str = "") -> tuple[int, int]:
        """Return the size in bytes of the memory behind a file descriptor, and its flags, as `alloc` takes them."""
        args = kfd.kfd_ioctl_get_dmabuf_info_args(dmabuf_fd=node & MASK32)
        self._ask("get_dmabuf_info", kfd.AMDKFD_IOC_GET_DMABUF_INFO, args, doing)
        return int(args.size), int(args.flags)

    def import_dmabuf(self, gpu_id: int, node: int, gpu_va: int, doing: str = "") -> int:
        """Return the number of memory behind a file descriptor, for an address. It is not mapped there yet."""
        args = kfd.kfd_ioctl_import_dmabuf_args(va_addr=gpu_va, gpu_id=gpu_id, dmabuf_fd=node & MASK32)
        self._ask("import_dmabuf", kfd.AMDKFD_IOC_IMPORT_DMABUF, args, doing)
        return int(args.handle)

    def share(self, gpu_id: int, address: int, size_bytes: int, doing: str = "") -> None:
        """Let a GPU reach whole pages of this process at the process's own addresses, wherever the kernel moves them.
        It ends when the process unmaps them.
        """
        attributes = (
            (kfd.KFD_IOCTL_SVM_ATTR_ACCESS_IN_PLACE, gpu_id),
            (kfd.KFD_IOCTL_SVM_ATTR_SET_FLAGS, SHARED_FLAGS),
        )
        words = b"".join(kfd.kfd_ioctl_svm_attribute.pack(kind, value) for kind, value in attributes)
        asked = kfd.kfd_ioctl_svm_args(
            start_addr=address, size=size_bytes, op=kfd.KFD_IOCTL_SVM_OP_SET_ATTR, nattr=len(attributes)
        )
        request = kfd.AMDKFD_IOC_SVM + (len(words) << SIZE_SHIFT)
        self._ask("svm", request, bytearray(bytes(memory(asked)) + words), doing)

    # --- queues -----------------------------------------------------------------------------------------------------
    def create_queue(self, gpu_id: int, spec: QueueSpec) -> Created:
        """Create a queue and let the kernel's scheduler run it."""
        args = kfd.kfd_ioctl_create_queue_args(
            ring_base_address=spec.ring_va,
            write_pointer_address=spec.wptr_va,
            read_pointer_address=spec.rptr_va,
            ring_size=spec.ring_bytes,
            gpu_id=gpu_id,
            queue_type=spec.kind,
            queue_percentage=ALL_OF_IT,
            queue_priority=spec.priority,
            eop_buffer_address=spec.eop_va,
            eop_buffer_size=spec.eop_bytes,
            ctx_save_restore_address=spec.save_va,
            ctx_save_restore_size=spec.save_bytes,
            ctl_stack_size=spec.control_stack_bytes,
            sdma_engine_id=spec.engine,
        )
        self._ask("create_queue", kfd.AMDKFD_IOC_CREATE_QUEUE, args, f"a queue for {spec.kind.name} packets")
        return Created(int(args.queue_id), int(args.doorbell_offset))

    def update_queue(self, number: int, spec: QueueSpec, *, running: bool = True) -> None:
        """Give a queue another ring or priority; one that is not `running` stays off the hardware."""
        args = kfd.kfd_ioctl_update_queue_args(
            ring_base_address=spec.ring_va,
            queue_id=number,
            ring_size=spec.ring_bytes,
            queue_percentage=ALL_OF_IT if running else 0,
            queue_priority=spec.priority,
        )
        self._ask("update_queue", kfd.AMDKFD_IOC_UPDATE_QUEUE, args)

    def destroy_queue(self, number: int) -> None:
        """Take a queue off the hardware, also in the middle of its work."""
        args = kfd.kfd_ioctl_destroy_queue_args(queue_id=number)
        self._ask("destroy_queue", kfd.AMDKFD_IOC_DESTROY_QUEUE, args)

    # --- events -----------------------------------------------------------------------------------------------------
    def create_event(self, kind: Event, *, page_handle: int = 0) -> int:
        """Create an event that a wait resets, and return its number.

        `page_handle`: memory for the slots of signals, given with the first one of a process.
        """
        args = kfd.kfd_ioctl_create_event_args(event_page_offset=page_handle, event_type=kind, auto_reset=1)
        self._ask("create_event", kfd.AMDKFD_IOC_CREATE_EVENT, args)
        return int(args.event_id)

    def destroy_event(self, number: int) -> None:
        """Destroy an event; whoever waits for it fails."""
        args = kfd.kfd_ioctl_destroy_event_args(event_id=number)
        self._ask("destroy_event", kfd.AMDKFD_IOC_DESTROY_EVENT, args)

    def set_event(self, number: int) -> None:
        """Set a signal event from the host."""
        args = kfd.kfd_ioctl_set_event_args(event_id=number)
        self._ask("set_event", kfd.AMDKFD_IOC_SET_EVENT, args)

    def wait_events(self, events: Mapping[int, Event], timeout_ms: int) -> Woken:
        """Sleep until one of the events comes, a signal for the process does, or the time is over.

        `events`: their kinds by number. The wait resets those that came.
        """
        rows = _Rows(kfd.kfd_event_data, len(events))
        for place, number in enumerate(events):
            rows[place].event_id = number
        args = kfd.kfd_ioctl_wait_events_args(
            events_ptr=rows.address, num_events=len(events), timeout=min(max(timeout_ms, 0), MAX_WAIT_MS)
        )
        try:
            self.kernel.call(self.node, kfd.AMDKFD_IOC_WAIT_EVENTS, args)
        except InterruptedError:
            return Woken(False)
        except OSError as error:
            raise self._refused("wait_events", error) from error
        if args.wait_result != kfd.KFD_IOC_WAIT_RESULT_COMPLETE:
            return Woken(False)
        return Woken(True, *_happened(rows, list(events.values())))

    # --- errors -----------------------------------------------------------------------------------------------------
    @property
    def _shown_version(self) -> str:
        return ".".join(map(str, self._version)) if self._version else "of unknown version"

    def _ask(self, call: str, request: int, args: Any, doing: str = "") -> None:
        try:
            self.kernel.call(self.node, request, args)
        except OSError as error:
            raise self._refused(call, error, doing) from error

    def _refused(self, call: str, error: OSError, doing: str = "") -> RingupError:
        code = error.errno or 0
        where = f"{self.name}: {f'{doing}: ' if doing else ''}AMDKFD_IOC_{call.upper()}"
        meaning = MEANINGS.get(call, {}).get(code) or MEANINGS[""].get(code)
        since = SINCE.get(call, (MAJOR, 0))
        # kernels answer an unknown call with one or the other
        if code == errno.EINVAL and self._version is not None and self._version < since:
            meaning = NotSupported, TOO_OLD
        remedy = meaning[1] if meaning else ""
        if remedy == TOO_OLD:
            takes = f"it takes {'.'.join(map(str, since))}, " if call in SINCE else ""
            remedy = f"{remedy}: its interface is {self._shown_version}, {takes}update the kernel"
        if code == errno.EINVAL and meaning is None:
            remedy = (
                f"the kernel does not take these values (its interface is {self._shown_version}): `dmesg` may say why"
            )
        if meaning is None:
            return explained(error, where, remedy)
        return meaning[0](f"{where}: {error.strerror or error}; {remedy}")


class _Rows:
    """An array of structs in memory whose address a call is given."""

    def __init__(self, struct: type[Struct], count: int) -> None:
        self._struct, self._bytes = struct, bytearray(struct.SIZE * count)
        self._anchor = (ctypes.c_char * len(self._bytes)).from_buffer(self._bytes)
        self.address = ctypes.addressof(self._anchor)

    def __getitem__(self, place: int) -> Any:
        return self._struct.view(self._bytes, place * self._struct.SIZE)


def _happened(rows: _Rows, kinds: Sequence[Event]) -> tuple[tuple[MemoryFault, ...], tuple[HwException, ...]]:
    """Return what the kernel stored for events that came; it leaves those of others zero."""
    faults, exceptions = [], []
    for place, kind in enumerate(kinds):
        row = rows[place]
        if kind is Event.MEMORY and (seen := row.memory_exception_data).gpu_id:
            why = seen.failure
            faults.append(
                MemoryFault(
                    int(seen.gpu_id),
                    int(seen.va),
                    bool(why.NotPresent),
                    bool(why.ReadOnly),
                    bool(why.NoExecute),
                    bool(why.imprecise),
                    int(seen.ErrorType),
                )
            )
        if kind is Event.HW_EXCEPTION and (reset := row.hw_exception_data).gpu_id:
            exceptions.append(
                HwException(int(reset.gpu_id), int(reset.reset_type), int(reset.reset_cause), bool(reset.memory_lost))
            )
    return tuple(faults), tuple(exceptions)
