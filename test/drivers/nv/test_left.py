"""An NVIDIA card that another process left: what is seen of it, and its resets and shutdown, all without a start."""

import pytest

import ringup
from ringup.autogen.linux import pci
from ringup.drivers import select
from ringup.drivers.nv.gsp.falcon import GSP, Falcon
from ringup.drivers.nv.left import LeftNvidia
from ringup.drivers.nv.lifecycle.inspect import Found
from ringup.drivers.transport.config_space import power_state
from ringup.drivers.transport.linux.readonly import ReadOnly
from ringup.errors import DeviceHung, DeviceLost, NotSupported

MIB = 1 << 20
CHIPS = ("tu102", "ga102", "gh100", "gb202")
FSP_CHIPS = ("gh100", "gb202")
COLD, RUNNING, DIRTY = (found.value for found in (Found.COLD, Found.RUNNING, Found.DIRTY))


@pytest.fixture
def left(bench):
    """`left("ga102")` makes a card whose process died while GSP-RM ran, and finds it."""

    def make(chip):
        one = bench(chip)
        one.start()
        one.card.kill_holder()
        return select.left(one.card)

    return make


def masters_bus(card):
    return bool(card.device.config.read(pci.PCI_COMMAND, 2) & pci.PCI_COMMAND_MASTER)


@pytest.mark.parametrize(
    ("chip", "ids", "bars"),
    [
        # lspci of these boards; GH100's register BAR has 64 bits, so the others move up
        ("ga102", (0x10DE, 0x2236, 0xA1), (0, 1, 3)),
        ("gh100", (0x10DE, 0x2331, 0xA1), (0, 2, 4)),
    ],
)
def test_a_cold_card_says_what_it_is(virtual_card, chip, ids, bars):
    card = select.left(virtual_card(chip))
    assert isinstance(card, LeftNvidia)
    assert (card.state(), card.pci_ids[:3], tuple(card.device.bars)) == (COLD, ids, bars)
    assert card.vram_bytes == card.device.chip.vram_bytes
    report = card.examine()
    assert (report.chip, report.protected, report.lost) == (chip, "", "")
    assert set(report.registers) == {"card", "GSP", "SEC2"}
    assert str(report).startswith(f"virtual:{chip}: {COLD}")


@pytest.mark.parametrize("chip", CHIPS)
def test_a_gsp_rm_that_was_left_is_seen_and_kept_from_memory(left, chip):
    card = left(chip)
    assert not masters_bus(card)
    assert card.state() == RUNNING
    report = card.examine()
    assert report.registers["GSP"]["RISC-V core"] == "runs"
    size, _, rest = report.protected.partition(" bytes from 0x")
    start = int(rest.partition(" ")[0], 16)
    assert 0 < int(size) < start < card.vram_bytes
    assert f"protected memory: {report.protected}" in str(report)


@pytest.mark.parametrize("chip", CHIPS)
def test_it_is_shut_down_by_the_gentlest_way_and_sleeps(left, chip):
    card = left(chip)
    done = card.rest()
    assert (done.found, done.power) == (RUNNING, "D3hot")
    assert [rung.name for rung in done.rungs] == ["function" if chip in FSP_CHIPS else "unload"]
    assert power_state(card.device.config) == 3
    assert not masters_bus(card)
    assert select.left(card.device).state() == COLD


def test_protected_memory_without_gsp_is_taken_down(left):
    card = left("ga102")
    Falcon(card.registers, GSP).reset()
    assert card.rest(sleep=False).found == DIRTY
    assert card.state() == COLD


def test_a_card_at_rest_is_not_touched_but_put_to_sleep(virtual_card):
    card = select.left(virtual_card("ga102"))
    done = card.rest()
    assert (done.found, done.rungs, done.power) == (COLD, [], "D3hot")
    # it wakes for the next look
    again = select.left(card.device)
    assert (again.found_asleep, again.state()) == (True, COLD)
    assert again.rest(sleep=False).power == "D0, as asked"


