"""The bridge's memory that the card can access: 512 KiB of SRAM and the queue pages of an NVMe host; and the engine
between SRAM and USB.

Source: asm2464pd-firmware README, pcie/test_sram_verify.py (measured), app/README.md (the pages, measured), main.c
(request F2).
"""

from __future__ import annotations

import mmap
from collections.abc import Callable
from dataclasses import dataclass

from ringup.silicon.asm2464pd.hardware import timing
from ringup.silicon.asm2464pd.hardware.endpoints import InEndpoint, OutEndpoint
from ringup.silicon.asm2464pd.hardware.fabric import Fabric
from ringup.silicon.asm2464pd.hardware.xdata import Xdata
from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.common.log import EventLog
from ringup.silicon.common.memory import Span, span_of

SRAM, SRAM_BYTES, SLOT_BYTES, SECTOR_BYTES = 0x20_0000, 512 << 10, 16 << 10, 512
SLOTS = SRAM_BYTES // SLOT_BYTES
WINDOW_BYTES = 256 << 10
SUBMISSIONS, COMPLETIONS = 0x82_0000, 0x82_2000
# a write by the card here releases an armed read
RELEASE = COMPLETIONS + 12
# the engine fetches NVMe submission queue entries from here. Source: tinygrad commit 756e82e055 (measured). A driver
# that works writes the upper half of the page all the time (runtime/ops_amd.py, FENCE), so only the lower half matters
ENTRIES_END = SUBMISSIONS + 0x800


@dataclass(frozen=True, slots=True)
class Region:
    """Memory of the bridge on the bus. `window`: the XDATA address where its first `window_bytes` appear."""

    bus_addr: int
    size_bytes: int
    window: int = 0
    window_bytes: int = 0


REGIONS = (
    Region(SRAM, SRAM_BYTES, 0xF000, 0x1000),
    Region(0x80_0000, 0x1000, 0xB000, 0x200),
    Region(0x80_8000, 0x1000),
    Region(SUBMISSIONS, 0x1000, 0xA000, 0x1000),
    Region(COMPLETIONS, 0x1000, 0xB800, 0x800),
    Region(0x82_8000, 0x1000),
)


class Sram:
    """The memories, attached to the card's bus while no window of a port covers them."""

    def __init__(self, xdata: Xdata, fabric: Fabric) -> None:
        self._fabric = fabric
        self.spans = {region.bus_addr: self._span(region) for region in REGIONS}
        self.view = self.spans[SRAM].view
        for region in REGIONS:
            if region.window_bytes:
                xdata.window(region.window, self.spans[region.bus_addr].view[: region.window_bytes])
        self._attached: set[int] = set()
        fabric.on_change = self.refresh
        self.refresh()

    @staticmethod
    def _span(region: Region) -> Span:
        span = span_of(mmap.mmap(-1, region.size_bytes), region.bus_addr)
        span.lasting = True
        return span

    def lose(self) -> None:
        """Clear the contents: power was lost."""
        for span in self.spans.values():
            span.view[:] = bytes(span.size_bytes)

    def refresh(self) -> None:
        """Attach the memories that no window of the ports forwards downstream; detach the others."""
        card = self._fabric.card
        if card is None:
            return
        for base, span in self.spans.items():
            free = not self._fabric.forwards_down(base, span.end)
            if free and base not in self._attached:
                card.host.attach(span)
                self._attached.add(base)
            elif not free and base in self._attached:
                card.host.detach(base)
                self._attached.discard(base)


