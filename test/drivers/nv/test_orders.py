"""Accesses whose order matters because a real card acts between them. Each test checks the state at that
very moment.
"""

from __future__ import annotations

import pytest

from ringup.drivers.nv.bus.registers import Registers
from ringup.drivers.nv.gsp import boot, flush_page
from ringup.drivers.nv.gsp.falcon import Falcon
from ringup.drivers.nv.gsp.host_memory import HostMemory
from ringup.drivers.nv.gsp.layout import Region
from ringup.drivers.nv.gsp.rpc import Rpc
from ringup.drivers.nv.lifecycle import bringup, recovery
from ringup.errors import DeviceHung, DeviceTimeout, FirmwareError

COMMAND, MEMORY, MASTER = 4, 2, 4  # the command register, its bits for memory and bus mastering
# dev_vm.h: NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_TOP_EN_SET(0); dev_nv_xve.h: NV_XVE_CYA_2 at 0x88000
TOP_EN_SET, XVE_CYA_2 = 0xB8_1608, 0x8_8704
# dev_falcon_v4.h at GSP's 0x110000: IRQSCLR, INTR_RETRIGGER(0)
IRQSCLR, INTR_RETRIGGER = 0x11_0004, 0x11_03E8
# dev_fb.h: NV_PFB_NISO_FLUSH_SYSMEM_ADDR and _HI; gh100's FBHUB; nova-core: gb202's FBHUB0
FLUSH = {
    "tu102": (0x10_0C10, None),
    "ga102": (0x10_0C10, 0x10_0C40),
    "gh100": (0x10_0A34, 0x10_0A38),
    "gb202": (0x8A_1D58, 0x8A_1D5C),
}


def before(monkeypatch, owner, name, act):
    """Call `act` with the arguments before every call of a function."""
    function = getattr(owner, name)

    def watched(*args, **kwargs):
        act(*args, **kwargs)
        return function(*args, **kwargs)

    monkeypatch.setattr(owner, name, watched)


@pytest.fixture
def writes(monkeypatch):
    """All (address, value) that are written to registers, and the names of other steps."""
    seen = []
    before(monkeypatch, Registers, "write", lambda registers, address, value: seen.append((address, value)))
    return seen


def masters(card):
    """Whether a card may access the host's memory."""
    return bool(card.config.read(COMMAND, 2) & MASTER)


@pytest.mark.parametrize("chip", ["tu102", "ga102", "gh100", "gb202"])
def test_gsp_is_told_of_the_system_before_it_starts(bench, monkeypatch, chip):
    counted = []
    way = boot.FspWay if chip in {"gh100", "gb202"} else boot.BooterWay
    calls = []
    before(monkeypatch, Rpc, "post", lambda rpc, function, payload: calls.append(rpc))
    before(monkeypatch, way, "start", lambda *_: counted.append(calls[0]._queues.sent))
    with bench(chip).running():
        assert counted == [2]


def test_memory_is_freed_when_the_card_cannot_reach_it_any_more(bench, monkeypatch):
    one = bench("ga102")
    running = one.start().running
    assert masters(one.card)
    states = []
    before(monkeypatch, HostMemory, "free", lambda memory: states.append(masters(one.card)))
    running.stop()
    assert states == [False]


def test_an_interrupted_end_leaves_a_quiet_card(bench, monkeypatch):
    one = bench("ga102")
    running = one.start().running

    def interrupt(teardown):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(running, "_unload", interrupt)
        with pytest.raises(KeyboardInterrupt):
            running.stop()
    assert not masters(one.card)
    assert not running.memory._kept
    one.card.kill_holder(memory=True)
    with one.running():
        assert masters(one.card)


class Clinging:
    """Configuration space of a card whose bus mastering cannot be switched off."""

    def __init__(self, config):
        self.config, self.clings = config, True

    def read(self, offset, size_bytes=4):
        """Read as the card does."""
        return self.config.read(offset, size_bytes)

    def write(self, offset, value, size_bytes=4):
        """Write, but keep bus mastering."""
        self.config.write(offset, value | MASTER if offset == COMMAND and self.clings else value, size_bytes)


