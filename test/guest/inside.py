"""What runs in the guest, as root, on a real kernel: sysfs first, then VFIO, then back. The tests build on each other,
in this order.

The cards: edu (slot 1; DMA, MSI); edu and ivshmem in one slot and so in one IOMMU group; virtio-rng with a kernel
driver, function reset and MSI-X. Source for edu: QEMU docs/specs/edu.rst. It moves 4 KiB at most, from or to its own
buffer at 0x40000.
"""

import contextlib
import mmap
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ringup.autogen.linux import pci as regs
from ringup.drivers.transport.linux import bind, pci, preflight
from ringup.drivers.transport.linux.function import Function
from ringup.drivers.transport.linux.kernel import Kernel
from ringup.drivers.transport.linux.physical import MOVERS
from ringup.drivers.transport.linux.sysfs import stale
from ringup.errors import CardBusy, LinkDown, NotSupported, PermissionNeeded
from ringup.tools.command_line import cli

KERNEL = Kernel()
EDU_ID = 0x010000ED
ID, LIVENESS, FACTORIAL, STATUS, IRQ_STATUS, IRQ_RAISE, IRQ_ACK = 0x00, 0x04, 0x08, 0x20, 0x24, 0x60, 0x64
DMA_SRC, DMA_DST, DMA_COUNT, DMA_COMMAND = 0x80, 0x88, 0x90, 0x98
START, TO_RAM, WITH_IRQ = 1, 2, 4
OWN = 0x40000
INTERFACE = "vfio (iommufd)" if KERNEL.path("dev/iommu").exists() else "vfio (group)"
BEGIN, END = 0x600D_0001, 0x600D_0002
MEMORY = 0x05  # the base class of the memory shared with the host


def functions(vendor, device):
    names = KERNEL.names(KERNEL.path("sys/bus/pci/devices"))
    found = [Function(KERNEL, name) for name in names]
    return [function for function in found if (function.vendor, function.device) == (vendor, device)]


@pytest.fixture(scope="module")
def edu():
    return functions(0x1234, 0x11E8)[0]


@pytest.fixture(scope="module")
def crowded():
    return functions(0x1234, 0x11E8)[1]


@pytest.fixture(scope="module")
def shared():
    """Memory that the host shares, used as if it were a GPU: in this test, functions of its class may be opened."""
    graphics = Function.graphics.fget
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Function, "graphics", property(lambda one: one.base_class == MEMORY or graphics(one)))
        yield functions(0x1AF4, 0x1110)[0]


@pytest.fixture(scope="module")
def rng():
    return functions(0x1AF4, 0x1044)[0]


def move(device, src, dst, count, command):
    """Run edu's DMA engine to its end."""
    bar = device.bars[0]
    for offset, value in ((DMA_SRC, src), (DMA_DST, dst), (DMA_COUNT, count), (DMA_COMMAND, command | START)):
        bar.write64(offset, value)
    end = device.clock.now_us + 5_000_000
    while bar.read64(DMA_COMMAND) & START:
        assert device.clock.now_us < end
        device.clock.sleep_us(10_000)


def round_trip(device, memory, offset):
    """Send bytes from RAM through the card's own buffer back to RAM, and check them in the host's memory."""
    pattern = bytes(os.urandom(256))
    device.config.write(regs.PCI_COMMAND, device.config.read(regs.PCI_COMMAND, 2) | regs.PCI_COMMAND_MASTER, 2)
    memory.view[offset : offset + 256] = pattern
    move(device, memory.bus_addr(offset), OWN, 256, 0)
    memory.view[offset : offset + 256] = bytes(256)
    move(device, OWN, memory.bus_addr(offset), 256, TO_RAM)
    assert memory.view[offset : offset + 256] == pattern


def run(*words):
    return cli.main(list(words))


def test_sysfs_is_refused_while_the_iommu_translates(edu):
    assert edu.driver == ""
    assert edu.group_type in ("DMA", "DMA-FQ")
    with pytest.raises(NotSupported, match=r"IOMMU: group \d+ translates"):
        pci.open(edu.address)
    KERNEL.write(edu.path / "iommu_group/type", "identity", "letting physical addresses through")
    assert edu.group_type == "identity"


