"""A card's start on every virtual chip: from each state, to a GSP-RM that answers, and back."""

from __future__ import annotations

import struct

import pytest

from ringup.drivers.nv.lifecycle.inspect import Found, look
from ringup.drivers.transport.nvidia.status import RmRefused
from ringup.errors import DeviceHung, DeviceLost, DeviceTimeout, FirmwareError, NotSupported

BOOTER_CHIPS = ("tu102", "ga100", "ga102", "ad102")
FSP_CHIPS = ("gh100", "gb202")
CHIPS = BOOTER_CHIPS + FSP_CHIPS
COMMAND, MASTER = 4, 4  # the command register, and its bit for bus mastering
CLIENT, DEVICE, SUBDEVICE = 0xC1D0_0042, 0xCAFE_0080, 0xCAFE_2080
ROOT_CLASS, DEVICE_CLASS, SUBDEVICE_CLASS = 0x0, 0x80, 0x2080
# cl0000.h: NV0000_ALLOC_PARAMETERS has 108 bytes in 535, 120 in 570; cl0080.h: 56; cl2080.h: 4
ROOT_BYTES = {"535.113.01": 108, "570.144": 120}
DEVICE_BYTES, SUBDEVICE_BYTES = 56, 4
GET_NAME_STRING, NAME_BYTES = 0x2080_0110, 4 + 128  # ctrl2080gpu.h
# g_rpc-structures.h and gsp_static_config.h: GET_GSP_STATIC_INFO and its bytes
GET_STATIC_INFO, STATIC_INFO_BYTES = 0x41, {"535.113.01": 2168, "570.144": 1656}
INVALID_CLASS = 0x22  # nvstatuscodes.h, NV_ERR_INVALID_CLASS


def make_subdevice(door):
    """Make a client, a device and a subdevice."""
    door.alloc(CLIENT, 0, CLIENT, ROOT_CLASS, bytes(ROOT_BYTES[door.release]))
    door.alloc(CLIENT, CLIENT, DEVICE, DEVICE_CLASS, bytes(DEVICE_BYTES))
    door.alloc(CLIENT, DEVICE, SUBDEVICE, SUBDEVICE_CLASS, bytes(SUBDEVICE_BYTES))


@pytest.mark.parametrize("chip", CHIPS)
def test_a_cold_card_answers_and_is_quiet_after_its_end(bench, chip):
    one = bench(chip)
    start = one.start()
    running = start.running
    assert start.found is Found.COLD
    assert not start.rungs
    assert running.static.fb_bytes == one.card.chip.vram_bytes
    assert len(running.static.gid) == 16
    assert any(running.static.gid)
    assert running.static.regions[-1].limit + 1 == one.card.chip.vram_bytes
    make_subdevice(running.door)
    name = running.door.control(CLIENT, SUBDEVICE, GET_NAME_STRING, bytes(NAME_BYTES))
    assert name[4:].split(b"\0")[0].decode() == running.static.name
    running.door.free(CLIENT, 0, CLIENT)
    running.stop()
    running.stop()
    assert look(running.registers) is Found.COLD
    assert not one.card.config.read(COMMAND, 2) & MASTER
    assert one.start().found is Found.COLD


@pytest.mark.parametrize("chip", BOOTER_CHIPS)
def test_either_release_of_the_firmware_starts_a_card(bench, chip):
    with bench(chip).running(release="570.144") as running:
        assert running.door.release == "570.144"
        make_subdevice(running.door)


@pytest.mark.parametrize(("chip", "memory"), [*((chip, True) for chip in CHIPS), ("ga102", False), ("gh100", False)])
def test_a_card_of_a_killed_process_is_made_quiet_and_started(bench, chip, memory):
    one = bench(chip)
    one.start()
    one.card.kill_holder(memory=memory)
    start = one.start()
    assert start.found is Found.RUNNING
    assert [str(rung) for rung in start.rungs] == [
        f"{'function' if chip in FSP_CHIPS else 'unload'}: verified; survived: the VBIOS's initialisation"
    ]
    make_subdevice(start.running.door)
    start.running.stop()


@pytest.mark.parametrize("chip", ["tu102", "ad102"])
def test_protected_memory_without_gsp_is_taken_down(bench, chip):
    one = bench(chip)
    one.start().running.gsp.reset()
    one.card.kill_holder(memory=True)
    start = one.start()
    assert start.found is Found.DIRTY
    assert start.rungs[-1].name == "unload"
    start.running.stop()


