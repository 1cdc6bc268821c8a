"""The secure OS's command ring (GPCOM): 64-byte frames that name a command buffer and a fence.

Source: psp_gfx_if.h (frames, commands, responses), amdgpu_psp.c (what is sent when). All addresses are MMHUB's, VMID 0.
The host owns the frames before the read pointer; the secure OS writes the response into the command buffer, then the
fence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ringup.autogen.amd import psp as gfx
from ringup.autogen.amd import ta_xgmi as xgmi
from ringup.autogen.structs import memory
from ringup.silicon.amd.common.parts import Board, FirmwareTarget, Hub, VmFault
from ringup.silicon.amd.psp import images as psp_images
from ringup.silicon.amd.psp import parts
from ringup.silicon.amd.psp.applications import XGMI, Hive, application_of, call_xgmi
from ringup.silicon.amd.psp.keys import Key
from ringup.silicon.amd.psp.parts import Part

CLIENT = "MP0"
COMMAND_US = 100
FRAME_BYTES = gfx.psp_gfx_rb_frame.SIZE
TMR_ALIGNMENT = 1 << 20  # PSP_TMR_ALIGNMENT, amdgpu_psp.h
RING_LIMIT_BYTES = 0x10000
# UNKNOWN: metal's limit; drivers share 16 KiB, PSP_*_SHARED_MEM_SIZE of amdgpu_psp.h
TA_BUFFER_BYTES = 16 << 20
PAGE = 4096
# The TEE client API's numbers (GlobalPlatform), the first of which psp_gfx_if.h has; those for images:
# `psp_images.Status`. UNKNOWN: which of them metal uses where
BAD_PARAMETERS, BAD_STATE, NOT_FOUND, OUT_OF_MEMORY = 0xFFFF_0006, 0xFFFF_0007, 0xFFFF_0008, 0xFFFF_000C

BEFORE_TMR = {gfx.GFX_FW_TYPE_SMU, gfx.GFX_FW_TYPE_REG_LIST, gfx.GFX_FW_TYPE_PPTABLE, gfx.GFX_FW_TYPE_P2S_TABLE}
# what a mode-2 reset loses: aldebaran.c, mode2_restore_ip, loads these again
LOST_WITH_ENGINES = {
    gfx.GFX_FW_TYPE_SDMA0, gfx.GFX_FW_TYPE_SDMA1, gfx.GFX_FW_TYPE_SDMA2, gfx.GFX_FW_TYPE_SDMA3, gfx.GFX_FW_TYPE_CP_MEC,
    gfx.GFX_FW_TYPE_CP_MEC_ME1, gfx.GFX_FW_TYPE_RLC_RESTORE_LIST_SRM_CNTL, gfx.GFX_FW_TYPE_RLC_RESTORE_LIST_GPM_MEM,
    gfx.GFX_FW_TYPE_RLC_RESTORE_LIST_SRM_MEM, gfx.GFX_FW_TYPE_RLC_G,
}  # fmt: skip
# without these the graphics core cannot start
AUTOLOAD_NEEDS = (gfx.GFX_FW_TYPE_RLC_G, gfx.GFX_FW_TYPE_IMU_I, gfx.GFX_FW_TYPE_IMU_D, gfx.GFX_FW_TYPE_RS64_MEC)

# Commands that Linux 6.17's psp_gfx_if.h adds: where the memory lies that the card's firmware keeps
RESERVED, RESERVED_EXTENSION = 0x50, 0x51
# The first secure OS that answers them, by the program in bits 23:16 of its version: amdgpu_psp.c,
# psp_update_fw_reservation (14.0.3, 14.0.2)
ANSWERS_SINCE = {0x3A: 0x3A_0E14, 0x3B: 0x3B_0E0D}
# GUESS: the size of the second part, and that both together are what the VBIOS states. The first part ends where VRAM
# does, or amdgpu calls the answer invalid.
EXTENSION_BYTES = 1 << 20


class Session(NamedTuple):
    """A started application, and the memory that it shares with the driver."""

    application: int
    buffer: int


class Refused(Exception):
    """A command fails with a status."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def _join(low: int, high: int) -> int:
    return low | high << 32


