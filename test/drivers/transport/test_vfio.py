"""Both of VFIO's interfaces over a kernel of files: what the card can access, which events arrive, what is refused."""

import errno
import gc
import mmap
import os
import resource

import pytest

from ringup.autogen.linux import iommufd, vfio
from ringup.autogen.linux import pci as regs
from ringup.drivers.transport.config_space import NodeConfig
from ringup.drivers.transport.linux import pci
from ringup.drivers.transport.seam import Device
from ringup.errors import (
    CardBusy,
    DeviceLost,
    LinkDown,
    NotSupported,
    OutOfMemory,
    PermissionNeeded,
    RingupError,
    TransportError,
)

ADDRESS = "0000:03:00.0"


@pytest.fixture(params=["group", "iommufd"])
def held(request, machine):
    """A machine with a card on VFIO, and the interface it offers."""
    machine.card = machine.add(driver="vfio-pci")
    if request.param == "iommufd":
        machine.iommufd()
    machine.interface = request.param
    return machine


@pytest.fixture
def device(held):
    device = pci.open(ADDRESS, kernel=held.kernel)
    yield device
    device.close()


def test_the_interface_is_the_newest_that_the_kernel_has(held, device):
    assert device.path == f"vfio ({held.interface})"
    assert device.name == "pci:0000:03:00.0"
    # It has everything that the seam requires.
    assert isinstance(device, Device)


def test_opening_decodes_memory_and_lets_the_card_write_nowhere(held):
    held.set_config(held.card, regs.PCI_COMMAND, (regs.PCI_COMMAND_MASTER).to_bytes(2, "little"))
    device = pci.open(ADDRESS, kernel=held.kernel)
    assert held.config(held.card, regs.PCI_COMMAND) == regs.PCI_COMMAND_MEMORY
    device.config.write(regs.PCI_COMMAND, regs.PCI_COMMAND_MEMORY | regs.PCI_COMMAND_MASTER, 2)
    assert held.config(held.card, regs.PCI_COMMAND) & regs.PCI_COMMAND_MASTER
    device.close()
    device.close()
    assert not held.config(held.card, regs.PCI_COMMAND) & regs.PCI_COMMAND_MASTER


def test_a_card_that_a_killed_process_left_running_writes_nothing_from_the_first_change_on(held, monkeypatch):
    """Its windows, too, are mapped only after that has ended."""
    held.set_config(held.card, regs.PCI_COMMAND, (regs.PCI_COMMAND_MASTER).to_bytes(2, "little"))
    write, seen = NodeConfig.write, []

    def watched(self, offset, value, size_bytes=4):
        write(self, offset, value, size_bytes)
        seen.append(held.config(held.card, regs.PCI_COMMAND))

    monkeypatch.setattr(NodeConfig, "write", watched)
    pci.open(ADDRESS, kernel=held.kernel).close()
    assert seen
    assert not any(command & regs.PCI_COMMAND_MASTER for command in seen)


def test_memory_goes_when_the_card_no_longer_writes_and_has_answered_since(held, monkeypatch):
    """A completion pushes what the card sent before it. Source: PCI Express base specification 4.0, table 2-39."""
    device = pci.open(ADDRESS, kernel=held.kernel)
    device.config.write(regs.PCI_COMMAND, regs.PCI_COMMAND_MEMORY | regs.PCI_COMMAND_MASTER, 2)
    device.alloc_host(4096)
    read, write, unmap, events = NodeConfig.read, NodeConfig.write, held._unmap, []

    def watched_read(self, *args):
        events.append("read")
        return read(self, *args)

    def watched_write(self, *args):
        write(self, *args)
        events.append("on" if held.config(held.card, regs.PCI_COMMAND) & regs.PCI_COMMAND_MASTER else "off")

    def watched_unmap(iova, size):
        events.append("unmap")
        return unmap(iova, size)

    monkeypatch.setattr(NodeConfig, "read", watched_read)
    monkeypatch.setattr(NodeConfig, "write", watched_write)
    monkeypatch.setattr(held, "_unmap", watched_unmap)
    device.close()
    assert events[:4] == ["read", "off", "read", "unmap"]


