"""Advice in errors: it fits the errno, contains numbers, and does not repeat what the user already did."""

import errno
import os
import resource

import pytest

from ringup.autogen.linux import vfio
from ringup.drivers.transport.linux import advice, pci, preflight
from ringup.drivers.transport.linux.function import Function
from ringup.errors import OutOfMemory, RingupError

ADDRESS = "0000:03:00.0"
UNLIMITED = resource.RLIM_INFINITY


@pytest.fixture
def limit(monkeypatch):
    """`limit(soft, hard)` sets how many bytes this process may lock."""

    def put(soft, hard):
        monkeypatch.setattr(resource, "getrlimit", lambda kind: (soft, hard))

    return put


def refusal(machine, call, code):
    """Return the error that opening a card over VFIO, or allocating its memory, raises."""
    machine.add(driver="vfio-pci")
    machine.fails = {call: code} if call != vfio.VFIO_IOMMU_MAP_DMA else {}
    with pytest.raises(RingupError) as raised:  # noqa: PT012
        device = pci.open(ADDRESS, kernel=machine.kernel)
        machine.fails = {call: code}
        device.alloc_host(1 << 20)
    return str(raised.value)


def test_a_limit_of_locked_memory_is_reported_in_numbers(machine, limit):
    limit(8 << 20, 8 << 20)
    machine.write("proc/self/status", "Name:\tpython3\nVmLck:\t    7300 kB\n")
    text = refusal(machine, vfio.VFIO_IOMMU_MAP_DMA, errno.ENOMEM)
    assert "1024 KiB more would be locked, and this process may lock 8192 KiB (`ulimit -l`), 7300 KiB of them" in text
    assert "the line `@render - memlock unlimited` in /etc/security/limits.d/70-ringup.conf raises it" in text


def test_a_limit_that_the_user_may_raise_names_the_command(machine, limit):
    limit(8 << 20, UNLIMITED)
    assert "`ulimit -l unlimited` raises it in this shell" in refusal(machine, vfio.VFIO_IOMMU_MAP_DMA, errno.ENOMEM)
    limit(8 << 20, 64 << 20)
    assert advice.raise_limit(machine.kernel) == "`ulimit -l 65536` raises it in this shell"


def test_a_limit_that_was_raised_in_a_file_wants_a_log_in(machine, limit):
    limit(8 << 20, 8 << 20)
    machine.write("etc/security/limits.d/70-ringup.conf", "@render - memlock unlimited\n")
    assert "was not applied to this session: log in again" in refusal(machine, vfio.VFIO_IOMMU_MAP_DMA, errno.ENOMEM)


def test_without_a_limit_the_machine_is_short_of_memory(machine, limit):
    limit(UNLIMITED, UNLIMITED)
    text = refusal(machine, vfio.VFIO_IOMMU_MAP_DMA, errno.ENOMEM)
    assert "the machine itself is short of memory" in text
    assert "ulimit" not in text


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (errno.EINVAL, "the IOMMU does not accept that address, size or alignment"),
        (errno.EFAULT, "the memory does not belong to this process"),
        (errno.EBUSY, "the kernel is taking the card or its group back"),
        (errno.EEXIST, "the address is taken already"),
        (errno.ENOSPC, "dma_entry_limit"),
        (errno.EPERM, "memory that may not be written"),
        (errno.EIO, "`dmesg` may say why"),
    ],
)
def test_another_refusal_to_map_is_explained_without_a_limit(machine, limit, code, said):
    limit(8 << 20, 8 << 20)
    text = refusal(machine, vfio.VFIO_IOMMU_MAP_DMA, code)
    assert text.startswith(f"mapping 1048576 bytes for the card: {os.strerror(code)}; ")
    assert said in text
    assert not any(word in text for word in ("ulimit", "limits", "KiB"))


@pytest.mark.parametrize(("code", "remaps"), [(errno.EPERM, True), (errno.EBUSY, False), (errno.EINVAL, False)])
def test_interrupt_remapping_is_named_where_the_kernel_means_it(machine, code, remaps):
    assert ("allow_unsafe_interrupts" in refusal(machine, vfio.VFIO_SET_IOMMU, code)) == remaps


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (errno.EBUSY, "another process holds it"),
        (errno.EACCES, "`ringup setup` shows the rule"),
        (errno.EPERM, "a kernel driver has another function of its group"),
        (errno.ENOENT, "modprobe vfio-pci"),
    ],
)
def test_a_node_that_does_not_open_says_why(code, said):
    texts = {number: advice.of_vfio_node(number) for number in (errno.EBUSY, errno.EACCES, errno.EPERM, errno.ENOENT)}
    assert [number for number, text in texts.items() if said in text] == [code]


def test_locking_pages_at_a_limit_of_nothing_is_about_the_limit(monkeypatch, machine, limit):
    from ringup.drivers.transport.linux import physical

    limit(0, 0)
    monkeypatch.setattr(physical, "_ring", lambda: None)
    monkeypatch.setattr(physical.LIBC, "mlock", lambda address, size: physical.ctypes.set_errno(errno.EPERM) or -1)
    with pytest.raises(OutOfMemory, match=r"this process may lock 0 KiB .*memlock unlimited"):
        physical.Pin(machine.kernel, 0x1000, 2 << 20, huge=True)


# --- advice that was followed -----------------------------------------------------------------------------------------
def look(machine, what, path):
    return next(one for one in preflight.examine(Function(machine.kernel, ADDRESS), path) if one.what == what)


@pytest.mark.parametrize(("line", "said"), [("quiet", "boot with intel_iommu=on or amd_iommu=on"),
                                            ("quiet intel_iommu=on", "booted with intel_iommu=on already")])  # fmt: skip
def test_a_boot_option_that_is_set_is_not_asked_for(machine, line, said):
    machine.add(group="")
    machine.write("proc/cmdline", line + "\n")
    assert said in look(machine, "group", "vfio").remedy


@pytest.mark.parametrize(
    ("line", "said"), [("", "boot with pci=realloc"), ("pci=realloc", "booted with pci=realloc already)")]
)
def test_room_for_bars_is_not_asked_for_twice(machine, line, said):
    machine.add(bars={})
    machine.write("proc/cmdline", line + "\n")
    assert said in look(machine, "BARs", "sysfs").remedy


def test_a_node_without_permission_knows_the_rule_that_is_there(machine, monkeypatch):
    machine.add(driver="vfio-pci")
    monkeypatch.setattr(os, "access", lambda path, mode: "vfio" not in str(path))
    assert "`sudo ringup setup --apply` writes a rule" in look(machine, "permissions", "vfio").remedy
    machine.write("etc/udev/rules.d/70-ringup.rules", 'SUBSYSTEM=="vfio", KERNEL!="vfio", TAG+="uaccess"\n')
    assert "is written and was not applied: as root udevadm trigger" in look(machine, "permissions", "vfio").remedy


def test_a_module_that_is_loaded_is_not_asked_for(machine):
    machine.add(driver="vfio-pci")
    (machine.root / "dev/vfio/vfio").unlink()
    (machine.root / "dev/iommu").unlink(missing_ok=True)
    assert look(machine, "permissions", "vfio").remedy == "as root: modprobe vfio-pci"
    (machine.root / "sys/module/vfio_pci").mkdir(parents=True)
    assert look(machine, "permissions", "vfio").remedy == f"`ringup bind {ADDRESS}`"
