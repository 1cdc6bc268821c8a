"""A kernel made of files with a compute topology, whose /dev/kfd answers calls as amdkfd does.

Every call is checked: its number must be one of kfd_ioctl.h, and its argument as long as the number says. Memory is
checked for order: allocated, mapped, unmapped, freed. Written from Linux's kfd_chardev.c, kfd_topology.c and
kfd_events.c. What a card does behind the calls is judged in the guest, not here.
"""

import ctypes
import errno
import os

from ringup.autogen.amd import kfd
from ringup.drivers.transport.linux.kernel import Kernel

# _IOC(dir, 'K', nr, size) of asm-generic/ioctl.h
CALLS = {
    getattr(kfd, name): name.removeprefix("AMDKFD_IOC_").lower() for name in vars(kfd) if name.startswith("AMDKFD_IOC_")
}
ARGUMENTS = {
    "create_queue": kfd.kfd_ioctl_create_queue_args,
    "get_version": kfd.kfd_ioctl_get_version_args,
    "get_process_apertures_new": kfd.kfd_ioctl_get_process_apertures_new_args,
    "acquire_vm": kfd.kfd_ioctl_acquire_vm_args,
    "get_clock_counters": kfd.kfd_ioctl_get_clock_counters_args,
    "alloc_memory_of_gpu": kfd.kfd_ioctl_alloc_memory_of_gpu_args,
    "free_memory_of_gpu": kfd.kfd_ioctl_free_memory_of_gpu_args,
    "map_memory_to_gpu": kfd.kfd_ioctl_map_memory_to_gpu_args,
    "unmap_memory_from_gpu": kfd.kfd_ioctl_unmap_memory_from_gpu_args,
    "available_memory": kfd.kfd_ioctl_get_available_memory_args,
    "destroy_queue": kfd.kfd_ioctl_destroy_queue_args,
    "update_queue": kfd.kfd_ioctl_update_queue_args,
    "create_event": kfd.kfd_ioctl_create_event_args,
    "destroy_event": kfd.kfd_ioctl_destroy_event_args,
    "set_event": kfd.kfd_ioctl_set_event_args,
    "wait_events": kfd.kfd_ioctl_wait_events_args,
    "set_memory_policy": kfd.kfd_ioctl_set_memory_policy_args,
    "set_trap_handler": kfd.kfd_ioctl_set_trap_handler_args,
    "export_dmabuf": kfd.kfd_ioctl_export_dmabuf_args,
    "get_dmabuf_info": kfd.kfd_ioctl_get_dmabuf_info_args,
    "import_dmabuf": kfd.kfd_ioctl_import_dmabuf_args,
    "svm": kfd.kfd_ioctl_svm_args,
}
ATTRIBUTE = kfd.kfd_ioctl_svm_attribute
GPU_ID, ADDRESS = 44027, "0000:03:00.0"
# of a real topology: Linux 6.12 with a Radeon RX 7900 XTX
PROPERTIES = {
    "cpu_cores_count": 0, "simd_count": 192, "mem_banks_count": 1, "caches_count": 2, "io_links_count": 1,
    "lds_size_in_kb": 64, "wave_front_size": 32, "array_count": 12, "simd_arrays_per_engine": 2, "simd_per_cu": 2, "max_waves_per_simd": 16,
    "max_slots_scratch_cu": 32, "gfx_target_version": 110000, "vendor_id": 0x1002, "device_id": 0x744C,
    "location_id": 0x300, "domain": 0, "drm_render_minor": 128, "num_sdma_engines": 2, "num_xcc": 1, "fw_version": 550,
}  # fmt: skip