def test_sysfs_registers_config_and_single_accesses(edu):
    device = pci.open(edu.address)
    try:
        assert device.path == "sysfs"
        assert device.config.read(regs.PCI_VENDOR_ID, 2) == 0x1234
        command = device.config.read(regs.PCI_COMMAND, 2)
        assert command & regs.PCI_COMMAND_MEMORY
        assert not command & regs.PCI_COMMAND_MASTER
        bar = device.bars[0]
        assert bar.size_bytes == 1 << 20
        bar.write32(LIVENESS, BEGIN)
        assert bar.read32(ID) == EDU_ID
        bar.write32(FACTORIAL, 5)
        bar.read32(STATUS)
        bar.write64(DMA_SRC, 0x1122_3344_5566)
        assert bar.read64(DMA_SRC) == 0x1122_3344_5566
        bar.write_block(DMA_DST, (7).to_bytes(8, "little") + (9).to_bytes(8, "little"))
        assert bar.read_block(DMA_SRC, 16) == (0x1122_3344_5566).to_bytes(8, "little") + (7).to_bytes(8, "little")
        bar.write32(LIVENESS, END)
        assert bar.read32(LIVENESS) == ~END & 0xFFFF_FFFF
        while bar.read32(STATUS) & 1:
            device.clock.sleep_us(1000)
        assert bar.read32(FACTORIAL) == 120
        with pytest.raises(NotSupported, match="no plain memory"):
            bar.map()
        assert device.interrupts.wait(1000) == ()
    finally:
        device.close()
    assert KERNEL.text(edu.path / "enable") == "0"