class SramEngine:
    """Moves sectors between a bulk endpoint and slots of SRAM.

    Host to SRAM: USB reports the end before the last bytes are in memory; one more transfer may be armed while one
    moves (Source: tinygrad runtime/ops_amd.py, which does so). SRAM to host: nothing is sent before the card has
    written to the completion queue. A count that does not match slots and transfer makes the engine hang until it is
    reset. UNKNOWN: a completely filled window of 16 slots (half of the memory, as the open firmware's host programs use
    it) loses its last slot (`spoils_full_windows`); of two reports this is the worse one.
    """

    def __init__(
        self, sram: Sram, out: OutEndpoint, into: InEndpoint, clock: VirtualClock, log: EventLog, fabric: Fabric
    ) -> None:
        self._sram, self._out, self._in, self._clock, self._log = sram, out, into, clock, log
        self.spoils_full_windows = True
        self.stuck = False
        self.busy = False
        self._disturbed = False
        self._generation = 0
        self._release: Callable[[], None] | None = None
        # the memory that a transfer to the host reads
        self._sends: memoryview | None = None
        # first slot, number of slots and bytes of the transfer that is armed after the current one
        self._next: tuple[int, int, int] | None = None
        if fabric.card is not None:
            fabric.card.host.watch(RELEASE, RELEASE + 4, self._released)
            fabric.card.host.watch(SUBMISSIONS, ENTRIES_END, self._disturb)

    def reset(self) -> None:
        """Drop armed transfers; the engine no longer hangs."""
        self._generation += 1
        self.stuck = self.busy = self._disturbed = False
        self._release = self._sends = self._next = None

    def arm(self, first_slot: int, slots: int, sectors: int, *, to_host: bool) -> None:
        """Arm one transfer of `sectors` to or from `slots` slots, starting at `first_slot`."""
        size_bytes = sectors * SECTOR_BYTES
        if self.stuck:
            return
        if not sectors or not slots or first_slot + slots > SLOTS or size_bytes > slots * SLOT_BYTES:
            self._hang(f"armed with {sectors} sectors in {slots} slots from {first_slot}")
        elif self.busy and (to_host or self._sends is not None or self._next is not None):
            self._hang("armed again before the earlier transfers were over")
        elif self.busy:
            self._next = first_slot, slots, size_bytes
        elif to_host:
            self._arm_in(first_slot, size_bytes)
        else:
            self._arm_out(first_slot, slots, size_bytes)

    def _hang(self, why: str) -> None:
        self._log.note("bridge", "violation", "the SRAM engine was {}: it hangs until it is reset", why)
        self.stuck, self.busy = True, False
        self._release = self._sends = self._next = None
        self._out.disarm()
        self._in.clear()

    def _arm_out(self, first_slot: int, slots: int, size_bytes: int) -> None:
        self.busy, self._disturbed, done = True, False, 0
        start, generation = first_slot * SLOT_BYTES, self._generation

        def take(data: bytes, complete: bool, more: bool) -> None:
            nonlocal done
            at, done = start + done, done + len(data)
            if generation != self._generation or self.stuck:
                return
            wrong = done != size_bytes if complete else not more
            if wrong or (complete and more):
                self._hang(f"given a transfer other than the {size_bytes} bytes it was armed for")
                return
            ends_window = (start + size_bytes) % WINDOW_BYTES == 0
            spoiled = self._disturbed or (complete and self.spoils_full_windows and ends_window)
            self._clock.after(timing.SRAM_LANDING_US, lambda: self._land(at, data, spoiled, generation))
            if complete:
                self.busy = False
                following, self._next = self._next, None
                if following is not None:
                    self._arm_out(*following)

        self._out.arm(size_bytes, take, bytes_per_us=timing.SRAM_BYTES_PER_US)

    def _land(self, at: int, data: bytes, spoiled: bool, generation: int) -> None:
        if generation == self._generation:
            self._sram.view[at : at + len(data)] = _spoil(data) if spoiled else data

    def _arm_in(self, first_slot: int, size_bytes: int) -> None:
        self.busy, self._disturbed = True, False
        start, generation = first_slot * SLOT_BYTES, self._generation

        self._sends = window = self._sram.view[start : start + size_bytes]

        def finished() -> None:
            if generation == self._generation:
                self.busy, self._sends = False, None

        def release() -> None:
            self._in.send(window, bytes_per_us=timing.SRAM_BYTES_PER_US, done=finished)

        self._release = release

    def _released(self, bus_addr: int, size_bytes: int) -> None:
        """Release an armed read, once: the card has written to the completion queue."""
        release, self._release = self._release, None
        if release is not None:
            release()

    def _disturb(self, bus_addr: int, size_bytes: int) -> None:
        if self.busy:
            self._log.note("bridge", "violation", "the card wrote to {:#x} while the SRAM engine moves data", bus_addr)
            self._disturbed = True
            if self._sends is not None:
                self._sends[:SECTOR_BYTES] = _spoil(self._sends[:SECTOR_BYTES])


def _spoil(data: bytes | memoryview) -> bytes:
    return bytes(byte ^ 0x5A for byte in data)