def test_a_reset_of_the_bus_follows_an_unload_that_fails(bench):
    one = bench("ga102")
    one.start()
    one.card.kill_holder(memory=True)
    one.card.faults.inject("falcon_stuck", 1)
    start = one.start()
    assert [rung.name for rung in start.rungs] == ["unload", "function"]
    assert "does not halt" in start.rungs[0].error
    start.running.stop()


FAILURES = (
    # chips, fault, argument, error, what it says
    (("tu102",), "falcon_stuck", -1, DeviceTimeout, "protecting memory.*GSP does not halt"),
    (("ga100",), "falcon_stuck", -1, DeviceTimeout, "starting GSP-RM.*SEC2 does not halt"),
    (("tu102", "ad102"), "fwsec_error", 5, FirmwareError, "FWSEC reports error 0x5"),
    (("ga100", "ga102"), "booter_error", 7, FirmwareError, "the booter reports error 0x7"),
    (FSP_CHIPS, "booter_error", 7, FirmwareError, "GSP's first code reports error 0x7"),
    (("gb202",), "fsp_error", -1, FirmwareError, "FSP refused it with error"),
    (("gh100",), "fsp_silent", -1, DeviceTimeout, "waiting for FSP's answer"),
    (("ga102",), "gsp_no_start", -1, DeviceTimeout, "waiting for GSP-RM to set up its queue"),
    (("ga102", "gb202"), "gsp_silent", -1, DeviceTimeout, "waiting for GSP_INIT_DONE: nothing came for 10000 ms"),
    (("tu102", "ga102", "gh100"), "gsp_crash", -1, DeviceHung, "GSP's processor has stopped"),
    (("ga102", "gh100"), "gsp_bad_checksum", -1, DeviceHung, "its checksum is wrong"),
    (("ga102",), "rm_status", INVALID_CLASS, RmRefused, "NV_ERR_INVALID_CLASS"),
)


@pytest.mark.parametrize(
    ("chip", "fault", "argument", "error", "said"),
    [pytest.param(chip, *rest, id=f"{chip}-{rest[0]}") for chips, *rest in FAILURES for chip in chips],
)
def test_a_start_that_fails_names_its_stage_and_leaves_a_card_that_starts(bench, chip, fault, argument, error, said):
    one = bench(chip)
    one.card.faults.inject(fault, argument)
    with pytest.raises(error, match=rf"^{one.card.name}: [a-zA-Z -]+: .*{said}|^{one.card.name}: {said}"):
        one.start()
    assert not one.card.config.read(COMMAND, 2) & MASTER
    one.card.faults.clear()
    with one.running() as running:
        make_subdevice(running.door)


@pytest.mark.parametrize("chip", ["ga102", "gh100"])
@pytest.mark.parametrize("reads", [1, 15, 60])
def test_a_card_that_falls_off_the_bus_is_called_lost(bench, chip, reads):
    one = bench(chip)
    one.card.faults.inject("all_ones_after_reads", reads)
    with pytest.raises(DeviceLost, match="gone from the bus"):
        one.start()


def test_a_card_that_is_lost_while_it_waits_for_an_answer_is_called_lost(bench):
    one = bench("ga102")
    running = one.start().running
    one.card.faults.inject("gsp_silent")
    one.card.faults.inject("all_ones_after_reads", 2)
    with pytest.raises(DeviceLost, match="gone from the bus"):
        running.door.alloc(CLIENT, 0, CLIENT, ROOT_CLASS, bytes(108))
    with pytest.raises((DeviceLost, DeviceHung)):
        running.stop()


def test_after_a_call_without_an_answer_no_other_is_made(bench):
    one = bench("ga102")
    running = one.start().running
    one.card.faults.inject("gsp_silent", 1)
    with pytest.raises(DeviceTimeout, match="answer to GSP_RM_ALLOC: nothing came for 6000 ms"):
        running.door.alloc(CLIENT, 0, CLIENT, ROOT_CLASS, bytes(108))
    with pytest.raises(DeviceHung, match="calling GSP_RM_ALLOC: GSP_RM_ALLOC failed before"):
        running.door.alloc(CLIENT, 0, CLIENT, ROOT_CLASS, bytes(108))
    with pytest.raises(DeviceHung, match="UNLOADING_GUEST_DRIVER"):
        running.stop()
    assert look(running.registers) is Found.COLD


def test_a_refusal_has_the_status(bench):
    with bench("ad102").running() as running:
        with pytest.raises(RmRefused, match="NV_ERR_") as refused:
            running.door.alloc(CLIENT, CLIENT, DEVICE, DEVICE_CLASS, bytes(DEVICE_BYTES))
        assert refused.value.status
        assert refused.value.name.startswith("NV_ERR_")
        make_subdevice(running.door)