@pytest.mark.parametrize("size", [4096, 64 << 10, 4 << 20], ids=["a page", "64 KiB", "4 MiB"])
def test_sysfs_memory_is_at_the_address_given_to_the_card(edu, size):
    device = pci.open(edu.address, path="sysfs")
    try:
        memory = device.alloc_host(size)
        assert bytes(memory.view) == bytes(size)
        assert sum(length for _, length in memory.runs()) == size
        assert all(start % 4096 == 0 for start, _ in memory.runs())
        # One of the eight 2 MiB pages that the kernel reserved.
        if size > 4096:
            assert len(list(memory.runs())) <= -(-size // (2 << 20))
        round_trip(device, memory, 0)
        round_trip(device, memory, size - 4096 + 256)
        memory.free()
        memory.free()
    finally:
        device.close()


def test_sysfs_pins_a_callers_pages(edu):
    device = pci.open(edu.address)
    try:
        pages = mmap.mmap(-1, 16 << 10, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        pinned = device.pin(memoryview(pages))
        round_trip(device, pinned, 8192)
        assert pages[8192:8448] == pinned.view[8192:8448]
        pinned.free()
        # Nothing holds it any more.
        pages.close()
    finally:
        device.close()


def test_pinned_pages_stay_where_they_are_while_the_kernel_compacts_memory(edu):
    device = pci.open(edu.address)
    try:
        held = [device.alloc_host(4096) for _ in range(256)]
        for memory in held[::2]:
            # This leaves holes, which the kernel closes.
            memory.free()
        kept = held[1::2]
        for memory in kept:
            memory.view[:8] = memory.bus_addr().to_bytes(8, "little")
        KERNEL.write(KERNEL.path("proc/sys/vm/compact_memory"), "1", "compacting")
        for memory in kept[::8]:
            device.config.write(regs.PCI_COMMAND, device.config.read(regs.PCI_COMMAND, 2) | regs.PCI_COMMAND_MASTER, 2)
            move(device, memory.bus_addr(), OWN, 8, 0)
            move(device, OWN, memory.bus_addr(8), 8, TO_RAM)
            assert memory.view[8:16] == memory.bus_addr().to_bytes(8, "little")
    finally:
        device.close()


def test_without_io_uring_only_pages_that_stay_are_given_to_a_card(edu):
    forbidden = KERNEL.path("proc/sys/kernel/io_uring_disabled")
    KERNEL.write(forbidden, "2", "forbidding io_uring")
    device = pci.open(edu.address)
    try:
        round_trip(device, device.alloc_host(64 << 10), 0)  # part of a 2 MiB page
        with pytest.raises(PermissionNeeded, match=r"vm\.compact_unevictable_allowed"):
            device.alloc_host(4096)
        for mover in filter(Path.exists, (KERNEL.path("proc/sys", name) for name in MOVERS)):
            KERNEL.write(mover, "0", "keeping locked pages in place")
        round_trip(device, device.alloc_host(4096), 0)
    finally:
        device.close()
        KERNEL.write(forbidden, "0", "allowing io_uring")


def test_an_ordinary_users_error_names_what_is_missing(edu):
    code = f"""
import os
from ringup.drivers.transport.linux import pci
os.setuid(65534)
pci.open({edu.address!r}, path="sysfs")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert f"PermissionNeeded: opening pci:{edu.address} over sysfs: permissions: no permission for" in done.stderr


def test_sysfs_bus_reset_takes_the_cards_state_and_leaves_its_addresses(edu):
    device = pci.open(edu.address)
    try:
        assert device.resets() == ("slot",)
        device.bars[0].write64(DMA_COUNT, 0x123)
        device.config.write(regs.PCI_COMMAND, device.config.read(regs.PCI_COMMAND, 2) | regs.PCI_COMMAND_MASTER, 2)
        before = [device.config.read(offset) for offset in range(0, 64, 4)]
        device.reset("slot")
        assert [device.config.read(offset) for offset in range(0, 64, 4)] == before
        assert device.bars[0].read32(ID) == EDU_ID
    finally:
        device.close()


def test_a_card_that_lost_its_addresses_is_given_them_anew(edu):
    """A link that went down and up leaves this state: the kernel believes in addresses that the card does not have."""
    before = edu.bars()[0].start
    with (edu.path / "config").open("r+b", buffering=0) as config:
        os.pwrite(config.fileno(), bytes(4), regs.PCI_BASE_ADDRESS_0)
    assert stale(edu)
    # The function is probed again. Its group may be a new one, which translates again.
    with contextlib.suppress(NotSupported):
        pci.open(edu.address).close()
    assert not stale(edu)
    KERNEL.write(edu.path / "iommu_group/type", "identity", "letting physical addresses through")
    device = pci.open(edu.address)
    try:
        assert edu.bars()[0].start == before
        assert device.bars[0].read32(ID) == EDU_ID
    finally:
        device.close()


def test_prefetchable_memory_is_combined_and_shared_with_the_host(shared, crowded):
    """The BAR is the host's file: the host checks after the run what is written here."""
    KERNEL.write(shared.path / "iommu_group/type", "identity", "letting physical addresses through")
    device = pci.open(shared.address)
    try:
        bar = device.bars[2]
        assert bar.size_bytes == 4 << 20
        assert bar.read_block(0, 13) == b"from the host"
        view = bar.map()
        view[1 << 20 : (1 << 20) + 64] = bytes(range(64))
        assert bar.read64((1 << 20) + 8) == 0x0F0E0D0C0B0A0908
        bar.write_block((2 << 20) + 3, bytes(range(100)))
        assert bar.read_block((2 << 20) + 1, 104) == bytes(2) + bytes(range(100)) + bytes(2)
    finally:
        del view
        device.close()
    assert "resource2_wc" in KERNEL.names(shared.path)


def test_another_process_finds_the_lock_and_its_holder(edu):
    device = pci.open(edu.address)
    try:
        code = f"from ringup.drivers.transport.linux import pci; pci.open({edu.address!r})"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
        assert f"held by process {os.getpid()} (" in done.stderr
        found = preflight.examine(edu, "sysfs")
        assert next(row for row in found if row.what == "lock").state == "note"
    finally:
        device.close()


def test_bind_shows_its_plan_and_takes_the_whole_group(crowded, shared, capsys):
    before = (crowded.driver, shared.driver)
    assert run("bind", f"pci:{crowded.address}", "--dry-run") == 0
    assert (crowded.driver, shared.driver) == before
    text = capsys.readouterr().out
    assert f"echo vfio-pci > /sys/bus/pci/devices/{shared.address}/driver_override" in text
    assert run("bind", f"pci:{crowded.address}") == 0
    assert (crowded.driver, shared.driver) == ("vfio-pci", "vfio-pci")
    device = pci.open(crowded.address)
    try:
        # Both functions of the slot are in the group that is held.
        assert device.resets() == ("slot",)
        device.bars[0].write64(DMA_COUNT, 0x123)
        device.reset("slot")
        assert device.bars[0].read32(ID) == EDU_ID
        with pytest.raises(CardBusy):
            pci.open(shared.address)
    finally:
        device.close()
    device = pci.open(shared.address)
    try:
        assert device.bars[2].map()[:13] == b"from the host"
    finally:
        device.close()
    assert run("unbind", crowded.address) == 0
    assert (crowded.driver, shared.driver) == ("", "")


def test_vfio_moves_bytes_through_the_iommu(edu):
    KERNEL.write(edu.path / "iommu_group/type", "DMA", "translating again")
    assert run("bind", edu.address) == 0
    device = pci.open(edu.address)
    try:
        assert device.path == INTERFACE
        assert device.bars[0].read32(ID) == EDU_ID
        small, large = device.alloc_host(4096), device.alloc_host(4 << 20)
        assert large.contiguous
        assert large.bus_addr() % (2 << 20) == 0
        for memory in (small, large):
            assert memory.bus_addr(memory.size_bytes - 1) < 1 << 32
            round_trip(device, memory, memory.size_bytes - 256)
        pages = mmap.mmap(-1, 16 << 10)
        pinned = device.pin(memoryview(pages))
        round_trip(device, pinned, 4096)
        pinned.free()
        pages.close()
    finally:
        device.close()


def test_vfio_lets_no_access_through_that_is_not_mapped(edu):
    device = pci.open(edu.address)
    try:
        memory = device.alloc_host(4096)
        where = memory.bus_addr()
        round_trip(device, memory, 0)
        held = memory.view[:256].tobytes()
        # Nothing is mapped there: the IOMMU stops it.
        move(device, OWN, where + (1 << 20), 256, TO_RAM)
        assert memory.view[:256] == held
        memory.free()
        again = mmap.mmap(-1, 4096)
        move(device, OWN, where, 256, TO_RAM)
        assert again[:] == bytes(4096)
    finally:
        device.close()
    log = subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout
    assert f"fault addr {where + (1 << 20):#x}" in log
    assert f"fault addr {where:#x}" in log


def test_vfio_interrupts_come_as_events(edu):
    device = pci.open(edu.address)
    try:
        device.config.write(regs.PCI_COMMAND, device.config.read(regs.PCI_COMMAND, 2) | regs.PCI_COMMAND_MASTER, 2)
        bar = device.bars[0]
        assert device.interrupts.wait(1000) == ()
        bar.write32(IRQ_RAISE, 1)
        assert device.interrupts.wait(5_000_000) == (0,)
        assert bar.read32(IRQ_STATUS) == 1
        bar.write32(IRQ_ACK, 1)
        started = device.clock.now_us
        assert device.interrupts.wait(20_000) == ()
        assert device.clock.now_us - started >= 20_000
        memory = device.alloc_host(4096)
        for offset, value in ((DMA_SRC, OWN), (DMA_DST, memory.bus_addr()), (DMA_COUNT, 64)):
            bar.write64(offset, value)
        bar.write64(DMA_COMMAND, START | TO_RAM | WITH_IRQ)
        assert device.interrupts.wait(5_000_000) == (0,)
    finally:
        device.close()


def test_vfio_says_when_the_kernel_wants_the_card_back(edu):
    device = pci.open(edu.address)
    remover = subprocess.Popen(["/bin/sh", "-c", f"echo 1 > {edu.path}/remove"])
    try:
        assert not device.lost or remover.poll() is None
        end = time.monotonic() + 20
        while not device.lost:
            assert time.monotonic() < end
            time.sleep(0.05)
        # It waits for us.
        assert remover.poll() is None
    finally:
        device.close()
    assert remover.wait(20) == 0
    assert not edu.there
    KERNEL.write(KERNEL.path("sys/bus/pci/rescan"), "1", "looking for cards")
    assert edu.there


def test_a_card_with_a_kernel_driver_goes_there_and_back(rng, capsys):
    assert rng.driver == "virtio-pci"
    with pytest.raises(CardBusy, match="virtio-pci drives the card"):
        pci.open(rng.address)
    assert run("bind", rng.address) == 0
    assert rng.driver == "vfio-pci"
    device = pci.open(rng.address)
    try:
        assert device.config.read(regs.PCI_DEVICE_ID, 2) == 0x1044
        assert device.resets() == ("function", "slot")
        device.reset("function")
        assert device.config.read(regs.PCI_COMMAND, 2) & regs.PCI_COMMAND_MEMORY
        # After a reset, the emulated port shows no active link for a PCI Express card.
        with pytest.raises(LinkDown, match="link"):
            device.reset("slot")
        assert device.interrupts.vectors >= 2
        assert device.interrupts.wait(1000) == ()
        # We hold it.
        assert run("unbind", rng.address) == 13
        assert rng.driver == "vfio-pci"
    finally:
        device.close()
    assert run("unbind", rng.address) == 0
    assert rng.driver == "virtio-pci"
    assert bind.plan_unbind(rng) == []


def test_a_killed_holder_leaves_a_card_that_opens_again(edu):
    assert run("bind", edu.address) == 0
    code = f"""
import time
from ringup.drivers.transport.linux import pci
device = pci.open({edu.address!r})
device.config.write(4, 6, 2)
print("open", flush=True)
time.sleep(60)
"""
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "open\n"
    with pytest.raises(CardBusy, match=f"held by process {holder.pid}"):
        pci.open(edu.address)
    holder.kill()
    holder.wait()
    device = pci.open(edu.address, wait_s=5)
    try:
        assert not device.config.read(regs.PCI_COMMAND, 2) & regs.PCI_COMMAND_MASTER
        assert device.bars[0].read32(ID) == EDU_ID
    finally:
        device.close()
    assert run("unbind", edu.address) == 0
