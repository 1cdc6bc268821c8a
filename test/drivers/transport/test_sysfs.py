"""A card over sysfs, on a kernel of files. `make guest` tests physical addresses and DMA."""

import errno

import pytest

from ringup.autogen.linux import pci as regs
from ringup.drivers.transport.linux import pci
from ringup.errors import DeviceLost, NotSupported, RingupError, TransportError
from ringup.silicon import card as virtual

ADDRESS = "0000:03:00.0"


@pytest.fixture
def free(machine):
    machine.card = machine.add(group="")
    return machine


@pytest.fixture
def device(free):
    device = pci.open(ADDRESS, kernel=free.kernel)
    yield device
    device.close()


def held(machine, name):
    return machine.kernel.text(machine.folder(ADDRESS) / name)


def test_auto_means_sysfs_where_no_driver_is(device):
    assert device.path == "sysfs"


def test_the_function_is_awake_while_it_is_held_and_as_it_was_afterwards(free):
    device = pci.open(ADDRESS, kernel=free.kernel)
    assert (held(free, "power/control"), held(free, "enable")) == ("on", "1")
    assert free.config(free.card, regs.PCI_COMMAND) == regs.PCI_COMMAND_MEMORY | regs.PCI_COMMAND_INTX_DISABLE
    device.config.write(regs.PCI_COMMAND, regs.PCI_COMMAND_MEMORY | regs.PCI_COMMAND_MASTER, 2)
    device.close()
    device.close()
    assert (held(free, "power/control"), held(free, "enable")) == ("auto", "0")
    assert not free.config(free.card, regs.PCI_COMMAND) & regs.PCI_COMMAND_MASTER


def test_a_function_that_is_on_stays_on(free):
    for name, text in {"power/control": "on\n", "enable": "1\n"}.items():
        free.write(free.folder(ADDRESS) / name, text)
    pci.open(ADDRESS, kernel=free.kernel).close()
    assert (held(free, "power/control"), held(free, "enable")) == ("on", "1")


def test_bars_are_files_and_only_prefetchable_ones_are_combined(free, device):
    device.bars[5].write32(0x10, 0x01020304)
    device.bars[0].map()[0x100:0x104] = b"vram"
    folder = free.folder(ADDRESS)
    assert (folder / "resource5").read_bytes()[0x10:0x14] == b"\x04\x03\x02\x01"
    assert (folder / "resource0").read_bytes()[0x100:0x104] == b"vram"
    with pytest.raises(NotSupported):
        device.bars[5].map()


def test_doorbells_are_never_kept_back_in_write_combining_buffers(device):
    """BARs 0 and 2 of a Radeon, memory and doorbells, are both prefetchable."""
    with open("/proc/self/maps") as file:
        names = {line.split("/")[-1].strip() for line in file if ADDRESS in line}
    assert names == {"resource0_wc", "resource2", "resource5"}


def test_another_cards_bar_is_reached_at_its_physical_address(free, device):
    free.add("0000:04:00.0", group="", parent="0000:00:02.0")
    other = pci.open("0000:04:00.0", kernel=free.kernel)
    memory = device.reach(other, 0, 0x3000, 0x2000)
    assert list(memory.runs()) == [(0x60C0003000, 0x2000)]
    memory.view[:4] = b"peer"
    assert (free.folder("0000:04:00.0") / "resource0").read_bytes()[0x3000:0x3004] == b"peer"
    memory.free()
    other.close()
    with pytest.raises(NotSupported, match="no function of this machine's PCI bus"):
        device.reach(virtual("navi31", vram_bytes=64 << 20), 0, 0, 4096)


def test_an_unused_line_interrupt_is_disabled(device):
    # PCI Local Bus Specification 3.0, 6.2.2: Interrupt Disable
    assert device.config.read(4, 2) & 0x400


def test_a_bar_inside_a_page_is_left_out(machine):
    """A mapping would also expose the other owner of the page."""
    machine.add(group="")
    table = machine.folder(ADDRESS) / "resource"
    lines = table.read_text().splitlines()
    lines[4] = "0x00000000fe800100 0x00000000fe8001ff 0x0000000000040200"
    machine.write(table, "\n".join(lines) + "\n")
    machine.set_config(machine.cards[ADDRESS], 0x20, (0xFE800100).to_bytes(4, "little"))
    machine.write(machine.folder(ADDRESS) / "resource4", "")
    device = pci.open(ADDRESS, kernel=machine.kernel)
    assert set(device.bars) == {0, 2, 5}
    device.close()


def test_the_rom_is_shown_while_the_card_is_held(free):
    image = b"\x55\xaa" + bytes(range(254))
    rom = free.write(free.folder(ADDRESS) / "rom", "")
    rom.write_bytes(image)
    device = pci.open(ADDRESS, kernel=free.kernel)
    assert (f"{(free.folder(ADDRESS) / 'rom').relative_to(free.root)}", "1") in [
        (str((free.root / path).resolve().relative_to(free.root)), text) for path, text in free.log
    ]
    assert device.rom.size_bytes == len(image)
    device.close()
    assert [text for path, text in free.log if path.endswith("rom")] == ["1", "0"]


