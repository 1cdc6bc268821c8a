"""The security processor: it boots, loads all firmware in Linux's order, and may refuse at every step."""

from dataclasses import replace

import pytest

from ringup.autogen.amd import psp, ucode
from ringup.drivers.amd.bus.vram import VramWindow
from ringup.drivers.amd.psp.processor import ROWS, Psp
from ringup.drivers.amd.psp.ring import MAILBOXES, PspBuffers, PspRing, Response
from ringup.errors import DeviceLost, DeviceTimeout, FirmwareError, NotSupported

CHIPS = ("navi31", "navi32", "navi33", "navi44", "navi48")
RLC_G, SMU, REG_LIST = 8, 18, 67  # psp_gfx_if.h, GFX_FW_TYPE_*
# Recorded from amdgpu.ko on a navi31 with firmware 20250410: SMU first, then SDMA, PFP, ME, MEC and their stacks, MES,
# IMU, RLC lists and programs; the register list is last.
ORDER = [SMU, 71, 72, 87, 88, 89, *range(90, 98), 33, 34, 81, 82, 68, 69, 20, 21, 26, 48, 25, 7, RLC_G, REG_LIST]
# Boot-loader parts of Debian's psp_*_sos.bin 20250410, in Linux's order. The ring and the table of contents follow.
STEPS = {
    "navi31": ["kdb", "spl", "sys_drv", "sos", "ring", "toc", "smu", "tmr"],
    "navi32": [
        "kdb",
        "sys_drv",
        "soc_drv",
        "intf_drv",
        "dbg_drv",
        "ras_drv",
        "sos",
        "ring",
        "toc",
        "tmr",
        "smu",
    ],
    "navi33": ["kdb", "spl", "sys_drv", "sos", "ring", "toc", "smu", "tmr"],
    # the VBIOS has reserved a TMR here: amdgpu_psp.c, boot_time_tmr
    "navi44": ["kdb", "spl", "sys_drv", "soc_drv", "intf_drv", "dbg_drv", "ipkeymgr_drv", "sos", "ring", "toc", "smu"],
    "navi48": [
        "kdb",
        "spl",
        "sys_drv",
        "soc_drv",
        "intf_drv",
        "dbg_drv",
        "ras_drv",
        "ipkeymgr_drv",
        "sos",
        "ring",
        "toc",
        "smu",
    ],
}


@pytest.fixture
def real(sources):
    """The folder of Debian's firmware files."""
    return sources.root("firmware-amd") / "lib/firmware"


@pytest.mark.parametrize("chip", CHIPS)
def test_everything_that_a_card_runs_is_loaded_and_the_rlc_boots(boot, chip):
    card = boot(chip).load()
    radeon = card.radeon
    assert radeon.psp.alive
    assert card.psp.alive
    assert {SMU, RLC_G} <= set(radeon.psp.ring.images)
    radeon.clock.sleep_us(100_000)
    assert radeon.gc.rlc.booted
    assert radeon.smu.running
    assert card.psp.tmr_bytes > 0


@pytest.mark.parametrize("chip", CHIPS)
def test_the_published_files_load(boot, chip, real):
    card = boot(chip)
    card.load(card.firmware(real))
    card.radeon.clock.sleep_us(100_000)
    assert card.radeon.gc.rlc.booted
    assert [step.name for step in card.psp.steps][: len(STEPS[chip])] == STEPS[chip]
    assert all(step.took_us > 0 for step in card.psp.steps)


def test_firmware_goes_in_the_kernels_order(boot, real):
    card = boot("navi31")
    card.load(card.firmware(real))
    assert list(card.radeon.psp.ring.images) == ORDER


def test_a_small_window_is_enough(boot):
    card = boot("navi31", vram_bytes=512 << 20, bar0_bytes=256 << 20)
    card.TMR_PA = 400 << 20  # beyond the window
    card.load()
    card.radeon.clock.sleep_us(100_000)
    assert card.radeon.gc.rlc.booted


def test_nothing_reaches_the_card_without_a_flush(boot):
    card = boot("navi31")
    # Without a flush, the host's writes never arrive.
    card.radeon.hdp.drain_us = None
    card.load()
    assert RLC_G in card.radeon.psp.ring.images


