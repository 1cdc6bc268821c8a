"""A kernel made of files: sysfs, /proc and /dev in a folder, which react to writes and calls as Linux does.

Written from Linux's ABI/testing/sysfs-bus-pci, driver-api/vfio.rst, vfio.h and iommufd.h.
"""

import ctypes
import errno
import fcntl
import os
from pathlib import Path

import pytest

from ringup.autogen.linux import iommufd, vfio
from ringup.drivers.transport.linux.kernel import Kernel, store

MEM, MEM64_PREFETCH, MEM_ROM = 0x40200, 0x14220C, 0x46200  # flags of `resource`, as read on a desktop with a Radeon
ALLOWED = ((0, 0xFEDFFFFF), (0xFEF00000, (1 << 48) - 1))  # VT-d: all but the window of message-signalled interrupts
REGION = 40  # vfio_pci_core.h, VFIO_PCI_OFFSET_SHIFT


def refuse(code):
    raise OSError(code, os.strerror(code))


class Card:
    """One function: its config space, its BARs' contents, its IRQ events."""

    def __init__(self, address, group, natural):
        self.address, self.group, self.natural = address, group, natural
        self.events = {}  # (index, vector): eventfd
        self.irqs = {vfio.VFIO_PCI_MSI_IRQ_INDEX: 1, vfio.VFIO_PCI_REQ_IRQ_INDEX: 1, vfio.VFIO_PCI_ERR_IRQ_INDEX: 1}
        self.sparse = {}  # BAR: ((offset, size), ...)
        self.unmappable = set()
        self.resets = []
        self.flags = vfio.VFIO_DEVICE_FLAGS_PCI | vfio.VFIO_DEVICE_FLAGS_RESET
        # (group, ...) that a hot reset reaches; None: no hot reset
        self.dependents = None
        self.bars = {}
        self.unmasked = 0