def test_a_card_without_a_rom_has_rom_none(device):
    assert device.rom is None


@pytest.mark.parametrize(
    ("methods", "offered"),
    [
        ("flr bus", ("function", "slot")),
        ("device_specific", ("function",)),
        ("pm", ("function",)),
        ("bus", ("slot",)),
        ("", ()),
        ("cxl_bus", ()),
    ],
)
def test_resets_are_what_the_kernel_offers(free, device, methods, offered):
    free.write(free.folder(ADDRESS) / "reset_method", methods)
    assert device.resets() == offered


@pytest.mark.parametrize(("method", "done"), [("function", "flr"), ("slot", "bus")])
def test_a_reset_is_the_one_asked_for_and_the_header_comes_back(free, device, method, done):
    before = [free.config(free.card, offset, 4) for offset in range(0x10, 0x28, 4)]
    device.reset(method)
    assert free.card.resets == [done]
    assert held(free, "reset_method") == "flr bus"
    assert [free.config(free.card, offset, 4) for offset in range(0x10, 0x28, 4)] == before
    assert free.config(free.card, regs.PCI_COMMAND) & regs.PCI_COMMAND_MEMORY


def test_a_slot_with_mates_is_reset_through_its_bridge_when_none_has_a_driver(machine):
    machine.add(group="")
    machine.add("0000:03:00.1", ids=(0x1002, 0xAB30), code=0x040300, group="", driver="")
    bridge = machine.folder(ADDRESS).parent
    machine.write(bridge / "reset_subordinate", "")
    machine.write(machine.folder(ADDRESS) / "reset_method", "")
    device = pci.open(ADDRESS, kernel=machine.kernel)
    assert device.resets() == ("slot",)
    device.reset("slot")
    assert ("sys/bus/pci/devices/0000:00:01.0/reset_subordinate", "1") in machine.log
    machine.driver("snd_hda_intel")
    machine._bind(machine.folder("0000:03:00.1"), "snd_hda_intel")
    assert device.resets() == ()
    device.close()


def test_a_refused_reset_leaves_the_methods_as_they_were(free, device):
    free.fails = {"/reset": errno.EIO}
    with pytest.raises(
        TransportError, match=r"resetting pci:0000:03:00\.0 \(function\): writing '1' to .*/reset: Input/output error"
    ):
        device.reset("function")
    assert held(free, "reset_method") == "flr bus"


def test_a_header_that_does_not_come_back_is_reported(free, device):
    read_only = free.folder(ADDRESS) / "config"

    def forget(path, text, store=free.store):
        store(path, text)
        # Another card took its place. Its BARs differ and do not accept writes.
        if path.name == "reset":
            device.config.write = lambda *_: None

    device._way._kernel._store = forget
    with pytest.raises(TransportError, match="configuration space did not come back: 0x10 reads 0x00000000"):
        device.reset("function")
    assert read_only.exists()


def test_a_function_that_leaves_the_bus_is_lost(free, device):
    assert not device.lost
    (free.root / "sys/bus/pci/devices" / ADDRESS).unlink()
    assert device.lost


@pytest.mark.parametrize(
    ("end", "code"), [("power/control", errno.EACCES), ("enable", errno.EPERM), ("enable", errno.EIO)]
)
def test_a_refusal_half_way_puts_everything_back(free, end, code):
    free.fails = {end: code}
    with pytest.raises(RingupError, match=r"opening pci:0000:03:00\.0"):
        pci.open(ADDRESS, kernel=free.kernel)
    free.fails = {}
    assert (held(free, "power/control"), held(free, "enable")) == ("auto", "0")
    # The lock is free too.
    pci.open(ADDRESS, kernel=free.kernel).close()


def test_polling_lets_the_time_pass(device):
    started = device.clock.now_us
    assert device.interrupts.wait(2000) == ()
    assert device.clock.now_us - started >= 2000


@pytest.mark.parametrize(("offset", "data"), [(0x10, bytes(24)), (0, b"\xff" * 64)], ids=["no addresses", "nothing"])
def test_a_card_whose_link_came_back_is_rescanned(free, offset, data):
    free.set_config(free.card, offset, data)
    device = pci.open(ADDRESS, kernel=free.kernel)
    assert [(path.rpartition("/")[2], text) for path, text in free.log][:2] == [("remove", "1"), ("rescan", "1")]
    assert not device.lost
    device.close()


def test_a_card_that_is_well_is_left_where_it_is(free):
    pci.open(ADDRESS, kernel=free.kernel).close()
    assert not [path for path, _ in free.log if path.endswith(("remove", "rescan"))]


def test_a_dead_card_is_not_opened(free):
    free.fresh = b"\xff" * 4096
    free.set_config(free.card, 0, b"\xff" * 16)
    with pytest.raises(DeviceLost, match="check power and cable"):
        pci.open(ADDRESS, kernel=free.kernel)
    assert held(free, "enable") == "0"
