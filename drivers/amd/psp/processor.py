"""Security processor (PSP, MP0): boots its secure OS from parts the driver hands its boot loader, then loads every
other processor's firmware.

The boot loader takes one part after another from a buffer of 1 MiB. The secure OS then says how large the trusted
memory region (TMR) must be, gets it, checks and stores each engine's firmware there, and at the end has the run-list
controller load the engines from it.

The driver application ASD and the trusted applications are not loaded: they serve protected displays, memory error
records and links between cards; no queue needs them (amdgpu loads ASD so that it can load those).

Source: amdgpu amdgpu_psp.c, psp_hw_start, psp_tmr_init, psp_load_non_psp_fw, psp_rl_load; psp_v13_0.c; psp_v14_0.c.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ringup.autogen.amd import psp, psp_boot, ucode
from ringup.autogen.amd.mp import MP0_SMN_C2PMSG_33
from ringup.autogen.layout import Word
from ringup.drivers.amd.bus.hdp import Hdp
from ringup.drivers.amd.bus.registers import ONES, Block, Version
from ringup.drivers.amd.bus.vram import VramWindow
from ringup.drivers.amd.psp.ring import COMMANDS, HANDSHAKE_US, LOW, PspBuffers, PspRing, Response
from ringup.errors import DeviceTimeout, FirmwareError, NotSupported
from ringup.firmware.stated import within

if TYPE_CHECKING:
    from ringup.firmware.amd.parts import Part

LOG = logging.getLogger(__name__)
MIB = psp_boot.PSP_1_MEG
READY = 0x8000_0000
LOADER_ERROR = 0xFF  # bits 7:0 of the boot loader's answer are an error: psp_v13_0.c, psp_v13_0_wait_for_bootloader
# TIMEOUT: psp_v13_0.c: ten times psp_wait_for, which polls 100,000 times 1 us and a read: some 200 ms
LOADER_TIMEOUT_US = 3_000_000
LOADER_POLL_US = 1000
# TIMEOUT: psp_v13_0.c, psp_v13_0_bootloader_load_sos: one psp_wait_for behind the delay, some 200 ms
OS_TIMEOUT_US = 1_000_000
OS_POLL_US = 5000
# TIMEOUT: ours, for cards of several dies; psp_v13_0.c tries PSP_VMBX_POLLING_LIMIT (3000) times psp_wait_for: minutes
DIES_TIMEOUT_US = 20_000_000
POWER_VERSION = 0x03B1_0090  # the power controller's firmware. Source: psp_v13_0.c, regMP1_PUB_SCRATCH0
STATUS = {
    psp.TEE_ERROR_CANCEL: " (cancelled)",
    psp.TEE_ERROR_NOT_SUPPORTED: " (not supported)",
    psp.PSP_ERR_UNKNOWN_COMMAND: " (unknown command)",
}

# GFX_CMD_ID_FB_FW_RESERV_ADDR and _EXT_ADDR, which psp_gfx_if.h has since Linux 6.17. They are answered with
# psp_gfx_uresp_fw_reserve_info: bits 63:32 of the offset in VRAM, bits 31:0, the size
ASK_RESERVED = {0x50: "FB_FW_RESERV_ADDR", 0x51: "FB_FW_RESERV_EXT_ADDR"}
# QUIRK: psp_v13_0.c, psp_v13_0_bootloader_load_spl sends the keys
SPL_IS_KEYS = {ucode.PSP_FW_TYPE_PSP_SPL: ucode.PSP_FW_TYPE_PSP_KDB}
STEPS = (  # part that must be there, what the boot loader is told. Source: amdgpu_psp.c, psp_hw_start
    (ucode.PSP_FW_TYPE_PSP_KDB, psp_boot.PSP_BL__LOAD_KEY_DATABASE),
    (ucode.PSP_FW_TYPE_PSP_SPL, psp_boot.PSP_BL__LOAD_TOS_SPL_TABLE),
    (ucode.PSP_FW_TYPE_PSP_SYS_DRV, psp_boot.PSP_BL__LOAD_SYSDRV),
    (ucode.PSP_FW_TYPE_PSP_SOC_DRV, psp_boot.PSP_BL__LOAD_SOCDRV),
    (ucode.PSP_FW_TYPE_PSP_INTF_DRV, psp_boot.PSP_BL__LOAD_INTFDRV),
    (ucode.PSP_FW_TYPE_PSP_DBG_DRV, psp_boot.PSP_BL__LOAD_DBGDRV),
    (ucode.PSP_FW_TYPE_PSP_RAS_DRV, psp_boot.PSP_BL__LOAD_RASDRV),
)
KEY_MANAGER = (ucode.PSP_FW_TYPE_PSP_IPKEYMGR_DRV, psp_boot.PSP_BL__LOAD_IPKEYMGRDRV)


@dataclass(frozen=True, slots=True)
class PspRow:
    """What differs by version of MP0.

    `reserved_since`: the secure OS that tells which memory the card's own firmware keeps; 0: none does.
    `instead`: a part that is sent in another's place. `exact_ready`: the boot loader's answer must be bit 31 alone; 14
    is asked for the bit. `smu_first`: the power controller's firmware goes before the TMR, since it manages the
    fabric's idle states. `sizes_tmr`: the secure OS says how large the TMR must be. `sets_up_tmr`: the driver tells
    where the TMR lies, which is nowhere for a size that was not asked for: the card's own firmware has reserved one.
    `autoloads`: the run-list controller loads the engines. `mailbox_ready`: whether the mailbox itself must be ready
    before the first part. `aux_below`: the power controller's firmware that is older than this needs the second set of
    the boot image; 0: there is none. `table_since`: the secure OS that takes a table of the power controller's file
    first; 0: none does. `runtime_facts`: whether this boot leaves facts in VRAM. `patience_us`: how long the boot
    loader may be busy. `boot_tmr_bytes`: what a card whose own firmware has reserved the TMR keeps at the end of VRAM.
    """

    steps: tuple[tuple[int, int], ...] = STEPS
    instead: Mapping[int, int] = field(default_factory=dict)
    exact_ready: bool = True
    smu_first: bool = True
    sizes_tmr: bool = True
    sets_up_tmr: bool = True
    reserved_since: int = 0
    autoloads: bool = True
    mailbox_ready: bool = False
    aux_below: int = 0
    table_since: int = 0
    runtime_facts: bool = True
    patience_us: int = LOADER_TIMEOUT_US
    boot_tmr_bytes: int = 0


V14 = PspRow(
    (*STEPS, KEY_MANAGER),
    exact_ready=False,
    smu_first=False,
    sets_up_tmr=False,
    # The firmware tells it since Linux 6.17's `reserved_since`. Before: amdgpu takes it from the VBIOS, and its logs on
    # cards of 8 and 16 GiB show the GART's table, the highest allocation, 517 MiB below the end of VRAM.
    boot_tmr_bytes=516 << 20,
)
ROWS: dict[Version, PspRow] = {  # amdgpu_psp.c: psp_early_init and psp_check_pmfw_centralized_cstate_management
    (13, 0, 0): PspRow(instead=SPL_IS_KEYS),
    # psp_v13_0_wait_for_vmbx_ready, psp_v13_0_is_aux_sos_load_required; psp_load_p2s_table; psp_sw_init
    (13, 0, 6): PspRow(
        instead=SPL_IS_KEYS,
        smu_first=False,
        sizes_tmr=False,
        autoloads=False,
        mailbox_ready=True,
        aux_below=0x55_7300,
        table_since=0x36_003C,
        runtime_facts=False,
        patience_us=DIES_TIMEOUT_US,
        # amdgpu_ttm.c, amdgpu_ttm_reserve_tmr, of a card whose VBIOS is not read
        boot_tmr_bytes=280 << 20,
    ),
    (13, 0, 7): PspRow(instead=SPL_IS_KEYS),
    (13, 0, 10): PspRow(instead=SPL_IS_KEYS, smu_first=False),
    # amdgpu's "Add PSP fw version check for fw reserve GFX command", psp_update_fw_reservation
    (14, 0, 2): replace(V14, reserved_since=0x3B0E0D),
    (14, 0, 3): replace(V14, reserved_since=0x3A0E14),
}


@dataclass(frozen=True, slots=True)
class PspFirmware:
    """The firmware that a card is started with: `boot` by `PSP_FW_TYPE_*`, `parts` in loading order including the
    SMU's, the register list if any.
    """

    boot: Mapping[int, Part]
    parts: Sequence[Part]
    register_list: Part | None = None


class Step(NamedTuple):
    """One part that was loaded, and how long it took, in microseconds of the transport's clock."""

    name: str
    took_us: int