def test_memory_stays_while_the_bus_cannot_be_taken_from_the_card(bench, monkeypatch):
    one = bench("ga102")
    running = one.start().running
    clinging = Clinging(one.card.config)
    monkeypatch.setattr(one.card, "config", clinging)
    with pytest.raises(DeviceHung, match=r"bus mastering: the command register reads 0x.*is not freed; reset the card"):
        running.stop()
    assert running.memory._kept
    clinging.clings = False
    running.stop()
    assert not masters(one.card)
    assert not running.memory._kept


@pytest.mark.parametrize("left", [False, True])
def test_the_flush_page_is_told_before_the_card_has_the_bus_and_taken_away_after(bench, monkeypatch, left):
    """The card reads from it, and may still have the address of a dead process's page."""
    one = bench("ga102")
    if left:
        one.start()
        one.card.kill_holder(memory=False)
    states = []
    before(
        monkeypatch, flush_page, "tell", lambda registers, bus_addr: states.append((bool(bus_addr), masters(one.card)))
    )
    with one.running():
        assert (True, True) not in states
    assert states.count((True, False)) == 1 + left
    assert states[-1] == (False, False)


def test_a_card_that_was_left_loses_the_bus_before_anything_else(bench, monkeypatch):
    one = bench("ga102")
    one.start()
    one.card.kill_holder(memory=False)
    one.card.config.write(COMMAND, MEMORY | MASTER, 2)
    states = []
    before(monkeypatch, Registers, "read", lambda registers, address: states.append(masters(one.card)))
    with one.running():
        assert not states[0]


def test_both_engines_are_reset_before_a_card_that_was_left_gets_the_bus(bench, monkeypatch):
    one = bench("ga102")
    one.start()
    one.card.kill_holder(memory=False)
    steps = []
    before(monkeypatch, Falcon, "reset", lambda falcon: steps.append(falcon.engine.name))
    before(monkeypatch, recovery, "set_master", lambda config, on: steps.append(on))
    with one.running():
        assert steps[:3] == ["SEC2", "GSP", True]


def test_a_program_that_was_left_on_sec2_is_ended_before_gsp_is_used(bench, monkeypatch):
    """A process that died may have started the booter, and memory is not protected yet."""
    one = bench("ga102")
    steps = []
    before(monkeypatch, Falcon, "reset", lambda falcon: steps.append(falcon.engine.name))
    before(monkeypatch, bringup.Running, "prepare", lambda running: steps.append(running.firmware.release))
    with one.running():
        assert steps[1:3] == ["SEC2", "GSP"]


@pytest.mark.parametrize("made", [None, Region(0x1000, 0x2000)])
def test_protected_memory_is_read_back(bench, monkeypatch, made):
    one = bench("ga102")
    before_stage = boot.layout.wpr2

    def wrong(block):
        return made if before_stage(block) else None

    monkeypatch.setattr(boot.layout, "wpr2", wrong)
    with pytest.raises(
        FirmwareError, match=r"protecting memory.*: the protected region is (nowhere|at 0x1000), not at"
    ):
        one.start()


@pytest.mark.parametrize("chip", FLUSH)
def test_the_flush_page_is_told_before_any_reset_and_taken_away_in_the_end(bench, monkeypatch, writes, chip):
    low, high = FLUSH[chip]
    one = bench(chip)
    before(monkeypatch, Falcon, "_reset_engine", lambda falcon: writes.append(("reset", falcon.engine.name)))
    with one.running():
        places = [at for at, _ in writes]
        first = places.index("reset") if "reset" in places else len(places)
        assert low in places[:first]
        # the high half first: on some chips the low one's write starts a flush
        assert high is None or places.index(high) < places.index(low)
        assert dict(writes)[low]
        writes.clear()
    assert {at: value for at, value in writes if at in {low, high}} == {at: 0 for at in (low, high) if at is not None}


