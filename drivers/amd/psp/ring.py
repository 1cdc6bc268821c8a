"""The ring through which the security processor's secure OS (PSP, MP0) takes commands, and the mailbox registers of its
boot loader and its secure OS.

A frame in the ring names a command buffer and a fence. The host writes buffer and frame, flushes them, moves the write
pointer; the secure OS carries the command out, writes its response into the buffer, then the fence. All four lie in
VRAM and are addressed through the frame buffer aperture, which is there before any hub has page tables. One command is
under way at a time.

Source: amdgpu psp_v13_0.c, psp_v14_0.c, ring_create and ring_stop; amdgpu_psp.c, psp_ring_cmd_submit and
psp_cmd_submit_buf; psp_gfx_if.h.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ringup.autogen.amd import mp, psp
from ringup.autogen.amd.psp_boot import PSP_RING_TYPE__KM
from ringup.autogen.layout import Word
from ringup.autogen.structs import memory
from ringup.drivers.amd.bus.hdp import Hdp
from ringup.drivers.amd.bus.heard import Heard
from ringup.drivers.amd.bus.registers import ONES, Block, Version
from ringup.drivers.amd.bus.vram import VramWindow
from ringup.errors import DeviceTimeout, FirmwareError, NotSupported

RING_BYTES = 0x1000  # amdgpu_psp.c, psp_ring_init
FRAME_BYTES = psp.psp_gfx_rb_frame.SIZE
FRAMES = RING_BYTES // FRAME_BYTES
HANDSHAKE_US = 20_000  # TIMEOUT: psp_v13_0.c: "there might be handshake issue with hardware which needs delay"
# TIMEOUT: psp_wait_for polls AMDGPU_MAX_USEC_TIMEOUT (100,000) times 1 us and a read: some 200 ms
MAILBOX_TIMEOUT_US = 500_000
MAILBOX_POLL_US = 100
COMMAND_TIMEOUT_US = 2_000_000  # TIMEOUT: amdgpu_psp.c: psp_timeout 20000 polls of 60 to 100 us
COMMAND_POLL_US = 200
DONE = psp.GFX_CMD_RESPONSE_MASK
FENCE_BEFORE = 16  # bytes from the fence to the response, as far as its own alignment asks
RESPONSE = psp.psp_gfx_cmd_resp.offset_of("resp")
LOW = 0xFFFF_FFFF
COMMANDS = {
    value: name.removeprefix("GFX_CMD_ID_")
    for name, value in vars(psp).items()
    if name.startswith("GFX_CMD_ID_") and name != "GFX_CMD_ID_MASK"
}


class Mailbox(NamedTuple):
    """The registers that the boot loader and the secure OS listen to."""

    command: type[Word]  # boot loader: bit 31 when it waits for a command
    address: type[Word]  # boot loader: where the part lies, in MiB
    control: type[Word]  # secure OS: ring commands; bit 31 and a status when done
    wptr: type[Word]  # secure OS: dwords
    ring_low: type[Word]
    ring_high: type[Word]
    ring_bytes: type[Word]
    sign_of_life: type[Word]  # not zero once the secure OS runs


MP0 = Mailbox(
    mp.MP0_SMN_C2PMSG_35,
    mp.MP0_SMN_C2PMSG_36,
    mp.MP0_SMN_C2PMSG_64,
    mp.MP0_SMN_C2PMSG_67,
    mp.MP0_SMN_C2PMSG_69,
    mp.MP0_SMN_C2PMSG_70,
    mp.MP0_SMN_C2PMSG_71,
    mp.MP0_SMN_C2PMSG_81,
)
MPASP = Mailbox(
    mp.MPASP_SMN_C2PMSG_35,
    mp.MPASP_SMN_C2PMSG_36,
    mp.MPASP_SMN_C2PMSG_64,
    mp.MPASP_SMN_C2PMSG_67,
    mp.MPASP_SMN_C2PMSG_69,
    mp.MPASP_SMN_C2PMSG_70,
    mp.MPASP_SMN_C2PMSG_71,
    mp.MPASP_SMN_C2PMSG_81,
)
MAILBOXES = {13: MP0, 14: MPASP}  # by major version of MP0


def mailbox_of(version: Version) -> Mailbox:
    """Return the registers that the security processor is talked to through. Raises `NotSupported` for a version that
    is not known.
    """
    if version[0] not in MAILBOXES:
        raise NotSupported(
            f"the security processor is version {'.'.join(map(str, version))}; {', '.join(map(str, MAILBOXES))} are known"
        )
    return MAILBOXES[version[0]]


@dataclass(frozen=True, slots=True)
class PspBuffers:
    """VRAM for the security processor, by vram_pa. Nothing else writes there while it runs.

    `message` is 1 MiB on a MiB: a part of firmware being sent. `ring` and `command` are a page each, on a page.
    """

    message: int
    ring: int
    command: int

    @property
    def response(self) -> int:
        """Where a command's response is stored."""
        return self.command + RESPONSE

    @property
    def fence(self) -> int:
        """The fence, in what the command leaves free right before the response, in one 64-byte line with what is read
        of that.

        ORDER: memory is read upwards. A fence behind the response may be seen with a response of before.
        UNKNOWN: whether the secure OS minds; amdgpu_psp.c gives the fence a page of its own, and takes two looks.
        """
        return self.response - FENCE_BEFORE