class Door(Protocol):
    """A path for large parts."""

    def takes(self, size_bytes: int) -> bool:
        """Return whether a part takes this path."""

    def put(self, data: bytes) -> int:
        """Store a part where the security processor can read it; return its address."""

    def shut(self) -> None:
        """Forget what was stored: the card was reset."""


class Psp:
    """The security processor of one card. Needs the bus interface, the host data path and VRAM; nothing else up."""

    def __init__(
        self,
        block: Block,
        version: Version,
        window: VramWindow,
        hdp: Hdp,
        buffers: PspBuffers,
        fb_base: int,
        fb_offset: int = 0,
        door: Door | None = None,
    ) -> None:
        """`door`: a faster path for large parts than the window into VRAM.

        `fb_base`: where the frame buffer aperture begins (MMMC_VM_FB_LOCATION_BASE); `fb_offset`: VRAM's own address
        (MMMC_VM_FB_OFFSET).
        """
        if version not in ROWS:
            known = ", ".join(".".join(map(str, row)) for row in ROWS)
            raise NotSupported(f"the security processor is version {'.'.join(map(str, version))}; known are {known}")
        if buffers.message % MIB:
            raise ValueError(f"the boot loader takes parts from whole MiB, not from {buffers.message:#x}")
        self.row = ROWS[version]
        self._block, self._window, self._hdp = block, window, hdp
        self._buffers, self._fb_base, self._fb_offset = buffers, fb_base, fb_offset
        self._door = door
        self._clock = block.registers.clock
        self.ring = PspRing(block, window, hdp, buffers, fb_base)
        self.steps: list[Step] = []
        self.tmr_bytes = 0
        # where memory begins that the card's own firmware keeps, by vram_pa: what a secure OS tells of it
        self.reserved: tuple[int, ...] = ()
        # the secure OS was not started by us
        self._stale = False
        self._in_message = b""

    @property
    def alive(self) -> bool:
        """Whether a secure OS runs: a driver has started the card since its last reset."""
        return int(self._block.read(self.ring.mailbox.sign_of_life)) != 0

    def start(self, firmware: PspFirmware, place_tmr: Callable[[int], int]) -> None:
        """Boot the secure OS and load everything. Left up: the secure OS, its ring, every engine's firmware, the RLC
        loading them.

        `place_tmr(size_bytes)` returns where the TMR may lie: a vram_pa on a MiB, which the firmware keeps as long as
        the card is powered. Raises `FirmwareError` naming the part, `DeviceTimeout`.
        """
        _checked(firmware, self.row)
        self.boot(firmware.boot)
        self.load(firmware, place_tmr)

    def boot(self, parts: Mapping[int, Part]) -> None:
        """Make the boot loader start the secure OS. Does nothing when one runs."""
        self.steps.clear()
        # a reset may have taken the memory
        self._in_message = b""
        self.reserved = ()
        if self._door is not None:
            self._door.shut()
        self._stale = self.alive
        if self._stale:
            return
        if self.row.mailbox_ready:
            self._wait_mailbox()
        for kind, command in self.row.steps:
            if kind in parts:
                with self._step(parts[kind].name):
                    self._boot_part(parts.get(self.row.instead.get(kind, kind), parts[kind]), command)
        secure_os = parts[ucode.PSP_FW_TYPE_PSP_SOS]
        with self._step(secure_os.name):
            self._boot_os(secure_os)

    def load(self, firmware: PspFirmware, place_tmr: Callable[[int], int]) -> None:
        """Load every engine's firmware through a secure OS that has loaded none yet, and start the RLC's autoload."""
        toc = _checked(firmware, self.row)
        with self._step("ring"):
            self.ring.create(stale=self._stale)
        # ORDER: before the TMR and any firmware, as amdgpu does (psp_hw_start)
        since = self.row.reserved_since
        if since and firmware.boot[ucode.PSP_FW_TYPE_PSP_SOS].version >= since:
            with self._step("reserved memory"):
                self.reserved = tuple(self._ask_reserved())
        if toc is not None:
            with self._step(toc.name):
                self._load_toc(toc)
        smu = [part for part in firmware.parts if part.fw_type == psp.GFX_FW_TYPE_SMU]
        others = [part for part in firmware.parts if part.fw_type != psp.GFX_FW_TYPE_SMU]
        before, after = (smu, others) if self.row.smu_first else ([], [*smu, *others])
        self._load_parts(before)
        if self.row.sets_up_tmr:
            with self._step("tmr"):
                self._setup_tmr(place_tmr(self.tmr_bytes) if self.row.sizes_tmr else None)
        self._load_parts(after)
        if firmware.register_list is not None:
            with self._step(firmware.register_list.name):
                self._load_register_list(firmware.register_list)

    def load_again(self, parts: Iterable[Part]) -> None:
        """Load the engines' firmware again, of `parts`, after a reset of the engines that the secure OS has survived.
        Raises `FirmwareError` naming the part, `DeviceTimeout`. Source: aldebaran_mode2_restore_ip.
        """
        self._have_ring()
        self._load_parts(part for part in parts if part.fw_type != psp.GFX_FW_TYPE_SMU)

    def stop(self) -> None:
        """Destroy the ring; the secure OS and the loaded firmware run on until the card is reset. Twice is harmless."""
        self.ring.destroy()

    def older_power(self) -> bool:
        """Whether the power controller's firmware is one that needs the second set of the boot image."""
        return bool(self.row.aux_below) and self._block.registers.read(POWER_VERSION) < self.row.aux_below

    def _wait_mailbox(self) -> None:
        doing = "waiting for the security processor's mailbox"
        self._block.wait(
            MP0_SMN_C2PMSG_33, lambda word: int(word) == READY, self.row.patience_us, doing, poll_us=LOADER_POLL_US
        )

    def partition(self, parts: int) -> None:
        """Split the graphics core's dies into equal parts, each with its own queues. Source: psp_spatial_partition."""
        self._have_ring()
        cmd = psp.psp_gfx_cmd_resp(cmd_id=psp.GFX_CMD_ID_SRIOV_SPATIAL_PART)
        cmd.cmd.cmd_spatial_part.mode = parts
        self._submit(cmd, "the partition of the graphics core")

    def _have_ring(self) -> None:
        """Make a ring where there is none: a warm start loads no firmware, and so has made none."""
        if not self.ring.up:
            self.ring.create(stale=True)

    def wait_loader(self, doing: str) -> None:
        """Wait until the boot loader takes a command. Raises `FirmwareError` when it reports an error instead,
        `DeviceTimeout` when nothing.
        """
        mailbox, exact = self.ring.mailbox, self.row.exact_ready

        def ready(word: Word) -> bool:
            return int(word) == READY if exact else bool(int(word) & READY) and int(word) != ONES

        try:
            with self.ring.heard.asking(doing):
                self._block.wait(mailbox.command, ready, self.row.patience_us, doing, poll_us=LOADER_POLL_US)
        except DeviceTimeout as error:
            answer = int(self._block.read(mailbox.command))
            if not answer & READY:
                raise
            raise FirmwareError(
                f"{doing}: the boot loader refused it with error {answer & LOADER_ERROR:#04x} (C2PMSG_35 {answer:#010x}); "
                "take firmware files made for this card, and reset it"
            ) from error

    def _boot_part(self, part: Part, command: int) -> None:
        doing = f"booting the security processor with {part.name}"
        self._tell_loader(part, command, doing)
        self.wait_loader(doing)

    def _boot_os(self, part: Part) -> None:
        doing = f"starting the secure OS ({part.name})"
        self._tell_loader(part, psp_boot.PSP_BL__LOAD_SOSDRV, doing)
        self._clock.sleep_us(HANDSHAKE_US)
        # QUIRK: amdgpu waits for a change from what the register reads here; a secure OS that is quicker than the delay
        # shows it at once
        word = self.ring.mailbox.sign_of_life
        self._block.wait(word, lambda life: int(life) != 0, OS_TIMEOUT_US, doing, poll_us=OS_POLL_US)

    def _tell_loader(self, part: Part, command: int, doing: str) -> None:
        self.wait_loader(doing)
        mailbox, version = self.ring.mailbox, self._block.version
        # the boot loader may have worked on the last part where it lay, and a reset takes what memory held
        self._in_message = b""
        at = self._put(part)
        self._hdp.flush()
        self._block.write(mailbox.address.at(version)(at >> 20))
        self._block.write(mailbox.command.at(version)(command))

    def _put(self, part: Part) -> int:
        """Copy a part into the message buffer; return its address for the security processor."""
        if not 0 < len(part.data) <= MIB:
            raise FirmwareError(f"{part.name}: a part has 1 to {MIB} bytes, not {len(part.data)}")
        if self._door is not None and self._door.takes(len(part.data)):
            return self._door.put(part.data)
        # an engine's pipes get the same stack one after another
        if part.data != self._in_message:
            # whoever tells the card of it flushes
            self._window.write(self._buffers.message, part.data)
            self._in_message = part.data
        return self._fb_base + self._buffers.message

    def _load_toc(self, part: Part) -> None:
        at = self._put(part)
        cmd = psp.psp_gfx_cmd_resp(cmd_id=psp.GFX_CMD_ID_LOAD_TOC)
        toc = cmd.cmd.cmd_load_toc
        toc.toc_phy_addr_lo, toc.toc_phy_addr_hi, toc.toc_size = at & LOW, at >> 32, len(part.data)
        self.tmr_bytes = self._submit(cmd, part.name).tmr_bytes
        what = f"{part.name}: the size of the trusted memory region that the security processor wants"
        within(
            self.tmr_bytes,
            1,
            self._window.size_bytes // 2,
            what,
            todo="take firmware files made for this card, and reset it",
        )

    def _ask_reserved(self) -> Iterator[int]:
        """Ask which memory the card's own firmware keeps; yield where each part begins."""
        for command, name in ASK_RESERVED.items():
            response = self.ring.submit(psp.psp_gfx_cmd_resp(cmd_id=command), f"asking for reserved memory ({name})")
            if response.status:
                # amdgpu goes on too
                LOG.info("%s is answered with %#x%s", name, response.status, STATUS.get(response.status, ""))
                continue
            high, low, size = response.more[:3]
            start = high << 32 | low
            if size:
                what, todo = f"of the memory that the card's own firmware keeps ({name})", "reset the card"
                whole = self._window.size_bytes
                within(start, whole // 2, whole - 1, f"the start {what}", bits=64, todo=todo)
                within(size, 1, whole - start, f"the size {what}", todo=todo)
                yield start

    def _setup_tmr(self, vram_pa: int | None) -> None:
        """Say where the TMR lies; None: where the card's own firmware has reserved it."""
        if vram_pa is None:
            cmd = psp.psp_gfx_cmd_resp(cmd_id=psp.GFX_CMD_ID_SETUP_TMR)
            cmd.cmd.cmd_setup_tmr.bitfield.virt_phy_addr = 1
            self._submit(cmd, "the trusted memory region")
            return
        if vram_pa % psp_boot.PSP_TMR_ALIGNMENT or vram_pa + self.tmr_bytes > self._window.size_bytes:
            raise ValueError(f"the TMR of {self.tmr_bytes:#x} bytes lies on a MiB inside VRAM, not at {vram_pa:#x}")
        cmd = psp.psp_gfx_cmd_resp(cmd_id=psp.GFX_CMD_ID_SETUP_TMR)
        tmr, at, behind = cmd.cmd.cmd_setup_tmr, self._fb_base + vram_pa, self._fb_offset + vram_pa
        tmr.buf_phy_addr_lo, tmr.buf_phy_addr_hi, tmr.buf_size = at & LOW, at >> 32, self.tmr_bytes
        # both addresses are given: as the aperture has it, and as the memory has it
        tmr.bitfield.virt_phy_addr = 1
        tmr.system_phy_addr_lo, tmr.system_phy_addr_hi = behind & LOW, behind >> 32
        self._submit(cmd, "the trusted memory region")

    def _load_parts(self, parts: Iterable[Part]) -> None:
        for part in parts:
            with self._step(part.name):
                self._submit(self._load_ip(part), part.name)
            # ORDER: all the graphics core's firmware is there
            if self.row.autoloads and part.fw_type == psp.GFX_FW_TYPE_RLC_G:
                with self._step("autoload"):
                    self._submit(psp.psp_gfx_cmd_resp(cmd_id=psp.GFX_CMD_ID_AUTOLOAD_RLC), "the RLC's autoload")

    def _load_register_list(self, part: Part) -> None:
        """Load the list of registers that may be programmed through the secure OS; nothing here does."""
        response = self.ring.submit(self._load_ip(part), f"loading {part.name}")
        # QUIRK: amdgpu goes on as well, and other drivers of these chips leave the list out
        if response.status:
            LOG.warning("the security processor answered %s with status %#x", part.name, response.status)

    def _load_ip(self, part: Part) -> psp.psp_gfx_cmd_resp:
        at = self._put(part)
        cmd = psp.psp_gfx_cmd_resp(cmd_id=psp.GFX_CMD_ID_LOAD_IP_FW)
        firmware = cmd.cmd.cmd_load_ip_fw
        firmware.fw_phy_addr_lo, firmware.fw_phy_addr_hi = at & LOW, at >> 32
        firmware.fw_size, firmware.fw_type = len(part.data), part.fw_type
        return cmd

    def _submit(self, cmd: psp.psp_gfx_cmd_resp, what: str) -> Response:
        """Submit a command that must be answered with status 0."""
        name = COMMANDS[cmd.cmd_id]
        response = self.ring.submit(cmd, f"loading {what} ({name})")
        if response.status:
            raise FirmwareError(
                f"{what}: the security processor answered {name} with status {response.status:#x}"
                f"{STATUS.get(response.status, '')}; take firmware files made for this card, and reset it"
            )
        return response

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        started = self._clock.now_us
        yield
        self.steps.append(Step(name, self._clock.now_us - started))


def _checked(firmware: PspFirmware, row: PspRow) -> Part | None:
    """Return the table of contents of firmware that can start a card, where it is used."""
    toc = firmware.boot.get(ucode.PSP_FW_TYPE_PSP_TOC) if row.sizes_tmr else None
    if toc is None and row.sizes_tmr:
        raise FirmwareError("the sos image has no toc: the security processor cannot size its trusted memory region")
    if not any(part.fw_type == psp.GFX_FW_TYPE_RLC_G for part in firmware.parts):
        raise FirmwareError("among the firmware is no RLC code: nothing would load the graphics core's engines")
    return toc
