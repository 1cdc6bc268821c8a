"""The interrupt handler block: a ring of 32-byte entries in memory, its write pointer stored beside it, and what the
driver read so far.

The ring may lie anywhere VMID 0 of MMHUB reaches: system space or VRAM. It works without message-signalled interrupts
too: `drain` looks at the stored write pointer. Source: amdgpu ih_v6_0.c, ih_v7_0.c, vega20_ih.c, amdgpu_ih.c.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from ringup.autogen.amd import osssys
from ringup.drivers.amd.bus import ih_decode
from ringup.drivers.amd.bus.doorbells import Doorbell
from ringup.drivers.amd.bus.ih_decode import ENTRY_BYTES, Interrupt
from ringup.drivers.amd.bus.registers import Block
from ringup.drivers.memory.access import Access

MIN_BYTES, MAX_BYTES = 4096, 256 << 10  # IH_RB_WPTR.offset counts 64 Ki dwords
SETTLE_US = 1000  # TIMEOUT: entries under way when interrupts are switched off; ih_v6_0_irq_disable waits as long
MC_SPACE_VIRTUAL = 4  # ring and write-back are addresses of VMID 0, not of the bus. Source: ih_v6_0_rb_cntl
STORMS_SINCE = 6  # the major version from which on the driver bounds storms; vega20_ih.c does not
STORM_DELAY = 3  # page faults come in storms: fewer messages for them. Source: ih_v6_0_irq_init
_POINTER = struct.Struct("<I")
_HEAD = struct.Struct("<H")  # client and source of an entry


def silence(block: Block) -> None:
    """Switch the ring off, whatever driver set it up: it may lie in memory that belongs to another process by now."""
    block.update(osssys.IH_RB_CNTL, rb_enable=0, enable_intr=0)


class Ih:
    """Interrupt ring 0 of one card.

    `ring` is the ring's memory as the CPU sees it and `ring_va` as VMID 0 does; its size is a power of two. `writeback`
    (4 bytes) and `writeback_va` are where the block stores its write pointer. Without a `doorbell` the read pointer
    goes through a register.
    """

    def __init__(
        self,
        block: Block,
        ring: memoryview | Access,
        ring_va: int,
        writeback: memoryview | Access,
        writeback_va: int,
        doorbell: Doorbell | None = None,
        last_seen: Callable[[bool], int] | None = None,
        xccs: Sequence[int] = (),
    ) -> None:
        """`last_seen(looked)`: the stored write pointer, for a path where a read is a round trip; the value read last,
        if the caller has just `looked`. `xccs`: see `ih_decode.decode`.
        """
        self._xccs = tuple(xccs)
        self._fatal_heads = frozenset(
            int(ih_decode.Entry(client_id=client, source_id=source))
            for (client, source), kind in ih_decode.kinds(block.version).items()
            if kind in ih_decode.FATAL
        )
        size_bytes = len(ring)
        if not MIN_BYTES <= size_bytes <= MAX_BYTES or size_bytes & size_bytes - 1:
            raise ValueError(
                f"an interrupt ring is a power of two of {MIN_BYTES} to {MAX_BYTES} bytes, not {size_bytes}"
            )
        if ring_va % 256 or writeback_va % 4:
            raise ValueError(
                f"the ring starts on 256 bytes and its write pointer on 4, not at {ring_va:#x} and {writeback_va:#x}"
            )
        self._block, self._ring, self._ring_va = block, ring, ring_va
        self._writeback, self._writeback_va, self._doorbell = writeback, writeback_va, doorbell
        self._last_seen = last_seen or (lambda looked: int(_POINTER.unpack(self._writeback[:4])[0]))
        self._mask = size_bytes - 1
        self._rptr = self._glanced = self._stored_then = 0
        self.overflows = 0

    def start(self, *, message_signalled: bool) -> None:
        """Set the ring up and switch it on; `message_signalled`: send a message when the driver has advanced the read
        pointer.
        """
        self._enable(False)
        block = self._block
        block.write(block.make(osssys.IH_RB_BASE, addr=self._ring_va >> 8 & 0xFFFF_FFFF))
        block.write(block.make(osssys.IH_RB_BASE_HI, addr=self._ring_va >> 40))
        block.update(
            osssys.IH_RB_CNTL,
            rb_size=(len(self._ring) // 4).bit_length() - 1,
            mc_space=MC_SPACE_VIRTUAL,
            mc_snoop=1,
            mc_ro=0,
            mc_vmid=0,
            wptr_writeback_enable=1,
            wptr_overflow_enable=1,
            wptr_overflow_clear=1,
            rptr_rearm=message_signalled,
        )
        self._writeback[:4] = _POINTER.pack(0)
        block.write_pair(osssys.IH_RB_WPTR_ADDR_LO, osssys.IH_RB_WPTR_ADDR_HI, self._writeback_va)
        block.write(block.make(osssys.IH_RB_WPTR))
        block.write(block.make(osssys.IH_RB_RPTR))
        if self._doorbell:
            block.write(block.make(osssys.IH_DOORBELL_RPTR, offset=self._doorbell.index, enable=1))
        else:
            block.write(block.make(osssys.IH_DOORBELL_RPTR))
        if block.version[0] >= STORMS_SINCE:
            block.update(osssys.IH_STORM_CLIENT_LIST_CNTL, client18_is_storm_client=1)
            block.update(osssys.IH_INT_FLOOD_CNTL, flood_cntl_enable=1)
            block.update(osssys.IH_MSI_STORM_CTRL, delay=STORM_DELAY)
        self._enable(True)

    def stop(self) -> None:
        """Switch the ring off; twice is harmless."""
        self._enable(False)
        self._block.registers.clock.sleep_us(SETTLE_US)

    def _enable(self, on: bool) -> None:
        control = self._block.read(osssys.IH_RB_CNTL).replace(rb_enable=on)
        if on:
            self._clear_overflow(control)
        self._block.write(control.replace(enable_intr=on, wptr_overflow_clear=0))
        if not on:
            self._block.write(self._block.make(osssys.IH_RB_RPTR))
            self._block.write(self._block.make(osssys.IH_RB_WPTR))
        self._rptr = self._glanced = self._stored_then = 0

    def _clear_overflow(self, control: osssys.IH_RB_CNTL) -> None:
        """Clear the overflow bit: the change of WPTR_OVERFLOW_CLEAR from 0 to 1 does it."""
        for clear in (0, 1, 0):
            self._block.write(control.replace(wptr_overflow_clear=clear))

    def glance(self, looked: bool) -> bool:
        """Whether `drain` should be called: a fatal entry came, or so many that the ring should be emptied. Costs one
        read of memory, or none with `last_seen`.
        """
        stored = self._last_seen(looked)
        if stored == self._stored_then:
            return False
        word = self._stored()
        if word.rb_overflow:
            return True
        end, at, ring = int(word.offset) * 4 & self._mask & -ENTRY_BYTES, self._glanced, self._ring
        fatal = self._fatal_heads
        while at != end:
            if _HEAD.unpack(ring[at : at + _HEAD.size])[0] in fatal:
                return True
            at = at + ENTRY_BYTES & self._mask
        self._glanced, self._stored_then = at, stored
        return at - self._rptr & self._mask > self._mask // 2

    @property
    def pending(self) -> bool:
        """Whether there are entries to drain; reads memory once."""
        return int(self._stored().offset) * 4 & self._mask & -ENTRY_BYTES != self._rptr

    def drain(self) -> list[Interrupt]:
        """Return the new entries, oldest first, at most a ringful, and advance the read pointer. Never waits."""
        end = self._write_pointer()
        found: list[Interrupt] = []
        while self._rptr != end:
            found.append(
                ih_decode.decode(self._ring[self._rptr : self._rptr + ENTRY_BYTES], self._block.version, self._xccs)
            )
            self._rptr = self._rptr + ENTRY_BYTES & self._mask
        self._glanced = end
        if found:
            self._tell()
        return found

    def _tell(self) -> None:
        if self._doorbell:
            self._doorbell.ring32(self._rptr)
        else:
            self._block.write(self._block.make(osssys.IH_RB_RPTR, offset=self._rptr // 4))

    def _stored(self) -> osssys.IH_RB_WPTR:
        word = osssys.IH_RB_WPTR.at(self._block.version)
        return word(_POINTER.unpack(self._writeback[:4])[0])

    def _write_pointer(self) -> int:
        """Return where the block writes next, in bytes. After an overflow the oldest entries are lost: reading goes on
        after the newest.
        """
        stored = self._stored()
        if stored.rb_overflow:
            # the stored one keeps the bit until the next entry
            now = self._block.read(osssys.IH_RB_WPTR)
            if now.rb_overflow:
                self.overflows += 1
                self._rptr = int(now.offset) * 4 + ENTRY_BYTES & self._mask & -ENTRY_BYTES
                self._clear_overflow(self._block.read(osssys.IH_RB_CNTL))
            stored = now
        # whole entries, whatever a card that is going away stores
        return int(stored.offset) * 4 & self._mask & -ENTRY_BYTES
