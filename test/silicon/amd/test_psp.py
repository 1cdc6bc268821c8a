"""The PSP: order of components, sign of life, ring, commands, and everything it refuses. Source: psp_v13_0.c,
psp_gfx_if.h.

Frames and command buffers are packed here by hand, at the offsets of psp_gfx_if.h. A frame holds command buffer (0),
fence address (12) and value (20). A command buffer holds the id (8), operands (28) and the response (864: status,
session, address, 16 further on the TMR size).
"""

from __future__ import annotations

import struct
from hashlib import sha256, shake_128

import pytest

from ringup.silicon.amd.common.parts import Board, VmFault
from ringup.silicon.amd.psp import images, signing
from ringup.silicon.amd.psp.processor import Psp
from ringup.silicon.common.cells import Cells, RegisterSpace
from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.common.faults import Faults
from ringup.silicon.common.log import EventLog
from ringup.silicon.common.memory import HostMemory, Vram

KDB, SPL, SYS, SOS = 0x80000, 0x1000_0000, 0x10000, 0x20000  # enum psp_bootloader_cmd
READY = 0x8000_0000
BUFFER, RING, COMMAND, FENCE, IMAGE, TMR = 0x10_0000, 0x30_0000, 0x31_0000, 0x32_0000, 0x40_0000, 0x80_0000
TMR_BYTES, RING_BYTES = 0x140_0000, 0x1000
SMU, RLC_G, IMU_I, IMU_D, MEC = 18, 8, 68, 69, 89  # enum psp_gfx_fw_type


# All others are for graphics.
USAGES = {0x0A: 0, 0x09: 0, 0x56: 0, 0x4F: 0, 0x3B: 0x8B, 0x3C: 0x8B, 1: 0x2F, 0: 0x11, 0x35: 0x3C}


def image(size=0x1000, kind=0x48, *, words=None, key=None, body=None, magic=b"$PS1", resign=True):
    """Return a signed image in the format of the files. Source: PSPTool's header_file.py.

    `$PS1` is at 0x10, the size of the body at 0x14, signed at 0x30, the key at 0x38, the kind at 0x58, the version at
    0x60, the size at 0x6c, the SHA-256 of the body at 0xd0, and the signature behind the body. With `resign=False` the
    header changes after the signature was made.
    """
    full = {1: 0x1001, 0: 0x0000, 0x0A: 0x000A, 0x09: 0x0009, 0x56: 0x0056, 0x4F: 0x004F, 0x35: 0x0135}.get(
        kind, 0x2000 | kind
    )
    body = b"\x5a" * (size - 0x200) if body is None else body
    usage = USAGES.get(kind, 0x0A)
    data = bytearray(0x100) + body
    data[0x10:0x14] = magic
    data[0x38:0x48] = key or (signing.key_id(usage) if usage else signing.ROOT_ID)
    data[0xD0:0xF0] = sha256(body).digest()
    stated = {0x14: len(body), 0x30: 1, 0x58: 0x8101_0000 | full, 0x60: 0x0031_0032, 0x6C: len(body) + 0x200}
    for at, value in (stated | (words or {}) if resign else stated).items():
        struct.pack_into("<I", data, at, value)
    signature = signing.sign(bytes(data))
    for at, value in (words or {}).items():
        struct.pack_into("<I", data, at, value)
    return bytes(data) + signature


KEYS = image(kind=0x4F, body=signing.database([0x0A, 0x8B, 0x2F, 0x11, 0x3C]), magic=bytes(4))
SPL_IMAGE, SYS_IMAGE, SOS_IMAGE = (image(kind=kind) for kind in (0x56, 0x0A, 0x09))


class Pages:
    """MMHUB over one flat piece of memory."""

    def __init__(self):
        self.data = bytearray(0x200_0000)

    def _check(self, vmid, gpu_va, size, write):
        if vmid or not 0 <= gpu_va <= len(self.data) - size:
            raise VmFault("mmhub", vmid, gpu_va, write, "unmapped")

    def read(self, vmid, gpu_va, size_bytes, client):
        self._check(vmid, gpu_va, size_bytes, False)
        return bytes(self.data[gpu_va : gpu_va + size_bytes])

    def reach(self, vmid, gpu_va, size_bytes):
        return max(0, min(size_bytes, len(self.data) - gpu_va))

    def write(self, vmid, gpu_va, data, client):
        self._check(vmid, gpu_va, len(data), True)
        self.data[gpu_va : gpu_va + len(data)] = data