def test_bars_are_the_cards(held, device):
    assert {index: bar.size_bytes for index, bar in device.bars.items()} == {0: 1 << 20, 2: 4096, 5: 64 << 10}
    device.bars[5].write32(0x40, 0x11223344)
    device.bars[0].map()[0x1000:0x1004] = b"vram"
    assert held.bar(held.card, 5)[0x40:0x44] == bytes.fromhex("44332211")
    assert held.bar(held.card, 0)[0x1000:0x1004] == b"vram"
    with pytest.raises(NotSupported, match=r"BAR 5 .* no plain memory"):
        device.bars[5].map()


def test_a_bar_mapped_in_pieces_reaches_the_gaps_too(held):
    """Kernels before 4.16 provide a BAR with an MSI-X table this way: the table's page cannot be mapped."""
    held.card.sparse = {5: ((0x3000, 0xD000), (0, 0x2000))}
    device = pci.open(ADDRESS, kernel=held.kernel)
    bar = device.bars[5]
    for offset in (0x1FFC, 0x2000, 0x2FFC, 0x3000, 0xFFFC):
        bar.write32(offset, offset | 1)
    # The block crosses the page's edge.
    bar.write_block(0x1FF8, bytes(range(1, 21)))
    seen = held.bar(held.card, 5)
    assert seen[0x1FF8:0x200C] == bytes(range(1, 21))
    for offset in (0x2FFC, 0x3000, 0xFFFC):
        assert int.from_bytes(seen[offset : offset + 4], "little") == offset | 1
        assert bar.read32(offset) == offset | 1
    assert bar.read_block(0x1FF8, 20) == bytes(range(1, 21))
    with pytest.raises(NotSupported, match="in pieces"):
        bar.map()
    device.close()


def test_a_bar_that_cannot_be_mapped_is_reached_by_calls(held):
    held.card.unmappable = {2}
    device = pci.open(ADDRESS, kernel=held.kernel)
    device.bars[2].write64(8, 0x1122334455667788)
    assert held.bar(held.card, 2)[8:16] == bytes.fromhex("8877665544332211")
    assert device.bars[2].read64(8) == 0x1122334455667788
    device.close()


def test_host_memory_is_the_same_bytes_for_card_and_host(held, device):
    memory = device.alloc_host(10_000)
    assert memory.size_bytes == 12288
    assert memory.contiguous
    assert memory.coherent
    assert bytes(memory.view) == bytes(12288)
    held.card_writes(memory.bus_addr(5000), b"from the card")
    assert memory.view[5000:5013] == b"from the card"
    memory.view[12280:] = b"the host"
    assert held.card_reads(memory.bus_addr(12280), 8) == b"the host"


def test_the_iommu_maps_another_cards_bar(held, device):
    held.add("0000:04:00.0", group="13", driver="vfio-pci", parent="0000:00:02.0")
    other = pci.open("0000:04:00.0", kernel=held.kernel)
    if held.interface == "iommufd":
        # Linux pages.c: it pins pages of memory alone, and a BAR has none
        held.fails = {iommufd.IOMMU_IOAS_MAP: errno.EFAULT}
        with pytest.raises(NotSupported, match=r"maps no memory of another card .* over vfio \(iommufd\)"):
            device.reach(other, 0, 0x3000, 0x2000)
        other.close()
        return
    memory = device.reach(other, 0, 0x3000, 0x2000)
    held.card_writes(memory.bus_addr(0x10), b"peer")
    assert bytes(other.bars[0].map()[0x3010:0x3014]) == b"peer"
    where = memory.bus_addr()
    memory.free()
    with pytest.raises(LookupError):
        held.card_reads(where, 4)
    other.close()


def test_freed_memory_is_out_of_the_cards_reach(held, device):
    memory = device.alloc_host(4096)
    where = memory.bus_addr()
    memory.free()
    memory.free()
    with pytest.raises(LookupError):
        held.card_reads(where, 4)
    with pytest.raises(ValueError, match="after it was freed"):
        memory.bus_addr()


def test_closing_takes_all_memory_from_the_card(held):
    device = pci.open(ADDRESS, kernel=held.kernel)
    device.alloc_host(4096)
    # The caller still holds a view of it.
    kept = device.alloc_host(8192).view
    device.close()
    assert held.maps == {}
    del kept