class Ring:
    """The ring, the images loaded through it, and the memory region of the secure OS (TMR)."""

    def __init__(
        self,
        board: Board,
        hub: Hub,
        targets: list[FirmwareTarget],
        tmr_bytes: int,
        on_autoload: Callable[[dict[int, bytes]], None],
        waiting: Callable[[], int],
        *,
        boot_tmr: bool = False,
        reserved_bytes: int = 0,
        decrypts: bool = False,
        hive: Hive | None = None,
        on_partition: Callable[[int], bool] | None = None,
    ) -> None:
        """`boot_tmr`: the board's own boot made the region, and no host provides one. `reserved_bytes`: what the
        board's firmware keeps at the end of VRAM.
        """
        self.board, self._hub, self.targets, self.tmr_bytes, self.boot_tmr = board, hub, targets, tmr_bytes, boot_tmr
        self._on_autoload, self._waiting = on_autoload, waiting
        self._decrypts, self._hive, self._on_partition = decrypts, hive, on_partition
        self._reserved_bytes = reserved_bytes
        self.generation = 0
        self._forget()

    def _forget(self) -> None:
        self.base, self.size_bytes, self.rptr, self.wptr = 0, 0, 0, 0  # pointers in dwords
        self.busy = False
        self.keys: dict[bytes, Key] = {}  # of the booted key database
        self.images: dict[int, bytes] = {}
        self.sessions: dict[int, Session] = {}
        self._next_session = 1
        self.tmr: tuple[int, int] | None = None
        self.toc_seen = False
        self.boot_config = 0
        self.os_version = 0

    def reset(self) -> None:
        """Forget everything; work in progress ends without an answer."""
        self.generation += 1
        self._forget()

    def forget_engines(self) -> None:
        """Forget the firmware of graphics cores and copy engines, which a reset has lost."""
        self.images = {kind: data for kind, data in self.images.items() if kind not in LOST_WITH_ENGINES}

    # --- the ring -----------------------------------------------------------------------------------------------
    def create(self, base: int, size_bytes: int) -> int:
        """Set up the ring; return the status for the control register."""
        if self.size_bytes:
            return self._control_error(1, "there is a ring already")
        if base % PAGE or size_bytes % FRAME_BYTES or not FRAME_BYTES <= size_bytes <= RING_LIMIT_BYTES:
            return self._control_error(
                2, f"a ring of {size_bytes:#x} bytes at {base:#x}: it must hold whole frames and start on a page"
            )
        try:
            self._hub.read(0, base, size_bytes, CLIENT)
        except VmFault as fault:
            return self._control_error(3, str(fault))
        self.base, self.size_bytes, self.rptr, self.wptr = base, size_bytes, 0, 0
        return 0

    def _control_error(self, status: int, reason: str) -> int:
        self.board.log.note("psp", "violation", "ring not created: {}", reason)
        return status

    def destroy(self) -> None:
        """Drop the ring; loaded images stay."""
        self.size_bytes = 0

    def advance(self, wptr: int) -> None:
        """Take the host's write pointer, in dwords from the ring's start."""
        if not self.size_bytes or wptr >= self.size_bytes // 4 or wptr % (FRAME_BYTES // 4):
            self.board.log.note(
                "psp", "violation", "write pointer {:#x} of a ring of {:#x} bytes", wptr, self.size_bytes
            )
            return
        self.wptr = wptr
        self._go_on()

    def _go_on(self) -> None:
        if not self.busy and self.size_bytes and self.rptr != self.wptr:
            self.busy = True
            generation = self.generation
            self.board.clock.after(COMMAND_US, lambda: self._frame(generation))

    def _frame(self, generation: int) -> None:
        if generation != self.generation or not self.size_bytes:
            return
        self.busy = False
        at = self.base + self.rptr * 4
        self.rptr = (self.rptr + FRAME_BYTES // 4) % (self.size_bytes // 4)
        try:
            frame = gfx.psp_gfx_rb_frame.view(bytearray(self._hub.read(0, at, FRAME_BYTES, CLIENT)))
            self._command(_join(frame.cmd_buf_addr_lo, frame.cmd_buf_addr_hi))
            if not self.board.faults.take("psp_stuck_fence"):
                fence = _join(frame.fence_addr_lo, frame.fence_addr_hi)
                self._hub.write(0, fence, frame.fence_value.to_bytes(4, "little"), CLIENT)
        except VmFault as fault:
            self.board.log.note("psp", "violation", "a frame at {:#x}: {}", at, fault)
        self._go_on()

    def _command(self, address: int) -> None:
        """Execute one command and write its response."""
        buffer = bytearray(self._hub.read(0, address, gfx.psp_gfx_cmd_resp.SIZE, CLIENT))
        command = gfx.psp_gfx_cmd_resp.view(buffer)
        response = gfx.psp_gfx_resp()
        try:
            self._handler(command.cmd_id)(self, command.cmd, response)
        except Refused as refused:
            response.status = refused.status
            self.board.log.note(
                "psp", "violation", "command {:#x} answered {:#x}: {}", command.cmd_id, refused.status, refused
            )
        except VmFault as fault:
            response.status = BAD_PARAMETERS
            self.board.log.note("psp", "violation", "command {:#x}: {}", command.cmd_id, fault)
        else:
            of = (
                f", firmware type {command.cmd.cmd_load_ip_fw.fw_type:#x}"
                if command.cmd_id == gfx.GFX_CMD_ID_LOAD_IP_FW
                else ""
            )
            self.board.log.note("psp", "command", "{:#x}{} done", command.cmd_id, of)
        place = gfx.psp_gfx_cmd_resp.offset_of("resp")
        self._hub.write(0, address + place, bytes(memory(response)), CLIENT)

    def _handler(self, command_id: int) -> Handler:
        injected = self.board.faults.get("psp_status")
        if injected is not None:
            raise Refused(injected & 0xFFFF_FFFF, "an injected fault")
        handler = COMMANDS.get(command_id)
        newer = command_id in (RESERVED, RESERVED_EXTENSION)
        if handler is None or (newer and not self._answers_reservations):
            raise Refused(gfx.PSP_ERR_UNKNOWN_COMMAND, "there is no such command")
        return handler

    # --- commands -----------------------------------------------------------------------------------------------
    def _image(self, address: int, size_bytes: int, part: Part, limit_bytes: int = 16 << 20) -> psp_images.Image:
        if not 0 < size_bytes <= limit_bytes:
            raise Refused(BAD_PARAMETERS, f"an image of {size_bytes:#x} bytes")
        try:
            sent = self._hub.read(0, address, size_bytes, CLIENT)
            image = psp_images.check(sent, part, self.keys, self.board.chip, decrypts=self._decrypts)
        except psp_images.BadImage as bad:
            late = psp_images.not_arrived(bad, self._waiting())
            raise Refused(bad.status, f"{part.name}: {bad}{late}") from bad
        if image.remark:
            self.board.log.note("psp", "firmware", "{} {:#x} {}", part.name, image.version, image.remark)
        return image

    def load_toc(self, command: Any, response: Any) -> None:
        """Read the table of contents and state the size of the TMR."""
        toc = command.cmd_load_toc
        self._image(_join(toc.toc_phy_addr_lo, toc.toc_phy_addr_hi), toc.toc_size, parts.TOC)
        self.toc_seen = True
        response.tmr_size = self.tmr_bytes

    @property
    def _has_tmr(self) -> bool:
        return self.boot_tmr or self.tmr is not None

    def setup_tmr(self, command: Any, response: Any) -> None:
        """Take memory that the host provides for firmware."""
        setup = command.cmd_setup_tmr
        base, size = _join(setup.buf_phy_addr_lo, setup.buf_phy_addr_hi), setup.buf_size
        # amdgpu sends the command although the boot made the region, where it has one: psp_tmr_load
        if self.boot_tmr and not size:
            return
        if self._has_tmr:
            raise Refused(BAD_STATE, "there is a TMR already")
        if base % TMR_ALIGNMENT:
            raise Refused(BAD_PARAMETERS, f"a TMR at {base:#x}, not a multiple of {TMR_ALIGNMENT:#x}")
        if size < self.tmr_bytes:
            raise Refused(OUT_OF_MEMORY, f"a TMR of {size:#x} bytes; {self.tmr_bytes:#x} are needed")
        self._hub.read(0, base, 4, CLIENT)
        self._hub.read(0, base + size - 4, 4, CLIENT)
        self.tmr = (base, size)

    def destroy_tmr(self, command: Any, response: Any) -> None:
        """Give the memory back. UNKNOWN: what that does to a region of the boot, for which amdgpu sends it too."""
        if not self._has_tmr:
            raise Refused(BAD_STATE, "there is no TMR")
        self.tmr = None

    def load_ip_fw(self, command: Any, response: Any) -> None:
        """Check an image and give it to its block."""
        load = command.cmd_load_ip_fw
        kind = load.fw_type
        part = parts.FIRMWARE.get(kind)
        if part is None:
            raise Refused(gfx.TEE_ERROR_NOT_SUPPORTED, f"no image of firmware type {kind} is published for this card")
        if not self._has_tmr and kind not in BEFORE_TMR:
            raise Refused(BAD_STATE, f"{part.name} before the TMR is set up")
        image = self._image(_join(load.fw_phy_addr_lo, load.fw_phy_addr_hi), load.fw_size, part)
        if kind in self.images:
            # GUESS: no driver loads a part twice without a reset in between
            raise Refused(BAD_STATE, f"{part.name} is already loaded")
        self.images[kind] = image.data
        if self.tmr is not None:
            response.fw_addr_lo, response.fw_addr_hi = self.tmr[0] & 0xFFFF_FFFF, self.tmr[0] >> 32
        for target in self.targets:
            target.firmware_loaded(kind, image.data)

    def autoload_rlc(self, command: Any, response: Any) -> None:
        """Start the graphics core from the loaded firmware."""
        missing = [parts.FIRMWARE[kind].name for kind in AUTOLOAD_NEEDS if kind not in self.images]
        if not self.toc_seen:
            missing.append(parts.TOC.name)
        if missing:
            raise Refused(BAD_STATE, f"autoload without {', '.join(missing)}")
        self._on_autoload(dict(self.images))

    def load_ta(self, command: Any, response: Any) -> None:
        """Start a trusted application, such as the ASD; the answer is its session."""
        load = command.cmd_load_ta
        buffer, size = _join(load.cmd_buf_phy_addr_lo, load.cmd_buf_phy_addr_hi), load.cmd_buf_len
        if size % PAGE or (size and buffer % PAGE) or size > TA_BUFFER_BYTES:
            raise Refused(BAD_PARAMETERS, f"a command buffer of {size:#x} bytes at {buffer:#x}: it must be whole pages")
        image = self._image(_join(load.app_phy_addr_lo, load.app_phy_addr_hi), load.app_len, parts.APPLICATION)
        if size:
            self._hub.read(0, buffer, size, CLIENT)
        response.session_id = self._next_session
        self.sessions[self._next_session] = Session(application_of(image), buffer)
        self._next_session += 1

    def unload_ta(self, command: Any, response: Any) -> None:
        """End a session."""
        session = command.cmd_unload_ta.session_id
        if self.sessions.pop(session, None) is None:
            raise Refused(NOT_FOUND, f"there is no session {session}")

    def invoke(self, command: Any, response: Any) -> None:
        """Call a trusted application. One that the model does not have succeeds and does not change its buffer."""
        session = command.cmd_invoke_cmd.session_id
        called = self.sessions.get(session)
        if called is None:
            raise Refused(NOT_FOUND, f"there is no session {session}")
        if called.application == XGMI and self._hive is not None:
            shared = self._hub.read(0, called.buffer, xgmi.ta_xgmi_shared_memory.SIZE, CLIENT)
            self._hub.write(0, called.buffer, call_xgmi(self._hive, shared), CLIENT)
        response.session_id = session

    def partition(self, command: Any, response: Any) -> None:
        """Split the graphics cores into parts, each of which runs a queue on all of its cores."""
        parts = command.cmd_spatial_part.mode
        if self._on_partition is None:
            self.not_supported(command, response)
        elif not self._on_partition(parts):
            raise Refused(BAD_PARAMETERS, f"the graphics cores cannot be split into {parts} parts")

    def configure_boot(self, command: Any, response: Any) -> None:
        """Get or set options of the next boot (ECC on GDDR)."""
        asked = command.boot_cfg
        if asked.sub_cmd == gfx.BOOTCFG_CMD_SET:
            self.boot_config = self.boot_config & ~asked.boot_config_valid | asked.boot_config & asked.boot_config_valid
        elif asked.sub_cmd == gfx.BOOTCFG_CMD_INVALIDATE:
            self.boot_config = 0
        elif asked.sub_cmd != gfx.BOOTCFG_CMD_GET:
            raise Refused(BAD_PARAMETERS, f"there is no boot configuration command {asked.sub_cmd}")
        response.uresp.boot_cfg.boot_cfg = self.boot_config

    @property
    def _answers_reservations(self) -> bool:
        first = ANSWERS_SINCE.get(self.os_version >> 16 & 0xFF)
        return first is not None and self.os_version >= first and self._reserved_bytes > EXTENSION_BYTES

    def tell_reserved(self, command: Any, response: Any) -> None:
        """State the memory at the end of VRAM that the card's firmware keeps: offset in VRAM, size."""
        size_bytes = self._reserved_bytes - EXTENSION_BYTES
        self._reserved(response, self.board.vram.size_bytes - size_bytes, size_bytes)

    def tell_extension(self, command: Any, response: Any) -> None:
        """State the further memory of that kind, below the first."""
        self._reserved(response, self.board.vram.size_bytes - self._reserved_bytes, EXTENSION_BYTES)

    def _reserved(self, response: Any, offset: int, size_bytes: int) -> None:
        """Write psp_gfx_uresp_fw_reserve_info, which the generated structs of older headers lack."""
        words = response.uresp.reserved.reserved
        words[0], words[1], words[2] = offset >> 32, offset & 0xFFFF_FFFF, size_bytes

    def not_supported(self, command: Any, response: Any) -> None:
        """Refuse a command that only virtual functions or older chips use."""
        raise Refused(gfx.TEE_ERROR_NOT_SUPPORTED, "not offered by this secure OS")


Handler = Callable[[Ring, Any, Any], None]
COMMANDS: dict[int, Handler] = {
    gfx.GFX_CMD_ID_LOAD_TA: Ring.load_ta,
    gfx.GFX_CMD_ID_UNLOAD_TA: Ring.unload_ta,
    gfx.GFX_CMD_ID_INVOKE_CMD: Ring.invoke,
    gfx.GFX_CMD_ID_LOAD_ASD: Ring.load_ta,
    gfx.GFX_CMD_ID_SETUP_TMR: Ring.setup_tmr,
    gfx.GFX_CMD_ID_LOAD_IP_FW: Ring.load_ip_fw,
    gfx.GFX_CMD_ID_DESTROY_TMR: Ring.destroy_tmr,
    gfx.GFX_CMD_ID_LOAD_TOC: Ring.load_toc,
    gfx.GFX_CMD_ID_AUTOLOAD_RLC: Ring.autoload_rlc,
    gfx.GFX_CMD_ID_BOOT_CFG: Ring.configure_boot,
    gfx.GFX_CMD_ID_SAVE_RESTORE: Ring.not_supported,
    gfx.GFX_CMD_ID_SETUP_VMR: Ring.not_supported,
    gfx.GFX_CMD_ID_DESTROY_VMR: Ring.not_supported,
    gfx.GFX_CMD_ID_PROG_REG: Ring.not_supported,
    gfx.GFX_CMD_ID_GET_FW_ATTESTATION: Ring.not_supported,
    gfx.GFX_CMD_ID_SRIOV_SPATIAL_PART: Ring.partition,
    RESERVED: Ring.tell_reserved,
    RESERVED_EXTENSION: Ring.tell_extension,
}