@pytest.mark.parametrize(("first", "names"), [(None, ["unload"]), ("function", ["function"]), ("slot", ["slot"])])
def test_a_reset_leaves_a_cold_card(left, first, names):
    card = left("ga102")
    assert card.offered() == ("unload", "function", "slot")
    assert [str(rung) for rung in card.reset(first)] == [
        f"{name}: verified; survived: the VBIOS's initialisation" for name in names
    ]
    assert (card.state(), masters_bus(card)) == (COLD, False)


def test_a_cold_card_is_reset_from_the_bus(virtual_card):
    assert [rung.name for rung in select.left(virtual_card("ga102")).reset()] == ["function"]
    with pytest.raises(ValueError, match="has no reset 'mode1'; it has function, slot"):
        select.left(virtual_card("gb202")).reset("mode1")


def test_an_unload_without_its_files_is_a_rung_that_failed(left, monkeypatch, tmp_path):
    card = left("ga102")
    monkeypatch.setattr(card.device, "firmware", lambda name: None)
    monkeypatch.setenv("RINGUP_FIRMWARE", str(tmp_path))
    rungs = card.reset()
    assert [rung.name for rung in rungs] == ["unload", "function"]
    assert "nvidia/ga102/gsp/" in rungs[0].error


def test_a_card_whose_registers_are_silent_is_reset_from_the_bus(left, monkeypatch):
    model = left("ga102").device
    reset = model.reset

    def answer_after_the_slots(name):
        if name == "slot":
            monkeypatch.undo()
        reset(name)

    monkeypatch.setattr(model.bars[0], "read32", lambda at: 0xFFFF_FFFF)
    monkeypatch.setattr(model, "reset", answer_after_the_slots)
    card = select.left(model)
    assert "registers read all ones" in card.examine().lost
    assert card.offered() == ("function", "slot")
    function, slot = card.reset()
    assert (function.name, function.error) == ("function", "registers do not answer 2000 ms after the reset")
    assert (slot.name, slot.error, card.state()) == ("slot", "", COLD)


def test_a_card_that_no_reset_helps_says_so(left, monkeypatch):
    card = left("ga102")
    monkeypatch.setattr(card.device, "reset", lambda name: None)
    card.device.faults.inject("falcon_stuck", -1)
    with pytest.raises(
        DeviceHung, match=r"no reset helped.*unload.*function.*slot.*switch the card's power off and on"
    ):
        card.reset()


def test_a_card_that_is_gone_is_lost(left):
    card = left("ga102")
    card.device.unplug()
    assert card.examine().lost
    for act in (card.rest, card.reset):
        with pytest.raises(DeviceLost):
            act()
    with pytest.raises(DeviceLost):
        select.left(card.device)


def test_memory_is_read_and_written_by_the_byte(virtual_card):
    card = select.left(virtual_card("gh100"))
    edge = 1 << 20
    card.device.vram.write(edge - 4, b"abcdefgh")
    assert card.memory.read(edge - 3, 5) == b"bcdef"
    card.memory.write(edge - 1, b"XYZ")
    card.device.settle()
    assert card.device.vram.read(edge - 4, 8) == b"abcXYZgh"


def test_a_card_that_another_process_drives_is_only_read(bare):
    holder = bare("ga102")
    card = select.left(ReadOnly.of(holder.device), own=False)
    assert card.state() == "driven by another process"
    report = card.examine("process 4711")
    assert "process 4711" in str(report)
    assert (report.registers["GSP"]["RISC-V core"], report.lost) == ("runs", "")
    with pytest.raises(NotSupported, match="window that its holder moves"):
        assert card.memory
    assert masters_bus(card)
    assert holder.copy.submit(holder.copy.stream()).wait(1) is None


def test_the_path_of_another_vendors_card_is_named():
    with pytest.raises(NotSupported, match="this is for cards of NVIDIA"):
        LeftNvidia(ringup.connect("virtual:navi31"))