def open_nodes():
    """Return how many files this process has open, after a garbage collection of what earlier tests left."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def test_ten_thousand_buffers_leave_nothing_behind(held):
    device = pci.open(ADDRESS, kernel=held.kernel)
    nodes = open_nodes()
    for _ in range(10_000):
        memory = device.alloc_host(4096)
        memory.free()
    assert memory.size_bytes == 4096
    assert len(device._memory) < 200
    assert device.alloc_host(4096).bus_addr() == 1 << 20
    assert open_nodes() <= nodes
    device.close()


def test_large_memory_is_aligned_to_a_large_page(held, device):
    device.alloc_host(4096)
    assert device.alloc_host(4 << 20).bus_addr() % (2 << 20) == 0


def test_addresses_avoid_the_windows_of_bridges(held):
    """A bridge's window inside the range that the IOMMU offers: an access to it never reaches the IOMMU."""
    window = 0x60_B000_0000, 0x60_CFFF_FFFF
    bridge = held.folder("0000:00:01.0") / "resource"
    held.write(bridge, held.kernel.text(bridge) + f"\n{window[0]:#018x} {window[1]:#018x} 0x0000000000102201\n")
    held.ranges = ((window[0] - 0x2000, window[1] + 0x10_0000),)
    device = pci.open(ADDRESS, kernel=held.kernel)
    taken = [device.alloc_host(4096).bus_addr() for _ in range(4)]
    assert taken == [window[0] - 0x2000, window[0] - 0x1000, window[1] + 1, window[1] + 0x1001]
    device.close()


def test_addresses_avoid_the_cards_own_bars(held):
    """The fake's BARs begin at 0x60c0000000: 1 MiB, 4 KiB, 64 KiB."""
    held.ranges = ((0x60_BFFF_F000, 0x60_D000_0000 - 1),)
    device = pci.open(ADDRESS, kernel=held.kernel)
    taken = [device.alloc_host(4096).bus_addr() for _ in range(2)]
    assert taken == [0x60_BFFF_F000, 0x60_C000_0000 + (1 << 20) + 4096 + (64 << 10)]
    device.close()


def test_many_ranges_of_the_iommu_are_all_read(held):
    held.ranges = tuple((index << 24, (index << 24) + 0xFFF) for index in range(1, 1000))
    device = pci.open(ADDRESS, kernel=held.kernel)
    assert [device.alloc_host(4096).bus_addr() for _ in range(999)] == [index << 24 for index in range(1, 1000)]
    with pytest.raises(OutOfMemory, match="0x1000 bytes asked, 0x0 free"):
        device.alloc_host(4096)
    device.close()


def test_a_callers_pages_are_reached_where_they_are(held, device):
    pages = mmap.mmap(-1, 16384)
    pinned = device.pin(memoryview(pages))
    held.card_writes(pinned.bus_addr(8000), b"seen")
    assert pages[8000:8004] == b"seen"
    pinned.free()
    # Nothing holds it any more.
    pages.close()
    assert held.maps == {}


@pytest.mark.parametrize(
    ("buffer", "why"),
    [
        (memoryview(bytearray(100)), "whole pages"),
        (memoryview(mmap.mmap(-1, 8192))[1:4097], "whole pages"),
        (memoryview(bytes(4096)), "writable"),
        (memoryview(mmap.mmap(-1, 8192))[::2], "contiguous"),
    ],
)
def test_memory_that_cannot_be_pinned_says_why(device, buffer, why):
    with pytest.raises(ValueError, match=why):
        device.pin(buffer)


def test_the_limit_of_locked_memory_is_named(held, device):
    held.fails = {vfio.VFIO_IOMMU_MAP_DMA: errno.ENOMEM, iommufd.IOMMU_IOAS_MAP: errno.ENOMEM}
    with pytest.raises(OutOfMemory, match=r"mapping 4096 bytes for the card: Cannot allocate memory; .*ulimit -l"):
        device.alloc_host(4096)
    held.fails = {}
    # The address was given back.
    assert device.alloc_host(4096).bus_addr() == 1 << 20


def test_interrupts_come_as_events_and_only_when_asked_for(held, device):
    assert held.card.events.keys() == {(vfio.VFIO_PCI_REQ_IRQ_INDEX, 0), (vfio.VFIO_PCI_ERR_IRQ_INDEX, 0)}
    assert device.interrupts.wait(0) == ()
    held.interrupt(held.card)
    assert device.interrupts.wait(1_000_000) == (0,)
    assert device.interrupts.wait(0) == ()
    device.close()
    assert not [key for key in held.card.events if key[0] == vfio.VFIO_PCI_MSI_IRQ_INDEX]


