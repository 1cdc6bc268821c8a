"""A card behind a USB bridge: the seam's `Device`. Nothing is mapped, the card cannot reach host memory, and there are
no interrupts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial

from ringup.autogen.linux import pci
from ringup.drivers.cleanup import Teardown, undone_on_error
from ringup.drivers.transport.bus_memory import BusMemory
from ringup.drivers.transport.config_space import answers, ask, change_command, find_capability, wait_for_answer
from ringup.drivers.transport.linux.lock import CardLock
from ringup.drivers.transport.polling import Polling
from ringup.drivers.transport.seam import Bulk, Clock, Mmio, Witness
from ringup.drivers.usb4 import topology
from ringup.drivers.usb4.bridge import SLOT_BYTES, SRAM_BUS_ADDR, SRAM_BYTES, Bridge, Link
from ringup.drivers.usb4.config import BridgeConfig, Fabric
from ringup.drivers.usb4.counts import Counts
from ringup.drivers.usb4.window import BridgeWindow
from ringup.errors import DeviceLost, NotSupported, OutOfMemory, RingupError

LOG = logging.getLogger(__name__)
FUNCTION, SLOT = "function", "slot"
PAGE_BYTES = 4096
# the last slot, which no fill uses: a page for stray accesses, the others for `alloc_host`
STRAY_BUS_ADDR = SRAM_BUS_ADDR + SRAM_BYTES - SLOT_BYTES
SPARE_BUS_ADDR, SPARE_BYTES = STRAY_BUS_ADDR + PAGE_BYTES, SLOT_BYTES - PAGE_BYTES
CARD_GONE = "does not answer any more in an enclosure that does; check the card's seat and power, then open it again"
# TIMEOUT: PCI Express base specification 4.0, 6.6.2
FLR_US = 100_000


class BridgeDevice:
    """One card in one enclosure, held by this process."""

    polls_vram = True
    stray_bus_addr = STRAY_BUS_ADDR

    def __init__(
        self,
        name: str,
        bridge: Bridge,
        lock: CardLock | None,
        firmware: Callable[[str], bytes | None] | None = None,
        witness: Witness | None = None,
    ) -> None:
        """`bridge`: an open bridge whose link is up. `lock`: its lock, if it has one. `close` releases both; so does
        this constructor if it fails.

        `firmware`: returns firmware images that only this device has. `witness`: the observations of a virtual bridge
        and card.
        """
        self.name, self.bridge, self._lock = name, bridge, lock
        self.clock: Clock = bridge.port.clock
        self.interrupts = Polling(self.clock)
        self._firmware, self.witness = firmware, witness
        self._lost = self._closed = False
        self._fabric = Fabric(bridge)
        with undone_on_error(self.close):
            self.board = topology.find_board(self._fabric)
        self.config = BridgeConfig(self._fabric, self.board.function.place, self._lose)
        self._windows = {
            bar.index: BridgeWindow(f"BAR {bar.index} of {name}", bridge, bar.address, bar.size_bytes, self._lose)
            for bar in self.board.bars
        }
        LOG.info("%s is open: %s firmware %s, %s", name, bridge.kind, bridge.version, bridge.port.counts)

    @property
    def bars(self) -> Mapping[int, Mmio]:
        """Memory BARs by number."""
        return self._windows

    @property
    def rom(self) -> Mmio | None:
        """The expansion ROM; None if there is none. Reading this property enables decoding of the ROM."""
        row = self.board.rom
        if row is None:
            return None
        self.config.write(pci.PCI_ROM_ADDRESS, row.address | pci.PCI_ROM_ADDRESS_ENABLE)
        return BridgeWindow(f"ROM of {self.name}", self.bridge, row.address, row.size_bytes, self._lose)

    @property
    def remote(self) -> BridgeDevice:
        """The accesses that are faster than round trips: `bulk` and `poll`."""
        return self

    @property
    def bulk(self) -> Bulk | None:
        """The bridge's memory, through which bytes move at full rate."""
        return self.bridge.bulk

    def poll(self, bar: int, offset: int, size_bytes: int) -> bytes:
        """Read whole dwords of a BAR in one round trip. Without an answer, the result may be older bytes: the caller
        must be able to tell.
        """
        return self._windows[bar].poll(offset, size_bytes)

    def flush(self) -> None:
        """Send the posted requests."""
        if not self.bridge.port.lost:
            self.bridge.port.flush()

    def push(self, bar: int, offset: int) -> None:
        """Read a dword of a BAR only to push posted writes."""
        self._windows[bar].push(offset)

    @property
    def counts(self) -> Counts:
        """Counts of the cable's traffic."""
        return self.bridge.port.counts

    @property
    def link(self) -> Link:
        """The link between bridge and card."""
        return self.bridge.link()

    @property
    def lost(self) -> bool:
        """Whether the enclosure or the card is gone. Stays true."""
        if not self._lost and (self.bridge.port.lost or not answers(self.config)):
            self._lose()
        return self._lost

    @property
    def why_lost(self) -> str:
        """Why the device is lost and what to do: about the enclosure if that is gone, else about the card in it."""
        return self.bridge.port.why_lost if self.bridge.port.lost else CARD_GONE

    def _lose(self) -> None:
        if not self._lost:
            LOG.warning("%s is gone", self.name)
        self._lost = True

    def alloc_host(self, size_bytes: int) -> BusMemory:
        """Return pages of the bridge's memory: the card reaches no other host memory. Raises `OutOfMemory` if more than
        12 KiB are needed in all.
        """
        pages, lent = -(-size_bytes // PAGE_BYTES), self.bridge.lent
        for first in range(SPARE_BYTES // PAGE_BYTES - pages + 1):
            taken = range(first, first + pages)
            if lent.isdisjoint(taken):
                lent.update(taken)
                place = SPARE_BUS_ADDR + first * PAGE_BYTES
                return BusMemory(place, pages * PAGE_BYTES, partial(lent.difference_update, taken))
        raise OutOfMemory(
            f"{self.name}: {size_bytes} bytes of host memory: behind a USB bridge the card reaches {SPARE_BYTES} bytes"
            f" of the bridge's own, {len(lent) * PAGE_BYTES} are taken; use memory of the card"
        )

    def pin(self, buffer: memoryview) -> BusMemory:
        """Raise `NotSupported`: a card behind USB cannot access host memory."""
        raise NotSupported(
            f"pinning {buffer.nbytes} bytes for {self.name}: a card behind a USB bridge cannot access host memory"
        )

    def resets(self) -> tuple[str, ...]:
        """Return the names of the resets that are possible over USB, the mildest first."""
        at = find_capability(self.config, pci.PCI_CAP_ID_EXP)
        able = at is not None and ask(self.config, at + pci.PCI_EXP_DEVCAP) & pci.PCI_EXP_DEVCAP_FLR
        return (FUNCTION, SLOT) if able else (SLOT,)

    def reset(self, method: str) -> None:
        """Reset the card and restore the addresses in its configuration space.

        Raises `ValueError` for a reset that `resets` does not list, `DeviceLost` if the card is gone, `LinkDown` if it
        does not come back.
        """
        offered = self.resets()
        if method not in offered:
            raise ValueError(f"{self.name} has no reset {method!r} over USB; it has {', '.join(offered)}")
        doing = f"resetting {self.name} ({method})"
        if self.lost:
            raise DeviceLost(f"{doing}: {self.name} {self.why_lost}")
        if method == SLOT:
            topology.reset_slot(self._fabric, self.board)
            return
        at = find_capability(self.config, pci.PCI_CAP_ID_EXP)
        # `resets` lists this method only with the capability
        assert at is not None
        control = ask(self.config, at + pci.PCI_EXP_DEVCTL, 2, doing)
        self.config.write(at + pci.PCI_EXP_DEVCTL, control | pci.PCI_EXP_DEVCTL_BCR_FLR, 2)
        self.clock.sleep_us(FLR_US)
        wait_for_answer(self.config, self.clock, doing)
        topology.open_way(self._fabric, self.board)

    def firmware(self, name: str) -> bytes | None:
        """Return a firmware image that only this device has; None for a real card."""
        return self._firmware(name) if self._firmware is not None else None

    def power_off(self) -> None:
        """Switch the slot off. The device is unusable afterwards. Raises `NotSupported` if the firmware cannot."""
        self.bridge.power(False)
        self._lost = True

    def close(self) -> None:
        """Switch bus mastering off and release the card. The slot stays on. May be called twice."""
        if self._closed:
            return
        self._closed = True
        with Teardown(f"closing {self.name}", logged=RingupError) as teardown:
            for step in (self._stop_mastering, self.bridge.close, self.bridge.port.close):
                teardown.attempt(step)
            if self._lock is not None:
                (self._lock.leave if teardown.first or self.bridge.unsettled else self._lock.release)()

    def _stop_mastering(self) -> None:
        if hasattr(self, "config") and not self._lost:
            change_command(self.config, off=pci.PCI_COMMAND_MASTER)