@pytest.mark.parametrize("chip", ["tu102", "ga102", "gh100"])
def test_an_interrupt_is_cleared_before_it_is_served_and_armed_again_after(bench, monkeypatch, writes, chip):
    with bench(chip).running() as running:
        running.wait_interrupt(10_000)
        before(monkeypatch, Rpc, "drain", lambda rpc: writes.append(("drain", 0)))
        writes.clear()
        running._serve()
        places = [at for at, _ in writes]
        again = [] if chip == "tu102" else [INTR_RETRIGGER]
        assert places == [IRQSCLR, "drain", *again]
        writes.clear()
        running.tree.serve()
        places = [at for at, _ in writes]
        assert places[-1] == TOP_EN_SET
        # from Hopper on, the bus interface needs no word
        assert (places[-2] == XVE_CYA_2) is (chip != "gh100")


@pytest.mark.parametrize("chip", ["tu102", "ga102"])
def test_memory_is_unprotected_after_a_fwsec_that_failed(bench, monkeypatch, chip):
    """OGKM kgspTeardown_TU102 goes on with the booter; the first error is raised."""
    one = bench(chip)
    running = one.start().running
    doing = "restoring the VBIOS' programs"

    def fail(way, command, arguments, doing):
        raise FirmwareError(f"{doing}: no")

    monkeypatch.setattr(boot.BooterWay, "_run_fwsec", fail)
    with pytest.raises(FirmwareError, match=doing):
        running.stop()
    assert boot.layout.wpr2(running._block) is None


@pytest.mark.parametrize("chip", ["tu102", "ga100", "ga102", "gh100"])
def test_leaves_that_another_driver_has_enabled_are_disabled(bench, writes, chip):
    """dev_vm.h: NV_VIRTUAL_FUNCTION_PRIV_CPU_INTR_LEAF_EN_CLEAR(i) at 0x1400 + 4 * i, LEAF_EN_SET(i) at 0x1200."""
    with bench(chip).running() as running:
        places = [at for at, _ in writes]
        cleared = [(0xB8_1400 + 4 * leaf, 0xFFFF_FFFF) for leaf in range(8)]
        enabled = places.index(0xB8_1200 + 4 * (running.vector // 32))
        assert [write for write in writes[:enabled] if write in cleared][:8] == cleared


@pytest.mark.parametrize("chip", ["tu102", "ga102"])
def test_the_image_of_a_program_that_does_not_halt_stays(bench, monkeypatch, chip):
    one = bench(chip)
    released = []
    before(monkeypatch, HostMemory, "release", lambda memory, image: released.append(masters(one.card)))
    one.card.faults.inject("falcon_stuck", -1)
    with pytest.raises(DeviceTimeout, match="does not halt"):
        one.start()
    assert released == []


@pytest.mark.parametrize("chip", ["tu102", "ga100", "ga102", "gh100"])
def test_gsp_is_told_the_version_of_its_application(bench, writes, chip):
    """dev_falcon_v4.h: NV_PFALCON_FALCON_OS at 0x80. nouveau r535_gsp_init writes it on every chip."""
    with bench(chip).running() as running:
        assert (0x11_0080, running.firmware.files.bootloader.app_version) in writes


@pytest.mark.parametrize(("release", "event"), [("535.113.01", 0x101D), ("570.144", 0x101C)])
def test_registers_of_a_gsp_that_is_locked_down_are_left_alone(bench, monkeypatch, release, event):
    """g_rpc-message-header.h of either tag, rpc_global_enums.h: GSP_LOCKDOWN_NOTICE; its payload is a boolean."""
    with bench("ga102").running(release=release) as running:
        (handler,) = running.rpc._handlers[event]
        handler(b"\1")
        accesses = []
        with monkeypatch.context() as patched:
            patched.setattr(Registers, "read", lambda registers, address: accesses.append(address) or 0)
            patched.setattr(Registers, "write", lambda registers, address, value: accesses.append(address))
            running._serve()
            running._check("testing")
        assert accesses == []
        handler(b"")
        assert running.locked_down
        handler(b"\0")
        running._serve()
        assert not running.locked_down