def test_msi_x_is_preferred_and_its_vectors_are_distinguished(held):
    held.card.irqs |= {vfio.VFIO_PCI_MSIX_IRQ_INDEX: 4, vfio.VFIO_PCI_INTX_IRQ_INDEX: 1}
    device = pci.open(ADDRESS, kernel=held.kernel)
    device.interrupts.wait(0)
    for vector in (3, 1):
        held.interrupt(held.card, vfio.VFIO_PCI_MSIX_IRQ_INDEX, vector)
    assert device.interrupts.wait(1_000_000) == (1, 3)
    device.close()


def test_a_level_interrupt_is_let_through_again(held):
    held.card.irqs = {vfio.VFIO_PCI_INTX_IRQ_INDEX: 1}
    device = pci.open(ADDRESS, kernel=held.kernel)
    device.interrupts.wait(0)
    for count in (1, 2):
        held.interrupt(held.card, vfio.VFIO_PCI_INTX_IRQ_INDEX)
        assert device.interrupts.wait(1_000_000) == (0,)
        assert held.card.unmasked == count
    device.close()


@pytest.mark.parametrize("timeout_us", [100, 3000])
def test_a_wait_without_interrupts_ends_in_time(device, timeout_us):
    device.interrupts.wait(0)
    started = device.clock.now_us
    assert device.interrupts.wait(timeout_us) == ()
    assert timeout_us <= device.clock.now_us - started < 1_000_000