class Compute:
    """The machine. `fails` maps a call to an errno; `lacks` has calls that the kernel does not know."""

    def __init__(self, root):
        self.root = root
        self.kernel = Kernel(root, self.ioctl)
        self.fails, self.lacks, self.log = {}, set(), []
        self.version = (1, 17)
        self.memory, self.mapped, self.next = {}, set(), 1
        self.queues, self.events, self.asked = {}, {}, {}  # asked: the pointers of the last queue
        self.doorbells = 1024  # of the process. Source: kfd_device_queue_manager.c, allocate_doorbell
        self.page = 0
        self.vms = {}
        self.come = {}  # event: what a wait finds
        self.gpus = []  # in the order of the topology
        self.peers = False  # whether one GPU's VRAM is mapped for another: HSA_AMD_P2P
        self.shared = []  # what GPUs reach of the process by HSA_AMD_SVM: gpu_id, address, size, flags; None without it
        self.exported = {}  # file descriptor: the memory below it, of whichever process
        for folder in ("dev/dri", "sys/class/kfd/kfd/topology/nodes"):
            (root / folder).mkdir(parents=True)
        self.write("dev/kfd", "")
        self.write("etc/group", "render:x:105:kim\n")
        self.node(0, {"cpu_cores_count": 8, "simd_count": 0}, gpu_id=0)

    def write(self, path, text):
        path = self.root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text) if isinstance(text, str) else path.write_bytes(text)

    def node(self, number, properties=PROPERTIES, gpu_id=GPU_ID, vram_bytes=24 << 30):
        folder = f"sys/class/kfd/kfd/topology/nodes/{number}"
        self.write(f"{folder}/gpu_id", f"{gpu_id}\n")
        self.write(f"{folder}/properties", "".join(f"{name} {value}\n" for name, value in properties.items()))
        if gpu_id:
            self.gpus += [gpu_id] if gpu_id not in self.gpus else []
            self.write(f"{folder}/mem_banks/0/properties", f"heap_type 1\nsize_in_bytes {vram_bytes}\nflags 0\n")
            self.write(f"{folder}/caches/0/properties", "level 1\nsize 16\n")
            self.write(f"{folder}/caches/1/properties", "level 2\nsize 6144\nsibling_map 1,1,0\n")
            self.write(f"{folder}/io_links/0/properties", "type 2\nnode_from 1\nnode_to 0\n")
            self.write(f"dev/dri/renderD{properties.get('drm_render_minor', 128)}", "")
        return folder

    def card(self, address=ADDRESS, versions=None):
        folder = f"sys/bus/pci/devices/{address}"
        self.write(f"{folder}/vendor", "0x1002\n")
        for name, version in (versions or {"GC": (11, 0, 0), "SDMA0": (6, 0, 0)}).items():
            for part, value in zip(("major", "minor", "revision"), version, strict=True):
                self.write(f"{folder}/ip_discovery/die/0/{name}/0/{part}", f"{value}\n")
        return folder

    # --- calls ---
    def ioctl(self, node, request, argument):
        call = CALLS.get(request) or CALLS[request & ~(0x3FFF << 16) | kfd.kfd_ioctl_svm_args.SIZE << 16]
        size = request >> 16 & 0x3FFF
        struct = ARGUMENTS[call]
        # kfd_chardev.c, kfd_ioctl: the call may have a longer argument; kfd_ioctl_svm's holds the attributes
        more = ATTRIBUTE.SIZE * struct.view(argument).nattr if call == "svm" else 0
        assert size == struct.SIZE + more == len(argument), call
        assert request >> 8 & 0xFF == kfd.AMDKFD_IOCTL_BASE
        os.fstat(node)
        self.log.append(call)
        if call in self.lacks:
            raise OSError(errno.ENOTTY, os.strerror(errno.ENOTTY))
        if call in self.fails:
            raise OSError(self.fails[call], os.strerror(self.fails[call]))
        getattr(self, call)(struct.view(argument))
        return 0

    def get_version(self, args):
        args.major_version, args.minor_version = self.version

    def get_process_apertures_new(self, args):
        count = len(self.gpus)
        if not args.num_of_nodes:
            args.num_of_nodes = count
            return
        row = kfd.kfd_process_device_apertures
        there = (ctypes.c_char * (count * row.SIZE)).from_address(args.kfd_process_device_apertures_ptr)
        for place, gpu_id in enumerate(self.gpus):
            view = row.view(there, place * row.SIZE)
            view.gpu_id, view.lds_base, view.scratch_base = gpu_id, 1 << 48, 2 << 48
            view.gpuvm_base, view.gpuvm_limit = 0x10000, (1 << 47) - 1
        args.num_of_nodes = count

    def acquire_vm(self, args):
        os.fstat(args.drm_fd)
        assert args.gpu_id in self.gpus
        if self.vms.setdefault(args.gpu_id, args.drm_fd) != args.drm_fd:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    def get_clock_counters(self, args):
        args.gpu_clock_counter, args.cpu_clock_counter = 1234, 5678

    def alloc_memory_of_gpu(self, args):
        assert args.size
        assert not args.va_addr % 4096
        assert bool(args.flags & kfd.KFD_IOC_ALLOC_MEM_FLAGS_USERPTR) == bool(args.mmap_offset)
        args.handle = args.gpu_id << 32 | self.next
        self.next += 1
        self.memory[args.handle] = (args.va_addr, args.size, args.flags)
        args.mmap_offset = 0

    def map_memory_to_gpu(self, args):
        assert args.n_devices == 1
        gpu_id = ctypes.c_uint32.from_address(args.device_ids_array_ptr).value
        assert gpu_id in self.gpus
        foreign = args.handle not in self.memory
        vram = not foreign and self.memory[args.handle][2] & kfd.KFD_IOC_ALLOC_MEM_FLAGS_VRAM
        if foreign or (vram and gpu_id != args.handle >> 32 and not self.peers):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self.mapped.add((args.handle, gpu_id))
        args.n_success = 1

    def unmap_memory_from_gpu(self, args):
        self.mapped.remove((args.handle, ctypes.c_uint32.from_address(args.device_ids_array_ptr).value))

    def export_dmabuf(self, args):
        assert args.handle in self.memory
        args.dmabuf_fd = os.memfd_create("dmabuf")
        self.exported[args.dmabuf_fd] = self.memory[args.handle]

    def get_dmabuf_info(self, args):
        args.size, args.flags = self._dmabuf(args.dmabuf_fd)[1:]

    def import_dmabuf(self, args):
        _, size, flags = self._dmabuf(args.dmabuf_fd)
        args.handle = args.gpu_id << 32 | self.next
        self.next += 1
        self.memory[args.handle] = (args.va_addr, size, flags)

    def _dmabuf(self, node):
        os.fstat(node)  # EBADF
        if node not in self.exported:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return self.exported[node]

    def svm(self, args):
        if self.shared is None:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        assert not (args.start_addr | args.size) % 4096
        assert args.op == kfd.KFD_IOCTL_SVM_OP_SET_ATTR
        asked = {args.attrs[place].type: args.attrs[place].value for place in range(args.nattr)}
        gpu_id = asked.pop(kfd.KFD_IOCTL_SVM_ATTR_ACCESS_IN_PLACE)
        if gpu_id not in self.vms:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        self.shared.append((gpu_id, args.start_addr, args.size, asked.pop(kfd.KFD_IOCTL_SVM_ATTR_SET_FLAGS)))
        assert not asked

    def free_memory_of_gpu(self, args):
        assert args.handle not in {handle for handle, _ in self.mapped}
        assert args.handle != self.page
        del self.memory[args.handle]

    def available_memory(self, args):
        args.available = 20 << 30

    def create_queue(self, args):
        if len(self.queues) >= self.doorbells:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        args.queue_id, self.next = self.next, self.next + 1
        args.doorbell_offset = 0
        self.queues[args.queue_id] = (args.queue_type, args.ring_size)
        self.asked = {name: getattr(args, name) for name in ("read_pointer_address", "write_pointer_address")}

    def destroy_queue(self, args):
        if self.queues.pop(args.queue_id, None) is None:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    def update_queue(self, args):
        assert args.queue_id in self.queues

    def create_event(self, args):
        if args.event_page_offset:
            assert not self.page
            assert args.event_page_offset in {handle for handle, _ in self.mapped}
            self.page = args.event_page_offset
        assert args.auto_reset
        args.event_id, self.next = self.next, self.next + 1
        self.events[args.event_id] = args.event_type

    def destroy_event(self, args):
        del self.events[args.event_id]

    def set_event(self, args):
        assert self.events[args.event_id] == kfd.KFD_IOC_EVENT_SIGNAL

    def set_memory_policy(self, args):
        assert args.gpu_id == GPU_ID

    def set_trap_handler(self, args):
        assert args.gpu_id == GPU_ID

    def wait_events(self, args):
        row = kfd.kfd_event_data
        there = (ctypes.c_char * (row.SIZE * args.num_events)).from_address(args.events_ptr)
        args.wait_result = kfd.KFD_IOC_WAIT_RESULT_TIMEOUT
        for place in range(args.num_events):
            view = row.view(there, place * row.SIZE)
            assert view.event_id in self.events
            if view.event_id in self.come:
                args.wait_result = kfd.KFD_IOC_WAIT_RESULT_COMPLETE
                self.come.pop(view.event_id)(view)