class Response(NamedTuple):
    """The response to a command; `more`: the dwords that each command defines itself."""

    status: int
    tmr_bytes: int
    more: tuple[int, ...] = ()


class PspRing:
    """The kernel-mode ring of one card's secure OS. Up between `create` and `destroy`."""

    def __init__(self, block: Block, window: VramWindow, hdp: Hdp, buffers: PspBuffers, fb_base: int) -> None:
        self.mailbox = mailbox_of(block.version)
        self._block, self._window, self._hdp = block, window, hdp
        self._buffers, self._fb_base = buffers, fb_base
        self._fence = self._wptr_dwords = 0
        # the fence of the last frame that lies in the ring
        self._laid = 0
        self._up = False
        self.heard = Heard("the security processor (PSP, MP0)", block.registers.clock)

    def create(self, *, stale: bool) -> None:
        """Give the secure OS its ring. `stale`: it ran before, so another driver's ring may exist and is destroyed
        first.

        Raises `DeviceTimeout` when it does not answer, `FirmwareError` when it refuses the ring.
        """
        block, mailbox = self._block, self.mailbox
        if stale:
            self._take_down()
        self._wait("waiting for the secure OS to take a ring")
        at = self._fb_base + self._buffers.ring
        block.write(mailbox.ring_low.at(block.version)(at & LOW))
        block.write(mailbox.ring_high.at(block.version)(at >> 32))
        block.write(mailbox.ring_bytes.at(block.version)(RING_BYTES))
        block.write(mailbox.control.at(block.version)(PSP_RING_TYPE__KM << 16))
        block.registers.clock.sleep_us(HANDSHAKE_US)
        answer = self._wait("creating the secure OS's ring")
        status = answer & psp.GFX_CMD_STATUS_MASK
        if status:
            raise FirmwareError(
                f"creating the secure OS's ring: status {status:#06x} (C2PMSG_64 {answer:#010x}); reset the card"
            )
        self._wptr_dwords = int(block.read(mailbox.wptr))
        if self._wptr_dwords % (FRAME_BYTES // 4) or self._wptr_dwords >= RING_BYTES // 4:
            raise FirmwareError(
                f"creating the secure OS's ring: its write pointer is {self._wptr_dwords:#x} dwords, no frame of {FRAMES}"
            )
        self._window.write(self._buffers.fence, bytes(4))
        self._fence = self._laid = 0
        self._up = True

    def _lay_frames(self) -> None:
        """Write the frames of a whole turn of the ring, which differ by their fence alone; the secure OS looks at none
        beyond the pointer.
        """
        frame = psp.psp_gfx_rb_frame()
        command, fence = self._fb_base + self._buffers.command, self._fb_base + self._buffers.fence
        frame.cmd_buf_addr_lo, frame.cmd_buf_addr_hi = command & LOW, command >> 32
        frame.fence_addr_lo, frame.fence_addr_hi = fence & LOW, fence >> 32
        ring, first = bytearray(RING_BYTES), self._wptr_dwords * 4
        for turn in range(FRAMES):
            frame.fence_value = self._fence + 1 + turn
            at = (first + turn * FRAME_BYTES) % RING_BYTES
            ring[at : at + FRAME_BYTES] = bytes(memory(frame))
        self._window.write(self._buffers.ring, bytes(ring))
        self._laid = self._fence + FRAMES

    @property
    def up(self) -> bool:
        """Whether the secure OS has the ring."""
        return self._up

    def destroy(self) -> None:
        """Destroy the ring; the secure OS runs on. Twice is harmless."""
        if self._up:
            self._up = False
            self._take_down()

    def submit(self, cmd: psp.psp_gfx_cmd_resp, doing: str) -> Response:
        """Submit one command and return its response, whatever its status; `doing` names it in errors.

        Raises `DeviceTimeout` when its fence is not written.
        """
        if not self._up:
            raise ValueError(f"{doing}: the secure OS has no ring: create it first")
        window, buffers = self._window, self._buffers
        if self._fence == self._laid:
            self._lay_frames()
        self._fence += 1
        window.write(buffers.command, bytes(memory(cmd)))
        self._hdp.flush()
        # ORDER: the frame is in VRAM before the pointer moves; the secure OS reads it at once
        self._wptr_dwords = (self._wptr_dwords + FRAME_BYTES // 4) % (RING_BYTES // 4)
        wptr = self.mailbox.wptr.at(self._block.version)
        self._block.write(wptr(self._wptr_dwords))
        with self.heard.asking(doing):
            answer = psp.psp_gfx_resp.view(self._wait_fence(doing))
        return Response(answer.status, answer.tmr_size, tuple(answer.uresp.reserved.reserved))

    def _wait_fence(self, doing: str) -> bytearray:
        """Wait for the fence of the last command and return the response."""
        clock = self._block.registers.clock
        end_us = clock.now_us + COMMAND_TIMEOUT_US
        while True:
            # no command is done at once, and over USB a look is a round trip
            clock.sleep_us(COMMAND_POLL_US)
            late = clock.now_us >= end_us
            seen = self._window.read(self._buffers.fence, FENCE_BEFORE + psp.psp_gfx_resp.SIZE)
            value = int.from_bytes(seen[:4], "little")
            if value == self._fence:
                return bytearray(seen[FENCE_BEFORE:])
            if value == ONES:
                self._block.registers.check(doing)
            if late:
                raise DeviceTimeout(
                    f"{doing}: the secure OS's fence is {value:#x}, not {self._fence:#x}, after {COMMAND_TIMEOUT_US / 1000:g} ms; "
                    "reset the card"
                )

    def _take_down(self) -> None:
        control = self.mailbox.control.at(self._block.version)
        self._block.write(control(psp.GFX_CTRL_CMD_ID_DESTROY_RINGS))
        self._block.registers.clock.sleep_us(HANDSHAKE_US)
        self._wait("taking the secure OS's ring down")

    def _wait(self, doing: str) -> int:
        """Wait until the secure OS has answered the last ring command."""
        with self.heard.asking(doing):
            return int(
                self._block.wait(
                    self.mailbox.control,
                    lambda word: bool(int(word) & DONE),
                    MAILBOX_TIMEOUT_US,
                    doing,
                    poll_us=MAILBOX_POLL_US,
                )
            )