def test_the_cost_of_a_start_is_bounded(boot, real):
    card = boot("navi31")
    firmware = card.firmware(real)
    before = card.registers.reads, card.registers.writes
    card.load(firmware)
    assert card.registers.reads - before[0] < 150
    assert card.registers.writes - before[1] < 120


def test_a_secure_os_that_runs_is_not_booted_again(boot):
    card = boot("navi31").load()
    again = card.make_psp()
    again.boot(card.firmware().boot)
    assert again.steps == []


def test_the_ring_goes_round(boot):
    card = boot("navi31").load()
    for _ in range(150):  # 64 frames fill the ring once
        card.psp._load_toc(card.firmware().boot[ucode.PSP_FW_TYPE_PSP_TOC])
    assert len(card.radeon.log.find("command", "psp")) > 150


def test_an_earlier_drivers_ring_is_taken_down_first(boot):
    card = boot("navi31").load()
    again = card.make_psp(buffers=replace(card.BUFFERS, ring=0x5000))
    again.boot({})
    again.ring.create(stale=True)
    again._load_toc(card.firmware().boot[ucode.PSP_FW_TYPE_PSP_TOC])
    assert again.tmr_bytes == card.psp.tmr_bytes


def test_stopped_twice_it_is_stopped_and_takes_no_command(boot):
    card = boot("navi31").load()
    card.psp.stop()
    card.psp.stop()
    with pytest.raises(ValueError, match="the secure OS has no ring: create it first"):
        card.psp._load_toc(card.firmware().boot[ucode.PSP_FW_TYPE_PSP_TOC])
    # The secure OS still runs.
    assert card.psp.alive


def reserve(monkeypatch, version, answers):
    """Have the row of navi31 ask for reserved memory since `version`; `answers` to its commands, by their number."""
    monkeypatch.setitem(ROWS, (13, 0, 0), replace(ROWS[13, 0, 0], reserved_since=version))
    asked, submit = [], PspRing.submit

    def answer(ring, cmd, doing):
        if cmd.cmd_id not in (0x50, 0x51):
            return submit(ring, cmd, doing)
        asked.append(cmd.cmd_id)
        return answers[cmd.cmd_id]

    monkeypatch.setattr(PspRing, "submit", answer)
    return asked


def reserved(start, size_bytes):
    """The response psp_gfx_uresp_fw_reserve_info of psp_gfx_if.h: the start's upper half, its lower half, the size."""
    return Response(0, 0, (start >> 32, start & 0xFFFF_FFFF, size_bytes, 0, 0, 0, 0, 0))


def test_a_secure_os_is_asked_which_memory_is_reserved(boot, monkeypatch):
    # GFX_CMD_ID_FB_FW_RESERV_ADDR 0x50 and _EXT_ADDR 0x51; the second part has no bytes
    answers = {0x50: reserved(60 << 20, 2 << 20), 0x51: reserved(0, 0)}
    asked = reserve(monkeypatch, 1, answers)
    card = boot("navi31").load()
    assert asked == [0x50, 0x51]
    assert card.psp.reserved == (60 << 20,)
    steps = [step.name for step in card.psp.steps]
    assert steps.index("ring") < steps.index("reserved memory") < steps.index("toc")


def test_an_older_secure_os_is_not_asked(boot, monkeypatch):
    asked = reserve(monkeypatch, 0xFFFF_FFFF, {})
    card = boot("navi31").load()
    assert (asked, card.psp.reserved) == ([], ())


def test_the_kernel_asks_these_secure_oses():
    """psp_update_fw_reservation of Linux 6.17."""
    assert {version: row.reserved_since for version, row in ROWS.items() if row.reserved_since} == {
        (14, 0, 2): 0x3B0E0D,
        (14, 0, 3): 0x3A0E14,
    }


def test_a_secure_os_that_does_not_know_the_question_loads_all(boot, monkeypatch):
    unknown = Response(0x100, 0, (0,) * 8)  # PSP_ERR_UNKNOWN_COMMAND
    asked = reserve(monkeypatch, 1, {0x50: unknown, 0x51: unknown})
    card = boot("navi31").load()
    assert (asked, card.psp.reserved) == ([0x50, 0x51], ())
    assert RLC_G in card.radeon.psp.ring.images