def test_interrupts_come_to_a_process_with_many_open_files(held, tmp_path):
    """select(2) does not support descriptors from 1024 on."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    files = [os.open(tmp_path, os.O_RDONLY) for _ in range(1024)]
    device = pci.open(ADDRESS, kernel=held.kernel)
    device.interrupts.wait(0)
    held.interrupt(held.card)
    assert device.interrupts.wait(1_000_000) == (0,)
    device.close()
    for file in files:
        os.close(file)


@pytest.mark.parametrize(
    "index", [vfio.VFIO_PCI_REQ_IRQ_INDEX, vfio.VFIO_PCI_ERR_IRQ_INDEX], ids=["wanted back", "link error"]
)
def test_the_kernels_notice_means_lost_for_good(held, device, index):
    assert not device.lost
    held.interrupt(held.card, index)
    assert device.lost
    assert device.lost


def test_a_class_of_all_ones_means_lost_for_good(held, device):
    # The ids come from the kernel's memory.
    held.set_config(held.card, 8, b"\xff" * 4)
    assert device.lost
    held.set_config(held.card, 8, b"\xc8\x00\x00\x03")
    assert device.lost


def test_a_dead_card_is_not_opened_and_all_is_let_go(held):
    held.set_config(held.card, 8, b"\xff" * 4)
    with pytest.raises(DeviceLost, match=r"opening pci:0000:03:00\.0: its class and revision read 0xffffffff"):
        pci.open(ADDRESS, kernel=held.kernel)
    held.set_config(held.card, 8, b"\xc8\x00\x00\x03")
    pci.open(ADDRESS, kernel=held.kernel).close()


@pytest.mark.parametrize("method", ["function", "slot"])
def test_a_reset_puts_the_header_back(held, method):
    held.card.dependents = (held.card.group, held.card.group)
    device = pci.open(ADDRESS, kernel=held.kernel)
    assert device.resets() == ("function", "slot")
    device.config.write(regs.PCI_COMMAND, regs.PCI_COMMAND_MEMORY | regs.PCI_COMMAND_MASTER, 2)
    before = [held.config(held.card, offset, 4) for offset in range(0x10, 0x28, 4)]
    device.reset(method)
    assert held.card.resets == [method]
    assert [held.config(held.card, offset, 4) for offset in range(0x10, 0x28, 4)] == before
    assert held.config(held.card, regs.PCI_COMMAND) == regs.PCI_COMMAND_MEMORY | regs.PCI_COMMAND_MASTER
    device.close()


@pytest.mark.parametrize(
    ("dependents", "flags", "methods", "offered"),
    [
        (None, 3, "flr", ("function",)),
        (("12", "13"), 3, "flr", ("function",)),  # the reset would reach a card that is not ours
        (("12",), 3, "bus", ("slot",)),  # the kernel would reset the function by resetting the bus
        (("12",), 2, "", ("slot",)),
        (None, 2, "", ()),
    ],
)
def test_only_resets_that_reach_no_other_device_are_offered(held, dependents, flags, methods, offered):
    held.card.dependents, held.card.flags = dependents, flags
    held.write(held.folder(ADDRESS) / "reset_method", methods)
    device = pci.open(ADDRESS, kernel=held.kernel)
    assert device.resets() == offered
    with pytest.raises(ValueError, match="has no reset 'mode-1'"):
        device.reset("mode-1")
    assert held.card.resets == []
    device.close()


def test_a_slot_that_does_not_come_back_is_a_link_that_is_down(held):
    held.card.dependents = ("12",)
    device = pci.open(ADDRESS, kernel=held.kernel)
    held.fails = {vfio.VFIO_DEVICE_PCI_HOT_RESET: errno.ENOTTY}
    with pytest.raises(LinkDown, match="did not train again"):
        device.reset("slot")
    device.close()


CALLS = {
    "group": [
        "GET_API_VERSION",
        "CHECK_EXTENSION",
        "GROUP_GET_STATUS",
        "GROUP_SET_CONTAINER",
        "SET_IOMMU",
        "GROUP_GET_DEVICE_FD",
    ],
    "iommufd": ["DEVICE_BIND_IOMMUFD", "DEVICE_ATTACH_IOMMUFD_PT"],
    "both": ["DEVICE_GET_INFO", "DEVICE_GET_REGION_INFO", "DEVICE_SET_IRQS"],
}


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (errno.EPERM, PermissionNeeded),
        (errno.EBUSY, CardBusy),
        (errno.ENOTTY, NotSupported),
        (errno.EIO, TransportError),
    ],
)
def test_every_refused_call_is_named_and_leaves_nothing_open(held, code, error):
    nodes = len(os.listdir("/proc/self/fd"))
    for name in CALLS[held.interface] + CALLS["both"]:
        held.fails = {getattr(vfio, f"VFIO_{name}"): code}
        # Linux 6.12 answers this way.
        expected = CardBusy if (name, code) == ("DEVICE_BIND_IOMMUFD", errno.EPERM) else error
        with pytest.raises(expected, match=r"opening pci:0000:03:00\.0|notices") as caught:
            pci.open(ADDRESS, kernel=held.kernel)
        assert os.strerror(code) in str(caught.value)
        del caught
        assert len(os.listdir("/proc/self/fd")) == nodes
    held.fails = {}
    pci.open(ADDRESS, kernel=held.kernel).close()
    # these are the fake's own; a kernel closes them with the node
    assert len(os.listdir("/proc/self/fd")) == nodes + len(held.card.events)


def test_a_group_with_a_mate_of_the_kernels_is_refused_by_name(machine):
    machine.add(driver="vfio-pci")
    machine.add("0000:03:00.1", ids=(0x1002, 0xAB30), code=0x040300, driver="snd_hda_intel")
    with pytest.raises(
        CardBusy, match=r"group 12 is not viable: 0000:03:00\.1 belongs to snd_hda_intel; `ringup bind 0000:03:00\.0`"
    ):
        pci.open(ADDRESS, kernel=machine.kernel)


def test_a_capability_chain_that_runs_in_circles_ends(held):
    """A kernel does not produce such a chain, but a forwarded kernel node may. The driver follows it forward only."""
    from ringup.drivers.transport.linux.vfio_group import capabilities

    reply = bytearray(64)
    for at, (kind, after) in {16: (1, 32), 32: (2, 16)}.items():
        reply[at : at + 8] = vfio.vfio_info_cap_header.pack(kind, 1, after)
    assert list(capabilities(reply, 16, 2)) == [32]
    reply[32:40] = vfio.vfio_info_cap_header.pack(2, 1, 1 << 20)
    assert list(capabilities(reply, 16, 2)) == [32]
    assert list(capabilities(reply, 60, 2)) == []


def test_our_errors_reach_the_caller_from_every_call(held):
    held.fails = {vfio.VFIO_DEVICE_GET_INFO: errno.ENODEV}
    with pytest.raises(RingupError, match="No such device"):
        pci.open(ADDRESS, kernel=held.kernel)