def provoke(running):
    """Have GSP-RM send a message that no call waits for; return the vectors that were served until it came."""
    handled, served = len(running.events), []
    running.rpc.post(GET_STATIC_INFO, bytes(STATIC_INFO_BYTES[running.release]))
    for _ in range(5):
        # an interrupt that came before may be told first
        served += running.wait_interrupt(10_000)
        if len(running.events) > handled:
            return served
    raise AssertionError("nothing came")


@pytest.mark.parametrize("chip", ["tu102", "ga102", "gh100"])
def test_an_interrupt_of_gsp_is_served_and_comes_again(bench, chip):
    one = bench(chip)
    with one.running() as running:
        assert running.vector == one.card.chip.gsp_vector
        for _ in range(3):
            assert running.vector in provoke(running)


@pytest.mark.parametrize("names", [200, "too high"])
def test_a_gsp_that_names_no_interrupt_is_asked_instead(bench, monkeypatch, caplog, names):
    """`names`: an engine that the table lacks, or GSP's own with a vector that no tree has."""
    if names == "too high":
        monkeypatch.setattr("ringup.drivers.nv.gsp.running.MAX_LEAVES", 0)
    else:
        monkeypatch.setattr("ringup.drivers.nv.gsp.running.GSP_ENGINE_INDEX", {"535": names})
    with bench("ga102").running() as up:
        assert up.vector is None
        assert "GSP-RM names no interrupt of its own" in caplog.text
        assert provoke(up) == []


def test_events_come_without_interrupts_too(bench):
    one = bench("ga102")
    with one.running() as running:
        running.wait_interrupt(10_000)
        one.card.faults.inject("lost_interrupt")
        provoke(running)


@pytest.mark.parametrize("chip", ["ga102", "gb202"])
def test_a_control_that_takes_several_messages_is_answered(bench, chip):
    with bench(chip).running() as running:
        with pytest.raises(RmRefused):
            running.door.control(running.static.client, running.static.subdevice, 0x2080_FFFF, bytes(200_000))
        assert running.ask().name


class Patched:
    """A card whose files are not what they were."""

    def __init__(self, card, patch):
        self._card, self._patch = card, patch

    def __getattr__(self, name):
        return getattr(self._card, name)

    def firmware(self, name):
        data = self._card.firmware(name)
        return None if data is None else self._patch(name, data)


@pytest.mark.parametrize("kind", ["gsp", "booter_load", "booter_unload", "bootloader"])
def test_truncated_files_are_refused_before_the_card_is_started(bench, kind):
    one = bench("ga102")
    one.card = Patched(one.model, lambda name, data: data[: len(data) // 2] if f"/{kind}-" in name else data)
    with pytest.raises(FirmwareError, match=rf"reading firmware: .*{kind}-535"):
        one.start()
    one.card = one.model
    with one.running() as running:
        assert running.static.name


def test_files_of_another_chip_are_refused(bench):
    one, other = bench("ga102"), bench("tu102").model
    one.card = Patched(one.model, lambda name, data: other.firmware(name.replace("ga102", "tu102")))
    with pytest.raises(FirmwareError, match="no signature for ga102"):
        one.start()


def test_an_unknown_release_is_refused(bench):
    with pytest.raises(NotSupported, match=r"release 560\.1: its structs are not known; known releases: 535\.113\.01"):
        bench("ga102").start(release="560.1")


def test_a_card_without_files_says_what_to_install(bench):
    one = bench("ga102")
    one.card = Patched(one.model, lambda name, data: None)
    with pytest.raises(FirmwareError, match=r"nvidia/ga102/gsp/gsp-535\.113\.01\.bin is not in any folder; install"):
        one.start()


def test_gsp_logs_are_kept_as_raw_records(bench):
    with bench("ga102").running() as running:
        log = running.arguments._logs["LOGRM"]
        # liblogdecode.c, libosExtractLog_ReadRecord: log_entries is size / 8 - 1
        at = 8
        struct.pack_into("<Q", log.view, 0, 2)
        struct.pack_into("<QQ", log.view, at, 0x11, 0x22)
        assert running.logs() == {"LOGINIT": b"", "LOGINTR": b"", "LOGRM": struct.pack("<QQ", 0x11, 0x22)}
        room = (0x1_0000 - at) // 8
        struct.pack_into("<Q", log.view, 0, room + 1)
        assert running.logs()["LOGRM"][:8] == struct.pack("<Q", 0x22)
        assert running.logs()["LOGRM"][-8:] == struct.pack("<Q", 0x11)
        assert len(running.logs()["LOGRM"]) == 8 * room
    assert len(running.logs()["LOGRM"]) == 8 * room