@pytest.mark.parametrize(
    ("start", "size_bytes", "text"),
    [
        (
            1 << 20,
            1 << 20,
            "the start of the memory .* is stated as 0x100000, 1048576 in decimal; valid are 33554432 to",
        ),
        (1 << 40, 1 << 20, "the start of the memory"),
        (63 << 20, 2 << 20, r"the size of the memory .* \(FB_FW_RESERV_ADDR\) is stated as 0x200000"),
    ],
)
def test_reserved_memory_that_cannot_be_is_refused(boot, monkeypatch, start, size_bytes, text):
    reserve(monkeypatch, 1, {0x50: reserved(start, size_bytes)})
    with pytest.raises(FirmwareError, match=text):
        boot("navi31").load()


# --- each stage fails in turn -----------------------------------------------------------------------------------
@pytest.mark.parametrize("error", [1, 0x55, 0xFF])
def test_a_part_that_the_boot_loader_refuses_is_named(boot, error):
    card = boot("navi31")
    card.radeon.faults.inject("psp_bootloader_error", error)
    with pytest.raises(
        FirmwareError,
        match=rf"booting the security processor with kdb: the boot loader refused it with error {error:#04x}",
    ):
        card.load()
    card.radeon.violations.clear()


def test_a_boot_loader_that_never_listens_is_given_time(boot):
    card = boot("navi31")
    card.radeon.psp.cells["MP0_SMN_C2PMSG_35"] = 0
    with pytest.raises(DeviceTimeout, match=r"with kdb: MP0_SMN_C2PMSG_35 read 0x00000000 .* for 3000 ms"):
        card.load()


def test_a_secure_os_that_never_starts_is_reported(boot):
    card = boot("navi31")
    card.radeon.faults.inject("psp_no_sign_of_life")
    with pytest.raises(
        DeviceTimeout, match=r"starting the secure OS \(sos\): MP0_SMN_C2PMSG_81 read 0x00000000 .* for 1000 ms"
    ):
        card.load()


def test_a_fence_that_is_never_written_is_reported(boot):
    card = boot("navi31")
    card.radeon.faults.inject("psp_stuck_fence")
    with pytest.raises(
        DeviceTimeout, match=r"loading toc \(LOAD_TOC\): the secure OS's fence is 0x0, not 0x1, after 2000 ms"
    ):
        card.load()


def test_an_earlier_drivers_fence_is_no_answer(boot):
    card = boot("navi31")
    card.radeon.vram.write(card.BUFFERS.fence, (1).to_bytes(4, "little"))
    card.radeon.faults.inject("psp_stuck_fence")
    with pytest.raises(DeviceTimeout, match="fence is 0x0, not 0x1"):
        card.load()


def test_the_fence_is_in_the_unused_part_of_a_command():
    buffers, command = PspBuffers(message=0, ring=1 << 20, command=2 << 20), psp.psp_gfx_cmd_resp
    free = range(buffers.command + command.offset_of("reserved_1"), buffers.response)
    assert buffers.fence in free
    assert buffers.fence + 3 in free
    assert buffers.fence // 64 == (buffers.response + psp.psp_gfx_resp.offset_of("tmr_size")) // 64


@pytest.mark.parametrize("cut", range(4, 132, 4))
def test_a_read_during_which_the_answer_arrives_is_not_trusted(boot, monkeypatch, cut):
    """Memory is read in ascending order: bytes read before the answer came are old, the others are new."""
    card, looks, read = boot("navi31"), [], VramWindow.read

    def torn(window, vram_pa, size_bytes):
        looks.append(vram_pa)
        seen = read(window, vram_pa, size_bytes)
        return bytes(cut)[:size_bytes] + seen[cut:] if len(looks) % 2 else seen

    monkeypatch.setattr(VramWindow, "read", torn)
    card.load()
    assert card.psp.tmr_bytes > 0
    assert looks.count(looks[0]) > len(ORDER)


@pytest.mark.parametrize(
    ("status", "text"),
    [(0xFFFF000A, r"0xffff000a \(not supported\)"), (0x100, r"0x100 \(unknown command\)"), (7, "0x7;")],
)
def test_a_status_other_than_zero_is_refused_by_name(boot, status, text):
    card = boot("navi31")
    card.radeon.faults.inject("psp_status", status)
    with pytest.raises(FirmwareError, match=f"toc: the security processor answered LOAD_TOC with status {text}"):
        card.load()
    card.radeon.violations.clear()


