"""The PSP (MP0 13.0 and 14.0): boot-loader mailbox, sign of life of the secure OS, control commands of its ring.

Source: psp_v13_0.c and psp_v14_0.c (registers and order), psp_gfx_if.h (commands), amdgpu_psp.h (boot-loader commands);
ring and commands: `ring.py`. Who writes what: the host writes an address to C2PMSG_36 and a command to C2PMSG_35; the
boot loader sets bit 31 of C2PMSG_35 when it is done, with an error in 7:0. The secure OS answers in C2PMSG_64 the same
way.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum

from ringup.autogen.amd import psp as gfx
from ringup.autogen.amd import psp_boot as boot
from ringup.silicon.amd.common.parts import Board, FirmwareTarget, Hub, VmFault
from ringup.silicon.amd.psp import images as psp_images
from ringup.silicon.amd.psp import keys, parts
from ringup.silicon.amd.psp.applications import Hive
from ringup.silicon.amd.psp.images import Status
from ringup.silicon.amd.psp.ring import Ring
from ringup.silicon.common.cells import Cells
from ringup.silicon.common.faults import FaultKind

READY = gfx.GFX_FLAG_RESPONSE
# GUESS: the time in which the boot loader checks and starts one component
COMPONENT_US = 2_000
# ORDER: later than the 20 ms that psp_v13_0.c sleeps before it reads the old value, sooner than the end of the 100 ms
# for which it then polls for a new one
SIGN_OF_LIFE_US = 60_000
# The same for other drivers. A guest on a busy computer reads the old value hundreds of milliseconds late. Its polls
# cross to another process, so a hundred thousand of them take seconds.
LATE_SIGN_OF_LIFE_US = 400_000
# GUESS: from the sign of life to bit 31 of C2PMSG_64; psp_v13_0.c, psp_v13_0_ring_create, waits for that bit before it
# sends a command
RINGS_US = 3_000
CONTROL_US = 500
# ORDER: sooner than the 20 ms that psp_v13_0_ring_create and _stop sleep: "there might be handshake issue with hardware
# which needs delay". GUESS: a host that reads sooner sees the previous answer
HANDSHAKE_US = 10_000
# UNKNOWN: metal's word; drivers only look for a change from 0
SECURE_OS_ALIVE = 0x1
# the host's buffer for a component, psp->fw_pri_buf
LOADABLE_BYTES = 1 << 20
CLIENT = "MP0"
PAGE_BYTES = 4096
ZEROES = bytes(PAGE_BYTES)

# What must be loaded before a component. UNKNOWN: which of the drivers between SYSDRV and SOSDRV metal requires.
NEEDS: dict[int, tuple[int, ...]] = {
    boot.PSP_BL__LOAD_KEY_DATABASE: (),
    boot.PSP_BL__LOAD_TOS_SPL_TABLE: (boot.PSP_BL__LOAD_KEY_DATABASE,),
    boot.PSP_BL__LOAD_SYSDRV: (boot.PSP_BL__LOAD_KEY_DATABASE,),
    boot.PSP_BL__LOAD_SOCDRV: (boot.PSP_BL__LOAD_SYSDRV,),
    boot.PSP_BL__LOAD_INTFDRV: (boot.PSP_BL__LOAD_SYSDRV,),
    boot.PSP_BL__LOAD_DBGDRV: (boot.PSP_BL__LOAD_SYSDRV,),
    boot.PSP_BL__LOAD_RASDRV: (boot.PSP_BL__LOAD_SYSDRV,),
    boot.PSP_BL__LOAD_IPKEYMGRDRV: (boot.PSP_BL__LOAD_SYSDRV,),
    boot.PSP_BL__LOAD_SOSDRV: (boot.PSP_BL__LOAD_SYSDRV,),
}
# prefixes of the mailbox's registers, by major version of MP0
PREFIXES = ("MP0", "MPASP")
# the register with the secure OS's version, which the headers of 14.0 do not name
VERSION = 58
TRAINING = (boot.PSP_BL__DRAM_LONG_TRAIN, boot.PSP_BL__DRAM_SHORT_TRAIN)
FAULTS = (
    FaultKind("psp_bootloader_error", "the boot loader refuses the next component", "the error, 1 to 255; -1: 255"),
    FaultKind("psp_no_sign_of_life", "the secure OS never starts"),
    FaultKind("psp_stuck_fence", "commands complete but their fences are not written", "how many; -1: all"),
    FaultKind("psp_status", "commands fail with a status", "the status"),
)


class LoaderError(IntEnum):
    """The boot loader's answers in C2PMSG_35, bits 7:0. UNKNOWN: metal's numbers; drivers only check that they are not
    0.
    """

    ALIVE = 2
    NO_SUCH_COMMAND = 3
    ORDER = 4
    UNMAPPED = 5
    FORMAT = 6
    ANOTHER_PART = 7
    EMPTY = 8
    SHORT = 9
    CONTENT = 10
    KEY = 11
    TWICE = 12


LOADER_ERRORS = {
    Status.BAD_FORMAT: LoaderError.FORMAT,
    Status.BAD_PARAMETERS: LoaderError.ANOTHER_PART,
    Status.NO_DATA: LoaderError.EMPTY,
    Status.SHORT_BUFFER: LoaderError.SHORT,
    Status.SECURITY: LoaderError.CONTENT,
    Status.ACCESS_DENIED: LoaderError.KEY,
    Status.BAD_STATE: LoaderError.TWICE,
}


class Psp:
    """The security processor of one card. `hub` is MMHUB; `targets` get the loaded firmware; `on_autoload` and
    `on_mode1_reset` notify the card.
    """

    def __init__(
        self,
        board: Board,
        cells: Cells,
        hub: Hub,
        targets: list[FirmwareTarget],
        *,
        tmr_bytes: int,
        on_autoload: Callable[[dict[int, bytes]], None],
        on_mode1_reset: Callable[[], None],
        waiting: Callable[[], int] = lambda: 0,
        boot_tmr: bool = False,
        reserved_bytes: int = 0,
        decrypts: bool = False,
        hive: Hive | None = None,
        on_partition: Callable[[int], bool] | None = None,
        sign_of_life_us: int = SIGN_OF_LIFE_US,
    ) -> None:
        """`waiting` returns how many bytes written by the host have not reached memory, for refusal texts.
        `reserved_bytes`: what the board's firmware keeps at the end of VRAM. `on_partition` splits the graphics cores
        into as many parts. `sign_of_life_us`: how long the secure OS starts.
        """
        self.board, self.cells, self._hub = board, cells, hub
        self._prefix = next(prefix for prefix in PREFIXES if f"{prefix}_SMN_C2PMSG_35" in cells)
        self._on_mode1_reset = on_mode1_reset
        self._sign_of_life_us = sign_of_life_us
        self._waiting = waiting
        self.loaded: set[int] = set()
        self.alive = False
        # answer of the secure OS to the last control command; READY once it accepts rings
        self._answer = 0
        # number of control commands; one is read at a time
        self._commands = 0
        # of the secure OS, from its image
        self._version = 0
        board.faults.know(*FAULTS)
        self._decrypts = decrypts
        self.ring = Ring(
            board, hub, targets, tmr_bytes, on_autoload, waiting, boot_tmr=boot_tmr, reserved_bytes=reserved_bytes,
            decrypts=decrypts, hive=hive, on_partition=on_partition,
        )  # fmt: skip
        cells.on_write(self._name(35), self._boot_command)
        cells.on_write(self._name(64), self._control)
        cells.on_write(self._name(67), self._write_pointer)
        self._power_on()

    def _name(self, number: int) -> str:
        return f"{self._prefix}_SMN_C2PMSG_{number}"

    def _power_on(self) -> None:
        # the boot loader has finished the board's own images
        self.cells[self._name(33)] = READY
        self.cells[self._name(35)] = READY

    def reset(self) -> None:
        """Return to the boot loader: nothing loaded, no ring. The block's registers are reset too."""
        self.loaded.clear()
        self.alive = False
        self._answer = 0
        self.ring.reset()
        for number in (36, VERSION, 64, 67, 69, 70, 71, 81):
            if self._name(number) in self.cells:
                self.cells[self._name(number)] = 0
        self._power_on()

    # --- boot loader --------------------------------------------------------------------------------------------
    def _boot_command(self, command: int) -> None:
        """Handle a command. The host's write has cleared bit 31; it is set again when the command is done."""
        address = self.cells[self._name(36)] << 20
        generation = self.ring.generation
        self.board.log.note("psp", "boot", "command {:#x}, image at {:#x}", command, address)

        def finish() -> None:
            if generation != self.ring.generation:  # there was a reset in between
                return
            error = self._refusal(command, address)
            if error is None:
                self._accept(command)
            else:
                status, reason = error
                part = parts.BOOT.get(command)
                name = f" ({part.name})" if part is not None else ""
                self.board.log.note(
                    "psp", "violation", "boot-loader command {:#x}{} refused: {}", command, name, reason
                )
                self.cells[self._name(35)] = READY | status

        self.board.clock.after(COMPONENT_US, finish)

    def _accept(self, command: int) -> None:
        if command == boot.PSP_BL__LOAD_KEY_DATABASE:
            # the first part: a driver whose start failed starts again without a reset
            self.loaded.clear()
        self.loaded.add(command)
        self.cells[self._name(35)] = READY
        if command == boot.PSP_BL__LOAD_SOSDRV and self.board.faults.get("psp_no_sign_of_life") is None:
            generation = self.ring.generation
            self.board.clock.after(self._sign_of_life_us - COMPONENT_US, lambda: self._wake_up(generation))

    def _refusal(self, command: int, address: int) -> tuple[int, str] | None:
        """Return error and reason for a command that cannot be done. UNKNOWN: metal's error numbers; drivers only check
        that they are not 0.
        """
        injected = self.board.faults.get("psp_bootloader_error")
        if injected is not None:
            self.board.faults.clear("psp_bootloader_error")
            return (injected & 0xFF) or 1, "an injected fault"
        if self.alive:
            return LoaderError.ALIVE, "the secure OS already runs"
        if command in TRAINING:
            return None
        part = parts.BOOT.get(command)
        if part is None:
            return LoaderError.NO_SUCH_COMMAND, "there is no such command"
        missing = [parts.BOOT[need].name for need in NEEDS[command] if need not in self.loaded]
        if missing:
            return LoaderError.ORDER, f"{', '.join(missing)} must be loaded first"
        try:
            sent = self._component(address)
            image = psp_images.check(sent, part, self.ring.keys, self.board.chip, decrypts=self._decrypts)
            if command in self.loaded and part is not parts.KEY_DATABASE:
                # GUESS: no driver boots a part twice, except when it starts again
                return LoaderError.TWICE, "already loaded; a boot begins with the KDB"
            if part is parts.KEY_DATABASE:
                self.ring.keys = keys.read(image.body)
        except VmFault as fault:
            return LoaderError.UNMAPPED, str(fault)
        except psp_images.BadImage as bad:
            return LOADER_ERRORS[bad.status], f"{bad}{psp_images.not_arrived(bad, self._waiting())}"
        except keys.BadDatabase as bad:
            return LoaderError.FORMAT, str(bad)
        if image.remark:
            self.board.log.note("psp", "firmware", "{} {:#x} {}", part.name, image.version, image.remark)
        if command == boot.PSP_BL__LOAD_SOSDRV:
            self._version = image.version
        return None

    def _component(self, address: int) -> bytes:
        """Read a component. Its header states its size; without a header, read up to the last byte that is not 0."""
        start = self._hub.read(0, address, psp_images.HEADER_BYTES, CLIENT)
        size = psp_images.size_from_header(start)
        if size is not None and not psp_images.HEADER_BYTES <= size <= LOADABLE_BYTES:
            raise psp_images.BadImage(Status.SHORT_BUFFER, f"its header says {size:#x} bytes")
        data = self._hub.read(0, address, size or self._hub.reach(0, address, LOADABLE_BYTES), CLIENT)
        return data if size else _without_zeroes(data)

    def _wake_up(self, generation: int) -> None:
        if generation != self.ring.generation:
            return
        self.alive = True
        self.ring.os_version = self._version
        if self._name(VERSION) in self.cells:
            self.cells[self._name(VERSION)] = self._version
        self.cells[self._name(81)] = SECURE_OS_ALIVE
        self.board.log.note("psp", "boot", "secure OS {:#x} runs", self._version)
        self.board.clock.after(RINGS_US, lambda: self._take_rings(generation))

    def _take_rings(self, generation: int) -> None:
        if generation == self.ring.generation:
            self._answer = self.cells[self._name(64)] = READY

    # --- secure OS ----------------------------------------------------------------------------------------------
    def _control(self, value: int) -> None:
        """Handle a control command of the host; the answer is bit 31 with a status in 15:0."""
        generation = self.ring.generation
        if not self._answer:
            what = "accepts rings" if self.alive else "runs"
            self.board.log.note("psp", "violation", "control command {:#x} before the secure OS {}", value, what)
            return
        if value & gfx.GFX_CMD_ID_MASK == gfx.GFX_CTRL_CMD_ID_MODE1_RST:
            self.board.clock.after(CONTROL_US, self._on_mode1_reset)
            return

        self._commands += 1
        number = self._commands

        def finish() -> None:
            if generation != self.ring.generation:
                return
            if number != self._commands:
                self.board.log.note("psp", "violation", "control command {:#x}: overwritten before it was read", value)
            else:
                self._answer = READY | self._do_control(value & gfx.GFX_CMD_ID_MASK)

        def show() -> None:
            if generation == self.ring.generation:
                self.cells[self._name(64)] = self._answer

        show()
        self.board.clock.after(CONTROL_US, finish)
        self.board.clock.after(HANDSHAKE_US, show)

    def _do_control(self, command: int) -> int:
        cells = self.cells
        if command == gfx.GFX_CTRL_CMD_ID_INIT_GPCOM_RING:
            address = cells[self._name(69)] | cells[self._name(70)] << 32
            cells[self._name(67)] = 0
            return self.ring.create(address, cells[self._name(71)])
        if command in (gfx.GFX_CTRL_CMD_ID_DESTROY_RINGS, gfx.GFX_CTRL_CMD_ID_DESTROY_GPCOM_RING):
            self.ring.destroy()
            return 0
        if command in (
            gfx.GFX_CTRL_CMD_ID_CAN_INIT_RINGS,
            gfx.GFX_CTRL_CMD_ID_ENABLE_INT,
            gfx.GFX_CTRL_CMD_ID_DISABLE_INT,
        ):
            return 0
        self.board.log.note("psp", "violation", "control command {:#x}: there is no such command", command)
        return gfx.PSP_ERR_UNKNOWN_COMMAND

    def _write_pointer(self, value: int) -> None:
        if not self.alive:
            self.board.log.note("psp", "violation", "a ring's write pointer before the secure OS runs")
            return
        self.ring.advance(value)


def _without_zeroes(data: bytes) -> bytes:
    """Strip zero bytes from the end: whole pages first, because there are many."""
    end = len(data)
    while end >= PAGE_BYTES and data[end - PAGE_BYTES : end] == ZEROES:
        end -= PAGE_BYTES
    return data[:end].rstrip(b"\0")