class Target:
    def __init__(self):
        self.got = []

    def firmware_loaded(self, fw_type, image):
        self.got.append((fw_type, len(image)))


# longer than a driver polls for the sign of life, and the time until rings are taken
SECURE_OS_US = 110_000


class Rig:
    def __init__(self, **changed):
        clock = VirtualClock()
        self.board = Board("navi31", clock, EventLog(clock), Faults(), RegisterSpace(), Vram(4096), HostMemory())
        self.cells, self.pages, self.target = Cells("navi31", "mp"), Pages(), Target()
        self.autoloaded, self.resets = [], []
        self.psp = Psp(
            self.board, self.cells, self.pages, [self.target], tmr_bytes=TMR_BYTES,
            on_autoload=self.autoloaded.append, on_mode1_reset=lambda: self.resets.append(1), **changed,
        )  # fmt: skip
        self.wptr, self.fence = 0, 0

    def set(self, number, value):
        self.cells.write(self.cells.address(f"MP0_SMN_C2PMSG_{number}"), value)

    def get(self, number):
        return self.cells.read(self.cells.address(f"MP0_SMN_C2PMSG_{number}"))

    def boot(self, command, data, time_us=10_000):
        self.pages.data[BUFFER : BUFFER + 0x10_0000] = data.ljust(0x10_0000, b"\0")
        self.set(36, BUFFER >> 20)
        self.set(35, command)
        self.board.clock.sleep_us(time_us)
        return self.get(35)

    def secure_os(self, sos=SOS_IMAGE):
        for command, data in ((KDB, KEYS), (SPL, SPL_IMAGE), (SYS, SYS_IMAGE), (SOS, sos)):
            assert self.boot(command, data) == READY
        self.board.clock.sleep_us(SECURE_OS_US)
        return self

    def control(self, value):
        self.set(64, value)
        self.board.clock.sleep_us(20_000)
        return self.get(64)

    def ring(self, sos=SOS_IMAGE):
        self.secure_os(sos)
        self.set(69, RING)
        self.set(70, 0)
        self.set(71, RING_BYTES)
        assert self.control(2 << 16) & 0x8000_FFFF == READY
        return self

    def frame(self, command=COMMAND, at=None):
        self.fence += 1
        place = RING + self.wptr * 4
        self.pages.data[place : place + 64] = struct.pack("<QIQI", command, 1024, FENCE, self.fence).ljust(64, b"\0")
        self.wptr = (self.wptr + 16) % (RING_BYTES // 4)
        self.set(67, self.wptr)
        self.board.clock.sleep_us(5_000)
        return self

    def command(self, number, *operands):
        """Send a command; return status, session, address and TMR size. The fence must have been written."""
        buffer = bytearray(1024)
        struct.pack_into("<I", buffer, 8, number)
        struct.pack_into(f"<{len(operands)}I", buffer, 28, *operands)
        self.pages.data[COMMAND : COMMAND + 1024] = buffer
        self.frame()
        assert int.from_bytes(self.pages.data[FENCE : FENCE + 4], "little") == self.fence
        status, session, address, tmr = struct.unpack_from("<IIQI", self.pages.data, COMMAND + 864)
        return {"status": status, "session": session, "address": address, "tmr": tmr}

    def load(self, fw_type, data=None, at=IMAGE):
        data = (
            image(kind={SMU: 1, RLC_G: 0x2009, IMU_I: 0x3B, IMU_D: 0x3C, MEC: 0x48}.get(fw_type, 0))
            if data is None
            else data
        )
        self.pages.data[at : at + len(data)] = data
        return self.command(6, at, 0, len(data), fw_type)["status"]

    def setup_tmr(self, base=TMR, size=TMR_BYTES):
        return self.command(5, base, 0, size, 2, base, 0)["status"]

    @property
    def refusals(self):
        return [event.text for event in self.board.log.find("violation")]


@pytest.fixture
def rig():
    return Rig()


@pytest.fixture
def ring():
    return Rig().ring()


def test_the_boot_loader_is_ready_and_the_secure_os_is_not(rig):
    assert (rig.get(33), rig.get(35), rig.get(81), rig.get(64)) == (READY, READY, 0, 0)


def test_ready_drops_with_a_command_and_comes_back(rig):
    rig.set(36, 1)
    rig.set(35, KDB)
    assert rig.get(35) == KDB
    rig.board.clock.sleep_us(10_000)
    assert rig.get(35) & READY


def test_the_sign_of_life_comes_later_than_20_ms_after_the_last_component(rig):
    for command, data in ((KDB, KEYS), (SPL, SPL_IMAGE), (SYS, SYS_IMAGE)):
        rig.boot(command, data)
    assert rig.boot(SOS, SOS_IMAGE, time_us=20_000) == READY
    assert rig.get(81) == 0
    # The answer comes within the driver's 100 ms.
    rig.board.clock.sleep_us(99_000)
    assert rig.get(81) != 0
    # The version in the image's header.
    assert rig.get(58) == 0x0031_0032
    assert rig.get(64) == READY


@pytest.mark.parametrize(
    "order", [[SYS], [SPL], [SOS], [KDB, SOS], [KDB, SPL, SOS]], ids=lambda order: "-".join(hex(one) for one in order)
)
def test_components_out_of_order_are_refused(rig, order):
    data = {KDB: KEYS, SPL: SPL_IMAGE, SYS: SYS_IMAGE, SOS: SOS_IMAGE}
    answers = [rig.boot(command, data[command]) for command in order]
    assert answers[:-1] == [READY] * (len(order) - 1)
    assert answers[-1] != READY
    assert "must be loaded first" in rig.refusals[-1]


# The boot loader and the secure OS answer with codes of GlobalPlatform's TEE client API where one fits.
MISTAKES = {
    "zeros": (lambda good: bytes(len(good)), "nothing has arrived", images.Status.NO_DATA),
    "noise": (lambda good: shake_128(good).digest(len(good)), "no signed header", images.Status.BAD_FORMAT),
    "whole file": (
        lambda good: (
            struct.pack("<IIHHHHIII", 0x100 + len(good), 44, 2, 0, 11, 0, 1, len(good), 0x100).ljust(0x100, b"\0")
            + good
        ),
        "a whole file of the kernel's firmware folder",
        images.Status.BAD_FORMAT,
    ),
    "late slice": (lambda good: bytes(range(64)) + good, "there is one at byte 0x40", images.Status.BAD_FORMAT),
    "no header": (lambda good: good[0x100:], "a part without its header", images.Status.BAD_FORMAT),
    "cut": (lambda good: good[:-16], "it has", images.Status.SHORT_BUFFER),
    "head alone": (lambda good: good[:0x80], "", images.Status.SHORT_BUFFER),
    "flipped in the body": (lambda good: flip(good, 0x234), "SHA-256", images.Status.SECURITY),
    "flipped in the header": (lambda good: flip(good, 0x62), "its signature", images.Status.SECURITY),
    "flipped in the signature": (lambda good: flip(good, -7), "its signature", images.Status.SECURITY),
    "half arrived": (
        lambda good: good[:0x800].ljust(len(good), b"\0"),
        "is incomplete",
        images.Status.SECURITY,
    ),
}


def flip(data, at):
    changed = bytearray(data)
    changed[at] ^= 0x10
    return bytes(changed)


@pytest.mark.parametrize("name", MISTAKES)
def test_each_mistake_with_an_image_has_its_answer_from_the_secure_os(ring, name):
    damage, reason, status = MISTAKES[name]
    ring.setup_tmr()
    assert ring.load(MEC, damage(image())) == status
    assert reason in ring.refusals[-1]
    assert "RS64_MEC" in ring.refusals[-1]
    assert ring.target.got == []
    assert ring.load(MEC) == 0


@pytest.mark.parametrize("name", MISTAKES)
@pytest.mark.parametrize("command", [KDB, SYS])
def test_each_mistake_with_an_image_is_refused_by_the_boot_loader(rig, command, name):
    if command == SYS:
        rig.boot(KDB, KEYS)
    good = {KDB: KEYS, SYS: SYS_IMAGE}[command]
    answer = rig.boot(command, MISTAKES[name][0](good))
    assert answer & 0xFF
    assert "refused" in rig.refusals[-1]
    assert rig.boot(command, good) == READY


def test_answers_of_the_boot_loader_differ_by_kind_of_mistake(rig):
    rig.boot(KDB, KEYS)
    answers = {rig.boot(SYS, MISTAKES[name][0](SYS_IMAGE)) for name in ("zeros", "noise", "flipped in the body")} | {
        rig.boot(SYS, SOS_IMAGE),
        rig.boot(SYS, image(kind=0x0A, key=bytes(16))),
    }
    assert rig.boot(SYS, SYS_IMAGE) == READY
    assert len(answers | {rig.boot(SYS, SYS_IMAGE)}) == 6


def test_a_boot_that_begins_anew_begins_with_the_key_database(rig):
    for _ in range(2):
        for command, data in ((KDB, KEYS), (SPL, SPL_IMAGE), (SYS, SYS_IMAGE)):
            assert rig.boot(command, data) == READY
            assert (rig.boot(command, data) == READY) == (command == KDB)


@pytest.mark.parametrize(
    ("changed", "status", "reason"),
    [
        ({"key": b"a key of mine \0\0"}, images.Status.ACCESS_DENIED, "which this card does not know"),
        ({"key": signing.key_id(0x8B)}, images.Status.ACCESS_DENIED, "for usage 0x8b, not for RS64_MEC"),
        ({"key": signing.ROOT_ID}, images.Status.ACCESS_DENIED, "which this card does not know"),
        ({"kind": 0x3E}, images.Status.BAD_PARAMETERS, "SDMA_UCODE_TH0 where RS64_MEC"),
        ({"words": {0x14: 0x100}}, images.Status.BAD_FORMAT, "a body of"),
        ({"words": {0x6C: 0x2000}}, images.Status.BAD_FORMAT, "a body of"),
        ({"words": {0x30: 0}}, images.Status.BAD_FORMAT, "not signed"),
        ({"words": {0x18: 1}}, images.Status.BAD_FORMAT, "encrypted"),
        ({"words": {0x34: 7}}, images.Status.BAD_FORMAT, "not signed"),
        ({"words": {0x60: 5}, "resign": False}, images.Status.SECURITY, "signature"),
    ],
)
def test_a_header_that_is_none_of_this_part_is_refused(ring, changed, status, reason):
    ring.setup_tmr()
    assert ring.load(MEC, image(**changed)) == status
    assert reason in ring.refusals[-1]


def test_a_part_is_taken_once_until_a_reset(ring):
    ring.setup_tmr()
    assert ring.load(MEC) == 0
    assert ring.load(MEC) == images.Status.BAD_STATE
    assert len(ring.target.got) == 1


def test_the_key_database_serves_where_the_roll_back_table_is_asked_for(rig):
    """psp_v13_0.c does the same: bootloader_load_spl sends the KDB."""
    assert rig.boot(KDB, KEYS) == READY
    assert rig.boot(SPL, SYS_IMAGE) & 0xFF
    assert rig.boot(SPL, KEYS) == READY


def test_keys_are_those_of_the_database_that_was_booted(rig):
    database = image(kind=0x4F, body=signing.database([0x0A]))
    for command, data in ((KDB, database), (SPL, SPL_IMAGE), (SYS, SYS_IMAGE), (SOS, SOS_IMAGE)):
        assert rig.boot(command, data) == READY
    rig.board.clock.sleep_us(SECURE_OS_US)
    rig.set(69, RING)
    rig.set(71, RING_BYTES)
    rig.control(2 << 16)
    rig.setup_tmr()
    assert rig.load(MEC) == 0
    assert rig.load(SMU) == images.Status.ACCESS_DENIED


@pytest.mark.parametrize(
    "body", [b"\x11" * 0x400, signing.database([1])[:-4], signing.database([1]).replace(b"KDB", b"KDC")]
)
def test_a_key_database_that_cannot_be_read_is_refused(rig, body):
    assert rig.boot(KDB, image(kind=0x4F, body=body)) & 0xFF
    assert "key" in rig.refusals[-1]


def test_bytes_of_the_hosts_that_still_wait_are_reported_with_a_refusal():
    late = Rig(waiting=lambda: 0x1800)
    assert late.boot(KDB, b"") & 0xFF
    assert "0x1800 bytes written by the host wait for an HDP flush" in late.refusals[-1]


def test_an_unknown_boot_command_and_an_unmapped_image_are_refused(rig):
    assert rig.boot(0x12345, b"x") & 0xFF
    rig.set(36, 0xFFFFF)
    rig.set(35, KDB)
    rig.board.clock.sleep_us(10_000)
    assert rig.get(35) & 0xFF
    assert "unmapped" in rig.refusals[-1]


def test_commands_before_the_secure_os_get_no_answer(rig):
    assert rig.control(2 << 16) == 2 << 16
    assert "before the secure OS" in rig.refusals[0]


def test_a_secure_os_that_runs_takes_rings_a_little_later(rig):
    for command, data in ((KDB, KEYS), (SPL, SPL_IMAGE), (SYS, SYS_IMAGE)):
        rig.boot(command, data)
    rig.boot(SOS, SOS_IMAGE, time_us=0)
    while not rig.get(81):
        rig.board.clock.sleep_us(100)
    assert rig.get(64) == 0
    rig.set(64, 2 << 16)
    assert "before the secure OS accepts rings" in rig.refusals[-1]
    rig.board.clock.sleep_us(5_000)
    assert rig.get(64) == READY


def test_a_ring_command_shows_the_answer_of_before_for_a_while(ring):
    """psp_v13_0.c sleeps 20 ms before it looks: "there might be handshake issue with hardware which needs delay"."""
    # This creates a second ring, which is refused.
    ring.set(64, 2 << 16)
    ring.board.clock.sleep_us(1_000)
    assert ring.get(64) == READY
    ring.board.clock.sleep_us(19_000)
    assert ring.get(64) & 0xFFFF


@pytest.mark.parametrize(
    ("base", "size"), [(RING + 4, 0x1000), (RING, 0x1010), (RING, 0), (0xFFFF_F000, 0x1000), (RING, 0x20000)]
)
def test_a_ring_that_cannot_work_is_refused(rig, base, size):
    rig.secure_os()
    rig.set(69, base)
    rig.set(71, size)
    assert rig.control(2 << 16) & 0xFFFF


def test_there_is_one_ring_until_it_is_destroyed(ring):
    assert ring.control(2 << 16) & 0xFFFF
    assert ring.control(3 << 16) == READY
    assert ring.control(2 << 16) & 0x8000_FFFF == READY


def test_a_control_command_over_one_that_was_not_read_is_the_only_one(ring):
    ring.set(64, 3 << 16)
    assert ring.control(2 << 16) & 0xFFFF
    assert "0x30000: overwritten" in ring.refusals[-2]


def test_an_unknown_control_command_is_answered_with_an_error(ring):
    assert ring.control(0xB << 16) & 0xFFFF == 0x100  # PSP_ERR_UNKNOWN_COMMAND


def test_mode_1_reset_by_control_command_reaches_the_card(ring):
    ring.control(7 << 16)
    assert ring.resets == [1]


def test_the_ring_wraps_at_every_frame(ring):
    for number in range(3 * RING_BYTES // 64):
        assert ring.command(0x22, 0, 2)["status"] == 0, number  # BOOT_CFG, get
    assert ring.fence == 192


def test_several_frames_behind_one_write_pointer_are_all_done(ring):
    buffer = struct.pack("<2I", 0, 0).ljust(8) + struct.pack("<I", 0x22) + bytes(1012)
    ring.pages.data[COMMAND : COMMAND + 1024] = buffer
    for number in range(5):
        place = RING + number * 64
        ring.pages.data[place : place + 64] = struct.pack("<QIQI", COMMAND, 1024, FENCE + number * 4, 7).ljust(
            64, b"\0"
        )
    ring.set(67, 80)
    ring.board.clock.sleep_us(5_000)
    assert struct.unpack_from("<6I", ring.pages.data, FENCE) == (7, 7, 7, 7, 7, 0)


@pytest.mark.parametrize("wptr", [8, RING_BYTES // 4])
def test_a_write_pointer_off_the_frames_is_ignored_and_noted(ring, wptr):
    ring.set(67, wptr)
    assert "write pointer" in ring.refusals[-1]


def test_the_table_of_contents_states_the_size_of_the_tmr(ring):
    ring.pages.data[IMAGE : IMAGE + 0x900] = image(0x900, kind=0x0E)
    answer = ring.command(0x20, IMAGE, 0, 0x900)
    assert (answer["status"], answer["tmr"]) == (0, TMR_BYTES)


@pytest.mark.parametrize(("base", "size"), [(TMR + 0x1000, TMR_BYTES), (TMR, TMR_BYTES - 1), (0x1F0_0000, TMR_BYTES)])
def test_a_tmr_that_is_misplaced_or_too_small_is_refused(ring, base, size):
    assert ring.setup_tmr(base, size) != 0
    assert ring.setup_tmr() == 0


def test_the_tmr_is_set_up_once_and_given_back_once(ring):
    assert ring.command(7)["status"] != 0
    assert ring.setup_tmr() == 0
    assert ring.setup_tmr() != 0
    assert ring.command(7)["status"] == 0


def test_a_region_of_the_boot_needs_no_host_and_takes_none():
    """amdgpu_psp.c: 14.0.2 and 14.0.3 have boot_time_tmr, for which only DESTROY_TMR is sent."""
    ring = Rig(boot_tmr=True).ring()
    assert ring.setup_tmr() == 0xFFFF_0007
    assert ring.load(MEC) == 0
    assert ring.command(7)["status"] == 0


def test_firmware_other_than_the_smus_needs_the_tmr(ring):
    assert ring.load(SMU) == 0
    assert ring.load(MEC) != 0
    ring.setup_tmr()
    assert ring.load(MEC) == 0
    assert ring.target.got == [(SMU, 0x1000), (MEC, 0x1000)]


def test_room_behind_an_image_is_no_part_of_it(ring):
    ring.setup_tmr()
    # RS64_MEC_P0_STACK as amdgpu sends it.
    assert ring.load(94, image(0x1550, kind=0x49) + bytes(0x1000)) == 0


@pytest.mark.parametrize(
    "data",
    [image()[:-4], bytes(64), image(kind=0x3E)],
    ids=["short", "zeros", "another engine's"],
)
def test_a_damaged_image_is_refused_and_reaches_nobody(ring, data):
    ring.setup_tmr()
    assert ring.load(MEC, data) != 0
    assert ring.target.got == []


@pytest.mark.parametrize("fw_type", [0, 0x82, 0x1234, 59])
def test_unknown_firmware_types_are_refused(ring, fw_type):
    ring.setup_tmr()
    assert ring.load(fw_type, b"\1" * 64) == 0xFFFF_000A  # TEE_ERROR_NOT_SUPPORTED


def test_autoload_needs_the_graphics_cores_images_and_hands_them_on(ring):
    ring.setup_tmr()
    for fw_type in (RLC_G, IMU_I, IMU_D):
        assert ring.load(fw_type) == 0
    assert ring.command(0x21)["status"] != 0
    assert "RS64_MEC, TOC" in ring.refusals[-1]
    ring.load(MEC)
    assert ring.command(0x21)["status"] != 0
    ring.pages.data[IMAGE : IMAGE + 0x900] = image(0x900, kind=0x0E)
    ring.command(0x20, IMAGE, 0, 0x900)
    assert ring.command(0x21)["status"] == 0
    assert sorted(ring.autoloaded[0]) == [RLC_G, IMU_I, IMU_D, MEC]


def test_trusted_applications_have_sessions_of_their_own(ring):
    ring.pages.data[IMAGE : IMAGE + 0x1000] = image(kind=0)
    asd = ring.command(4, IMAGE, 0, 0x1000, 0, 0, 0)
    ta = ring.command(1, IMAGE, 0, 0x1000, 0x50_0000, 0, 0x4000)
    assert asd["session"] != ta["session"]
    assert ring.command(3, ta["session"], 1)["status"] == 0
    assert ring.command(2, ta["session"])["status"] == 0
    assert ring.command(3, ta["session"], 1)["status"] != 0
    assert ring.command(2, ta["session"])["status"] != 0


def test_a_trusted_applications_buffer_is_whole_pages(ring):
    ring.pages.data[IMAGE : IMAGE + 0x1000] = image(kind=0)
    assert ring.command(1, IMAGE, 0, 0x1000, 0x50_0000, 0, 0x3FF0)["status"] != 0
    assert ring.command(1, IMAGE, 0, 0x1000, 0x50_0010, 0, 0x4000)["status"] != 0


def test_a_trusted_applications_buffer_is_not_read_by_the_gigabyte(ring):
    ring.pages.data[IMAGE : IMAGE + 0x1000] = image(kind=0)
    sizes = []
    read = ring.pages.read
    ring.pages.read = lambda vmid, gpu_va, size, client: sizes.append(size) or read(vmid, gpu_va, size, client)
    assert ring.command(1, IMAGE, 0, 0x1000, 0x50_0000, 0, 0xFFFF_F000)["status"] != 0
    assert max(sizes) < 1 << 20


def test_the_boot_configuration_is_kept_masked_and_dropped(ring):
    def get():
        ring.command(0x22, 0, 2)
        return int.from_bytes(ring.pages.data[COMMAND + 864 + 64 : COMMAND + 864 + 68], "little")

    ring.command(0x22, 0, 1, 0b11, 0b01)
    assert get() == 0b01
    ring.command(0x22, 0, 3)
    assert get() == 0
    assert ring.command(0x22, 0, 9)["status"] != 0


@pytest.mark.parametrize("number", [0x77, 8, 9, 0xA, 0xB, 0xF, 0x27])
def test_what_this_secure_os_does_not_offer_is_answered_so(ring, number):
    assert ring.command(number)["status"] in (0x100, 0xFFFF_000A)


def test_an_operand_that_is_unmapped_is_an_answer_and_not_a_hang(ring):
    ring.setup_tmr()
    assert ring.command(6, 0, 0x1234, 0x1000, MEC)["status"] != 0


def test_reset_forgets_the_secure_os_the_ring_and_what_was_loaded(ring):
    ring.setup_tmr()
    ring.load(MEC)
    ring.psp.reset()
    assert (ring.get(35), ring.get(81), ring.get(64)) == (READY, 0, 0)
    assert ring.boot(SYS, SYS_IMAGE) != READY
    ring.wptr = ring.fence = 0
    ring.ring()
    # The TMR is gone too.
    assert ring.load(MEC) != 0


def test_work_under_way_at_a_reset_is_never_answered(ring):
    ring.set(67, 16)
    ring.psp.reset()
    ring.board.clock.sleep_us(10_000)
    assert ring.pages.data[FENCE : FENCE + 4] == bytes(4)


@pytest.mark.parametrize(("argument", "error"), [(9, 9), (-1, 0xFF)])
def test_a_boot_loader_error_can_be_switched_on(rig, argument, error):
    rig.board.faults.inject("psp_bootloader_error", argument)
    assert rig.boot(KDB, KEYS) == READY | error
    assert rig.boot(KDB, KEYS) == READY


def test_other_faults_of_the_psp_can_be_switched_on(ring):
    ring.board.faults.inject("psp_status", 0xFFFF_0002)
    assert ring.setup_tmr() == 0xFFFF_0002
    ring.board.faults.clear()
    ring.board.faults.inject("psp_stuck_fence", 1)
    with pytest.raises(AssertionError):
        ring.setup_tmr()
    fresh = Rig()
    fresh.board.faults.inject("psp_no_sign_of_life")
    fresh.secure_os()
    fresh.board.clock.sleep_us(1_000_000)
    assert fresh.get(81) == 0


@pytest.mark.parametrize(
    ("version", "answers"),
    [
        (0x3A_0E14, True),
        (0x3A_1214, True),
        (0x3B_0E0D, True),
        (0x3A_0E13, False),
        (0x3B_0E0C, False),
        (0x31_FFFF, False),
    ],
)
def test_a_newer_secure_os_tells_which_memory_the_firmware_keeps(version, answers):
    """amdgpu_psp.c, psp_update_fw_reservation, asks from these versions on, and wants the first part to end where VRAM
    does. The answer is at 64 of the response: high and low half of the offset, size.
    """
    rig = Rig(reserved_bytes=516 << 20)
    rig.board.vram = Vram(16 << 30)
    ring = rig.ring(image(kind=9, words={0x60: version}))
    for command, end in ((0x50, 16 << 30), (0x51, None)):
        assert ring.command(command)["status"] == (0 if answers else 0x100)
        high, low, size = struct.unpack_from("<III", ring.pages.data, COMMAND + 864 + 64)
        start = high << 32 | low
        if not answers:
            assert (start, size) == (0, 0)
        elif end is not None:
            assert (start + size, size % (1 << 20)) == (end, 0)
            first = start
        else:
            assert (16 << 30) - (516 << 20) == start < start + size <= first