@pytest.mark.parametrize("name", ["smu", "mec", "rlc.iram", "imu.dram"])
def test_a_damaged_piece_is_named(boot, real, name):
    card = boot("navi31")
    firmware = card.firmware(real)
    parts = [replace(part, data=part.data[:-64]) if part.name == name else part for part in firmware.parts]
    with pytest.raises(FirmwareError, match=rf"^{name}: the security processor answered LOAD_IP_FW with status"):
        card.load(replace(firmware, parts=parts))
    card.radeon.violations.clear()


def test_a_register_list_that_is_refused_stops_nothing(boot, real, caplog):
    card = boot("navi31")
    firmware = card.firmware(real)
    listed = replace(firmware.register_list, data=firmware.register_list.data[:-64])
    card.load(replace(firmware, register_list=listed))
    assert "answered sos.rl with status" in caplog.text
    card.radeon.violations.clear()


def test_firmware_without_the_rlc_or_a_table_of_contents_is_refused_before_anything_is_loaded(boot):
    card = boot("navi31")
    firmware = card.firmware()
    no_rlc = [part for part in firmware.parts if part.fw_type != RLC_G]
    with pytest.raises(FirmwareError, match="among the firmware is no RLC code"):
        card.load(replace(firmware, parts=no_rlc))
    no_toc = {kind: part for kind, part in firmware.boot.items() if kind != ucode.PSP_FW_TYPE_PSP_TOC}
    with pytest.raises(FirmwareError, match="the sos image has no toc"):
        card.load(replace(firmware, boot=no_toc))
    assert not card.radeon.psp.loaded


@pytest.mark.parametrize("size", [0, (1 << 20) + 1])
def test_a_piece_of_an_impossible_size_is_named(boot, size):
    card = boot("navi31")
    firmware = card.firmware()
    parts = [replace(part, data=bytes(size)) if part.name == "mec" else part for part in firmware.parts]
    with pytest.raises(FirmwareError, match=f"mec: a part has 1 to 1048576 bytes, not {size}"):
        card.load(replace(firmware, parts=parts))


def test_the_trusted_memory_lies_on_a_mib_inside_memory(boot):
    for at in (0x1000, 63 << 20):
        card = boot("navi31")
        card.TMR_PA = at
        with pytest.raises(ValueError, match=f"lies on a MiB inside VRAM, not at {at:#x}"):
            card.load()


def test_a_card_that_goes_away_meanwhile_is_lost(boot):
    card = boot("navi31")
    card.radeon.faults.inject("all_ones_after_reads", 60)
    with pytest.raises(DeviceLost, match="virtual:navi31 is gone from the bus"):
        card.load()
    card.radeon.violations.clear()


def test_impossible_versions_and_buffers_are_refused(boot):
    card = boot("navi31")
    block = card.ips.block("mp0")
    with pytest.raises(NotSupported, match=r"the security processor is version 12\.0\.1; known are 13\.0\.0"):
        Psp(block, (12, 0, 1), card.window, card.hdp, card.BUFFERS, card.fb_base)
    with pytest.raises(ValueError, match="takes parts from whole MiB, not from 0x180000"):
        Psp(block, (13, 0, 0), card.window, card.hdp, PspBuffers(0x18_0000, 0x1000, 0x2000), card.fb_base)


@pytest.mark.parametrize("version", ROWS)
def test_every_version_has_its_mailbox(version):
    mailbox = MAILBOXES[version[0]]
    assert all(word.place(version) for word in mailbox if word is not None)
    assert mailbox.command.place(version)[0] == mailbox.address.place(version)[0] - 1  # C2PMSG_35 and 36


def test_newer_processors_boot_their_key_manager_and_get_no_memory():
    row = ROWS[14, 0, 2]
    # PSP_FW_TYPE_PSP_IPKEYMGR_DRV, PSP_BL__LOAD_IPKEYMGRDRV: amdgpu_psp.h
    assert row.steps[-1] == (0xB, 0xF0000)
    # amdgpu_psp.c, psp_hw_start: boot_time_tmr and autoload_supported
    assert not row.sets_up_tmr