class Machine:
    """The whole machine. `fails` maps the end of a path, or a request number, to an errno."""

    def __init__(self, root):
        self.root = root
        self.kernel = Kernel(root, self.ioctl, self.store)
        self.cards = {}
        self.fails = {}
        self.log = []
        self.maps = {}  # iova: (address, bytes)
        self.container_of, self.iommu_set = {}, False
        self.spaces, self.attached, self.bound_to_iommufd = set(), None, None
        self.ranges = ALLOWED
        for folder in (
            "sys/bus/pci/devices",
            "sys/bus/pci/drivers",
            "proc",
            "run/lock",
            "dev/vfio",
            "sys/class/graphics",
        ):
            (root / folder).mkdir(parents=True)
        for name in ("sys/bus/pci/drivers_probe", "sys/bus/pci/rescan"):
            (root / name).touch()
        self.driver("vfio-pci")
        (root / "dev/vfio/vfio").touch()

    # --- building ---
    def driver(self, name):
        folder = self.root / "sys/bus/pci/drivers" / name
        folder.mkdir(exist_ok=True)
        for file in ("bind", "unbind", "new_id"):
            (folder / file).touch()

    def write(self, path, text):
        path = self.root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def add(
        self,
        address="0000:03:00.0",
        ids=(0x1002, 0x744C),
        code=0x030000,
        group="12",
        driver="",
        bars=None,
        parent="0000:00:01.0",
    ):
        """Plug a card in, below a bridge. `bars`: number: (bytes, flags)."""
        below = self.root / "sys/devices/pci0000:00" / parent
        if not below.is_dir():
            self._function(below, parent, (0x8086, 0x460D), 0x060400, "1", "pcieport", {})
        folder = below / address
        bars = {0: (1 << 20, MEM64_PREFETCH), 2: (4096, MEM64_PREFETCH), 5: (64 << 10, MEM)} if bars is None else bars
        card = self._function(folder, address, ids, code, group, driver, bars)
        self.cards[address] = card
        if driver == "vfio-pci":
            self._nodes(card)
        return card

    def _function(self, folder, address, ids, code, group, driver, bars):
        folder.mkdir(parents=True)
        card = Card(address, group, "" if driver == "vfio-pci" else driver)
        link = self.root / "sys/bus/pci/devices" / address
        link.symlink_to(os.path.relpath(folder, link.parent))
        words = {
            "vendor": f"{ids[0]:#06x}",
            "device": f"{ids[1]:#06x}",
            "class": f"{code:#08x}",
            "enable": "0",
            "power/control": "auto",
        }
        words |= {
            "driver_override": "(null)",
            "power_state": "D0",
            "reset_method": "flr bus",
            "reset": "",
            "remove": "",
            "rescan": "",
            "boot_vga": "0",
        }
        for name, text in words.items():
            self.write(folder / name, text + "\n")
        start, lines, places = 0x60C0000000, [], {}
        for index in range(7):
            size, flags = bars.get(index, (0, 0))
            lines.append(
                f"{start:#018x} {start + size - 1:#018x} {flags:#018x}" if size else f"{0:#018x} {0:#018x} {0:#018x}"
            )
            if size:
                card.bars[index], places[index] = size, start
                with (folder / f"resource{index}").open("wb") as file:
                    file.truncate(size)
                if flags == MEM64_PREFETCH:
                    (folder / f"resource{index}_wc").hardlink_to(folder / f"resource{index}")
                start += max(size, 4096)
        self.write(folder / "resource", "\n".join(lines) + "\n")
        config = bytearray(4096)
        config[0:4] = ids[0].to_bytes(2, "little") + ids[1].to_bytes(2, "little")
        for index, place in places.items():
            config[0x10 + 4 * index : 0x14 + 4 * index] = (place & 0xFFFF_FFFF | 0xC).to_bytes(4, "little")
        (folder / "config").write_bytes(config)
        # the state of the last function after a rescan
        self.fresh = bytes(config)
        if group:
            members = self.root / "sys/kernel/iommu_groups" / group
            (members / "devices").mkdir(parents=True, exist_ok=True)
            self.write(members / "type", "DMA-FQ\n")
            (members / "devices" / address).symlink_to(os.path.relpath(folder, members / "devices"))
            (folder / "iommu_group").symlink_to(os.path.relpath(members, folder))
        if driver:
            self.driver(driver)
            self._bind(folder, driver)
        return card

    def folder(self, address):
        return (self.root / "sys/bus/pci/devices" / address).resolve()

    def driver_of(self, address):
        link = self.folder(address) / "driver"
        return os.readlink(link).rpartition("/")[2] if link.is_symlink() else ""

    def process(self, pid, command, start_time=77, opened=(), mapped=()):
        """Let another process run."""
        folder = self.root / "proc" / str(pid)
        (folder / "fd").mkdir(parents=True)
        fields = " ".join(["S", *("0" for _ in range(18)), str(start_time), "0"])
        self.write(folder / "stat", f"{pid} (a (b) c) {fields}\n")
        self.write(folder / "cmdline", command.replace(" ", "\0") + "\0")
        for number, target in enumerate(opened):
            (folder / "fd" / str(number)).symlink_to(target)
        self.write(
            folder / "maps", "".join(f"7f0000000000-7f0000100000 rw-s 00000000 00:15 3 {path}\n" for path in mapped)
        )

    def iommufd(self):
        """Give the kernel the second VFIO interface, iommufd."""
        (self.root / "dev/iommu").touch()
        (self.root / "dev/vfio/devices").mkdir()
        for number, card in enumerate(self.cards.values()):
            (self.folder(card.address) / "vfio-dev" / f"vfio{number}").mkdir(parents=True)
            self._regions(card, self.root / f"dev/vfio/devices/vfio{number}")

    # --- sysfs ---
    def store(self, path, text):
        self.log.append((str(path.relative_to(self.root)), text))
        self._fail(str(path))
        store(path, text)
        if path.name in ("bind", "unbind") and path.parent.parent.name == "drivers":
            self._hand(path.parent.name, text.strip(), path.name == "bind")
        elif path.name == "drivers_probe":
            self._probe(text.strip())
        elif path.name == "driver_override":
            path.write_text((text.strip() or "(null)") + "\n")
        elif path.name == "remove":
            self.link = self.root / "sys/bus/pci/devices" / path.parent.name
            self.target = os.readlink(self.link)
            self.link.unlink()
        elif path.name == "rescan":
            self.link.symlink_to(self.target)
            (self.folder(self.link.name) / "config").write_bytes(self.fresh)
        elif path.name == "reset":
            self._reset(self.cards[path.parent.name], self.kernel.text(path.parent / "reset_method"))
        elif path.name in ("enable", "reset_method", "control"):
            path.write_text(text + "\n")

    def _fail(self, what):
        for end, code in self.fails.items():
            if isinstance(end, str) and what.endswith(end):
                refuse(code)

    def _hand(self, driver, address, bind):
        now, override = self.driver_of(address), self.kernel.text(self.folder(address) / "driver_override")
        if not bind:
            if now != driver:
                refuse(errno.ENODEV)
            (self.folder(address) / "driver").unlink()
        elif (
            now
            or override not in ("(null)", driver)
            or (override == "(null)" and driver != self.cards[address].natural)
        ):
            refuse(errno.ENODEV)
        else:
            self._bind(self.folder(address), driver)

    def _probe(self, address):
        override = self.kernel.text(self.folder(address) / "driver_override")
        wanted = self.cards[address].natural if override == "(null)" else override
        if (
            not self.driver_of(address)
            and wanted
            and (self.root / "sys/bus/pci/drivers" / wanted).is_dir()
            and wanted not in self.fails
        ):
            self._bind(self.folder(address), wanted)

    def _bind(self, folder, driver):
        (folder / "driver").symlink_to(os.path.relpath(self.root / "sys/bus/pci/drivers" / driver, folder))

    def _reset(self, card, how):
        """A reset clears the header's BARs and its command register."""
        card.resets.append(how)
        for node, start in card.configs() if hasattr(card, "configs") else ((self.folder(card.address) / "config", 0),):
            with Path(node).open("r+b") as file:
                for offset, size in ((0x04, 2), (0x10, 24)):
                    file.seek(start + offset)
                    file.write(bytes(size))

    # --- VFIO ---
    def _nodes(self, card):
        (self.root / "dev/vfio" / card.group).touch()
        self._regions(card, self.root / f"device-{card.address}")

    def _regions(self, card, node):
        with node.open("wb") as file:
            file.truncate((vfio.VFIO_PCI_NUM_REGIONS << REGION) + 4096)
            file.seek(vfio.VFIO_PCI_CONFIG_REGION_INDEX << REGION)
            file.write((self.folder(card.address) / "config").read_bytes())
        card.node = node
        card.configs = lambda: ((node, vfio.VFIO_PCI_CONFIG_REGION_INDEX << REGION),)

    def bar(self, card, index):
        """Return the BAR's bytes as the card sees them."""
        with card.node.open("rb") as file:
            file.seek(index << REGION)
            return file.read(card.bars[index])

    def config(self, card, offset, size=2):
        node, start = card.configs()[0] if hasattr(card, "configs") else (self.folder(card.address) / "config", 0)
        with Path(node).open("rb") as file:
            file.seek(start + offset)
            return int.from_bytes(file.read(size), "little")

    def set_config(self, card, offset, data):
        node, start = card.configs()[0] if hasattr(card, "configs") else (self.folder(card.address) / "config", 0)
        with Path(node).open("r+b") as file:
            file.seek(start + offset)
            file.write(data)

    def interrupt(self, card, index=vfio.VFIO_PCI_MSI_IRQ_INDEX, vector=0):
        os.eventfd_write(card.events[index, vector], 1)

    def reach(self, bus_addr, size):
        """Return where the card's access ends: an address of this process. Raises `LookupError` where the IOMMU stops
        it.
        """
        for iova, (address, length) in self.maps.items():
            if iova <= bus_addr and bus_addr + size <= iova + length:
                return address + bus_addr - iova
        raise LookupError(f"the IOMMU stops {bus_addr:#x}")

    def card_reads(self, bus_addr, size):
        return ctypes.string_at(self.reach(bus_addr, size), size)

    def card_writes(self, bus_addr, data):
        ctypes.memmove(self.reach(bus_addr, len(data)), data, len(data))

    def ioctl(self, node, request, argument):
        if request in self.fails:
            refuse(self.fails[request])
        path = Path(os.readlink(f"/proc/self/fd/{node}"))
        kind = path.relative_to(self.root).parts
        if kind == ("dev", "vfio", "vfio"):
            return self._container(request, argument)
        if kind == ("dev", "iommu"):
            return self._iommu(request, argument)
        if kind[:2] == ("dev", "vfio") and len(kind) == 3:
            return self._group(path.name, request, argument)
        card = next(card for card in self.cards.values() if card.node == path)
        return self._device(card, request, argument)

    def _container(self, request, argument):
        match request:
            case vfio.VFIO_GET_API_VERSION:
                return vfio.VFIO_API_VERSION
            case vfio.VFIO_CHECK_EXTENSION:
                return int(argument == vfio.VFIO_TYPE1v2_IOMMU)
            case vfio.VFIO_SET_IOMMU if self.container_of and not self.iommu_set:
                self.iommu_set = True
                return 0
        if not self.iommu_set:
            refuse(errno.EINVAL)
        match request:
            case vfio.VFIO_IOMMU_GET_INFO:
                return self._iommu_info(argument)
            case vfio.VFIO_IOMMU_MAP_DMA:
                call = vfio.vfio_iommu_type1_dma_map.view(argument)
                return self._map(call.iova, call.vaddr, call.size)
            case vfio.VFIO_IOMMU_UNMAP_DMA:
                call = vfio.vfio_iommu_type1_dma_unmap.view(argument)
                call.size = self._unmap(call.iova, call.size)
                return 0
        return refuse(errno.ENOTTY)

    def _iommu_info(self, argument):
        head, cap, row = vfio.vfio_iommu_type1_info, vfio.vfio_iommu_type1_info_cap_iova_range, vfio.vfio_iova_range
        at = head.SIZE
        need = at + cap.SIZE + len(self.ranges) * row.SIZE
        info = head.view(argument)
        info.flags, info.iova_pgsizes = vfio.VFIO_IOMMU_INFO_PGSIZES | vfio.VFIO_IOMMU_INFO_CAPS, 0x40201000
        if info.argsz < need:
            info.argsz, info.cap_offset = need, 0
            return 0
        info.cap_offset = at
        table = cap.view(argument, at)
        table.header.id, table.header.version, table.header.next = vfio.VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE, 1, 0
        table.nr_iovas = len(self.ranges)
        for index, (start, end) in enumerate(self.ranges):
            place = row.view(argument, at + cap.SIZE + index * row.SIZE)
            place.start, place.end = start, end
        return 0

    def _map(self, iova, address, size):
        if (
            (iova | address | size) % 4096
            or not size
            or not any(low <= iova and iova + size - 1 <= high for low, high in self.ranges)
        ):
            refuse(errno.EINVAL)
        if any(iova < other + length and other < iova + size for other, (_, length) in self.maps.items()):
            refuse(errno.EEXIST)
        self.maps[iova] = (address, size)
        return 0

    def _unmap(self, iova, size):
        if self.maps.get(iova, (0, 0))[1] != size:
            return 0
        del self.maps[iova]
        return size

    def _group(self, group, request, argument):
        members = [card for card in self.cards.values() if card.group == group]
        match request:
            case vfio.VFIO_GROUP_GET_STATUS:
                viable = all(self.driver_of(card.address) in ("", "vfio-pci", "pcieport") for card in members)
                vfio.vfio_group_status.view(argument).flags = vfio.VFIO_GROUP_FLAGS_VIABLE if viable else 0
                return 0
            case vfio.VFIO_GROUP_SET_CONTAINER:
                container = int.from_bytes(argument, "little")
                if not os.readlink(f"/proc/self/fd/{container}").endswith("dev/vfio/vfio"):
                    refuse(errno.EINVAL)
                self.container_of[group] = container
                # The container was just made.
                self.iommu_set = False
                return 0
            case vfio.VFIO_GROUP_GET_DEVICE_FD:
                address = bytes(argument).partition(b"\0")[0].decode()
                if group not in self.container_of or not self.iommu_set:
                    refuse(errno.EINVAL)
                card = next((card for card in members if card.address == address), None)
                return os.open(card.node, os.O_RDWR) if card else refuse(errno.ENODEV)
        return refuse(errno.ENOTTY)

    def _iommu(self, request, argument):
        match request:
            case iommufd.IOMMU_IOAS_ALLOC:
                call = iommufd.iommu_ioas_alloc.view(argument)
                call.out_ioas_id = 3 + len(self.spaces)
                self.spaces.add(call.out_ioas_id)
                return 0
            case iommufd.IOMMU_IOAS_IOVA_RANGES:
                call = iommufd.iommu_ioas_iova_ranges.view(argument)
                self._known(call.ioas_id)
                room, call.num_iovas = call.num_iovas, len(self.ranges)
                for index, (start, last) in enumerate(self.ranges[:room]):
                    ctypes.memmove(call.allowed_iovas + index * 16, iommufd.iommu_iova_range.pack(start, last), 16)
                return 0 if room >= len(self.ranges) else refuse(errno.EMSGSIZE)
            case iommufd.IOMMU_IOAS_MAP:
                call = iommufd.iommu_ioas_map.view(argument)
                self._known(call.ioas_id)
                wanted = (
                    iommufd.IOMMU_IOAS_MAP_FIXED_IOVA
                    | iommufd.IOMMU_IOAS_MAP_READABLE
                    | iommufd.IOMMU_IOAS_MAP_WRITEABLE
                )
                assert call.flags == wanted
                return self._map(call.iova, call.user_va, call.length)
            case iommufd.IOMMU_IOAS_UNMAP:
                call = iommufd.iommu_ioas_unmap.view(argument)
                self._known(call.ioas_id)
                return 0 if self._unmap(call.iova, call.length) else refuse(errno.ENOENT)
        return refuse(errno.ENOTTY)

    def _known(self, space):
        if space not in self.spaces:
            refuse(errno.ENOENT)

    def _device(self, card, request, argument):
        match request:
            case vfio.VFIO_DEVICE_BIND_IOMMUFD:
                call = vfio.vfio_device_bind_iommufd.view(argument)
                assert os.readlink(f"/proc/self/fd/{call.iommufd}").endswith("dev/iommu")
                self.bound_to_iommufd, call.out_devid = card, 1
                return 0
            case vfio.VFIO_DEVICE_ATTACH_IOMMUFD_PT:
                call = vfio.vfio_device_attach_iommufd_pt.view(argument)
                self._known(call.pt_id)
                if self.bound_to_iommufd is not card:
                    refuse(errno.EINVAL)
                self.attached = call.pt_id
                return 0
            case vfio.VFIO_DEVICE_GET_INFO:
                info = vfio.vfio_device_info.view(argument)
                info.flags, info.num_regions, info.num_irqs = (
                    card.flags,
                    vfio.VFIO_PCI_NUM_REGIONS,
                    vfio.VFIO_PCI_NUM_IRQS,
                )
                return 0
            case vfio.VFIO_DEVICE_GET_REGION_INFO:
                return self._region_info(card, argument)
            case vfio.VFIO_DEVICE_GET_IRQ_INFO:
                info = vfio.vfio_irq_info.view(argument)
                info.count = card.irqs.get(info.index, 0)
                info.flags = vfio.VFIO_IRQ_INFO_EVENTFD
                if info.index == vfio.VFIO_PCI_INTX_IRQ_INDEX:
                    info.flags |= vfio.VFIO_IRQ_INFO_MASKABLE | vfio.VFIO_IRQ_INFO_AUTOMASKED
                return 0
            case vfio.VFIO_DEVICE_SET_IRQS:
                return self._set_irqs(card, argument)
            case vfio.VFIO_DEVICE_RESET:
                self._reset(card, "function")
                return 0
            case vfio.VFIO_DEVICE_GET_PCI_HOT_RESET_INFO:
                return self._hot_reset_info(card, argument)
            case vfio.VFIO_DEVICE_PCI_HOT_RESET:
                return self._hot_reset(card, argument)
        return refuse(errno.ENOTTY)

    def _region_info(self, card, argument):
        info = vfio.vfio_region_info.view(argument)
        sizes = {**card.bars, vfio.VFIO_PCI_CONFIG_REGION_INDEX: 4096}
        info.offset, info.size = info.index << REGION, sizes.get(info.index, 0)
        readable = vfio.VFIO_REGION_INFO_FLAG_READ | vfio.VFIO_REGION_INFO_FLAG_WRITE
        mappable = info.index in card.bars and info.index < 6 and info.index not in card.unmappable
        info.flags = readable | (vfio.VFIO_REGION_INFO_FLAG_MMAP if mappable else 0)
        areas = card.sparse.get(info.index)
        if areas is None:
            return 0
        cap, row = vfio.vfio_region_info_cap_sparse_mmap, vfio.vfio_region_sparse_mmap_area
        at = vfio.vfio_region_info.SIZE
        info.flags |= vfio.VFIO_REGION_INFO_FLAG_CAPS
        need = at + cap.SIZE + len(areas) * row.SIZE
        if info.argsz < need:
            info.argsz, info.cap_offset = need, 0
            return 0
        info.cap_offset = at
        table = cap.view(argument, at)
        table.header.id, table.header.version, table.nr_areas = vfio.VFIO_REGION_INFO_CAP_SPARSE_MMAP, 1, len(areas)
        for index, (offset, size) in enumerate(areas):
            place = row.view(argument, at + cap.SIZE + index * row.SIZE)
            place.offset, place.size = offset, size
        return 0

    def _set_irqs(self, card, argument):
        call = vfio.vfio_irq_set.view(argument)
        data = bytes(argument)[vfio.vfio_irq_set.SIZE : call.argsz]
        if call.start + call.count > card.irqs.get(call.index, 0):
            refuse(errno.EINVAL)
        if call.flags & vfio.VFIO_IRQ_SET_ACTION_UNMASK:
            card.unmasked += 1
        elif call.flags & vfio.VFIO_IRQ_SET_DATA_EVENTFD:
            assert len(data) == 4 * call.count
            for vector in range(call.count):
                event = int.from_bytes(data[4 * vector : 4 * vector + 4], "little")
                card.events[call.index, call.start + vector] = fcntl.fcntl(event, fcntl.F_DUPFD_CLOEXEC, 0)
        elif call.count == 0:
            for key in [key for key in card.events if key[0] == call.index]:
                os.close(card.events.pop(key))
        return 0

    def _hot_reset_info(self, card, argument):
        if card.dependents is None:
            refuse(errno.ENODEV)
        head, row = vfio.vfio_pci_hot_reset_info, vfio.vfio_pci_dependent_device
        info = head.view(argument)
        room, info.count = (info.argsz - head.SIZE) // row.SIZE, len(card.dependents)
        through_iommufd = self.bound_to_iommufd is card
        owned = all(group == card.group for group in card.dependents)
        if through_iommufd:
            info.flags = vfio.VFIO_PCI_HOT_RESET_FLAG_DEV_ID | (
                vfio.VFIO_PCI_HOT_RESET_FLAG_DEV_ID_OWNED if owned else 0
            )
        if room < len(card.dependents):
            refuse(errno.ENOSPC)
        for index, group in enumerate(card.dependents):
            place = row.view(argument, head.SIZE + index * row.SIZE)
            place.group_id, place.bus, place.devfn = (index if through_iommufd else int(group)), 3, index
        return 0

    def _hot_reset(self, card, argument):
        call = vfio.vfio_pci_hot_reset.view(argument)
        data = bytes(argument)[vfio.vfio_pci_hot_reset.SIZE :]
        nodes = [int.from_bytes(data[4 * index : 4 * index + 4], "little") for index in range(call.count)]
        groups = {Path(os.readlink(f"/proc/self/fd/{node}")).name for node in nodes}
        if groups != (set() if self.bound_to_iommufd is card else set(card.dependents)):
            refuse(errno.EINVAL)
        self._reset(card, "slot")
        return 0


@pytest.fixture
def machine(tmp_path):
    made = Machine(tmp_path)
    yield made
    for card in made.cards.values():
        for event in card.events.values():
            os.close(event)
