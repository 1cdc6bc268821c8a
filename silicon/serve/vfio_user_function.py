"""A virtual card's function with vfio-user's numbering: regions 0 to 5 are BARs, 6 the expansion ROM, 7 configuration
space.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Protocol

from ringup.autogen.linux import pci as regs
from ringup.autogen.linux import vfio
from ringup.silicon.common.interrupts import Interrupts
from ringup.silicon.common.log import EventLog
from ringup.silicon.common.memory import HostMemory
from ringup.silicon.pci.function import SIZE, Function
from ringup.silicon.pci.path import Bar, ConfigAccess, Path
from ringup.silicon.serve.vfio_user_wire import Refused

READ, WRITE = vfio.VFIO_REGION_INFO_FLAG_READ, vfio.VFIO_REGION_INFO_FLAG_WRITE
MMAP = vfio.VFIO_REGION_INFO_FLAG_MMAP
ROM, CONFIG = vfio.VFIO_PCI_ROM_REGION_INDEX, vfio.VFIO_PCI_CONFIG_REGION_INDEX
REGIONS = vfio.VFIO_PCI_VGA_REGION_INDEX + 1
KINDS = vfio.VFIO_PCI_REQ_IRQ_INDEX + 1
SINGLE = (1, 2, 4, 8)  # bytes of one access
HOST_PAGE = 4096


class Card(Protocol):
    """The served object: a card in a slot."""

    bars: dict[int, Bar]
    config: ConfigAccess
    gpu: Function
    host: HostMemory
    image: bytes
    interrupts: Interrupts
    log: EventLog
    path: Path

    @property
    def name(self) -> str:
        """The card's name."""
        ...

    @property
    def lost(self) -> bool:
        """Whether the card is gone from the bus."""
        ...

    def shared(self, index: int) -> tuple[int, int] | None:
        """Return the file descriptor and size in bytes of the memory behind a BAR; None if the BAR is not
        plain memory.
        """
        ...

    def resets(self) -> tuple[str, ...]:
        """Name the card's resets, the mildest first."""
        ...

    def reset(self, method: str) -> None:
        """Reset the card as a kernel's bus driver does: configuration space is restored."""
        ...

    def close(self) -> None:
        """Switch bus mastering off and release the card."""
        ...


@dataclass(frozen=True, slots=True)
class Region:
    """A region's properties. `areas`: the mappable parts, (offset, bytes) each, if that is not all of it."""

    size_bytes: int = 0
    flags: int = 0
    descriptor: int | None = None
    areas: tuple[tuple[int, int], ...] = ()


class ServedFunction:
    """The card's function 0. Raises `Refused` for an impossible access; errors of the card itself are its
    `RingupError`.
    """

    def __init__(self, card: Card) -> None:
        self.card = card
        self.host = card.host

    @property
    def name(self) -> str:
        """The card's name."""
        return self.card.name

    @property
    def irq_counts(self) -> tuple[int, ...]:
        """The number of interrupt vectors of each kind."""
        gpu = self.card.gpu
        counts = [0] * KINDS
        counts[vfio.VFIO_PCI_INTX_IRQ_INDEX] = 1 if gpu.row.interrupt_pin else 0
        if (place := gpu.places.get("msi")) is not None:
            capable = gpu.config.get(place + regs.PCI_MSI_FLAGS, 2) & regs.PCI_MSI_FLAGS_QMASK
            counts[vfio.VFIO_PCI_MSI_IRQ_INDEX] = 1 << (capable >> 1)
        if (place := gpu.places.get("msi-x")) is not None:
            size = gpu.config.get(place + regs.PCI_MSIX_FLAGS, 2) & regs.PCI_MSIX_FLAGS_QSIZE
            counts[vfio.VFIO_PCI_MSIX_IRQ_INDEX] = size + 1
        return tuple(counts)

    @property
    def irq_kind(self) -> int:
        """The kind of interrupt that the guest's driver has enabled."""
        gpu = self.card.gpu
        for name, flags, enable, kind in (
            ("msi-x", regs.PCI_MSIX_FLAGS, regs.PCI_MSIX_FLAGS_ENABLE, vfio.VFIO_PCI_MSIX_IRQ_INDEX),
            ("msi", regs.PCI_MSI_FLAGS, regs.PCI_MSI_FLAGS_ENABLE, vfio.VFIO_PCI_MSI_IRQ_INDEX),
        ):
            place = gpu.places.get(name)
            if place is not None and gpu.config.get(place + flags, 2) & enable:
                return kind
        return vfio.VFIO_PCI_INTX_IRQ_INDEX

    @property
    def intx_up(self) -> bool:
        """Whether the INTx line is asserted."""
        command, status = (self.card.gpu.config.get(at, 2) for at in (regs.PCI_COMMAND, regs.PCI_STATUS))
        return bool(status & regs.PCI_STATUS_INTERRUPT) and not command & regs.PCI_COMMAND_INTX_DISABLE

    def region(self, index: int, *, can_map: bool = True) -> Region:
        """Describe a region; one that the function lacks has size 0. `can_map`: the answer may include a descriptor."""
        gpu = self.card.gpu
        if index == CONFIG:
            return Region(SIZE, READ | WRITE)
        if index == ROM:
            return Region(gpu.row.rom_bytes, READ) if gpu.row.rom_bytes else Region()
        if index not in gpu.sizes:
            return Region()
        size_bytes = gpu.sizes[index]
        shared = self.card.shared(index) if can_map else None
        if shared is None or size_bytes % HOST_PAGE:
            return Region(size_bytes, READ | WRITE)
        descriptor, there = shared
        whole = there >= size_bytes
        return Region(size_bytes, READ | WRITE | MMAP, descriptor, () if whole else ((0, there),))

    def _inside(self, index: int, offset: int, size_bytes: int, write: bool) -> None:
        region = self.region(index, can_map=False)
        if not region.flags & (WRITE if write else READ):
            raise Refused(errno.EINVAL, f"region {index} cannot be {'written' if write else 'read'}")
        if not 0 < size_bytes <= region.size_bytes - offset:
            raise Refused(errno.EINVAL, f"region {index} has no {size_bytes:#x} bytes at {offset:#x}")

    def read(self, index: int, offset: int, size_bytes: int) -> bytes:
        """Read bytes of a region; a card that is gone returns all ones."""
        self._inside(index, offset, size_bytes, write=False)
        if index == CONFIG:
            pieces = _dwords(offset, size_bytes)
            return b"".join(self.card.config.read(at, count).to_bytes(count, "little") for at, count in pieces)
        # a monitor may read the ROM at any time, as through a kernel, which enables it for the read: drivers/vfio/pci
        if index == ROM:
            data = b"" if self.card.lost else self.card.image[offset : offset + size_bytes]
            return data.ljust(size_bytes, b"\xff")
        bar = self.card.bars.get(index)
        if bar is None:
            self.card.log.note("pci", "unmodelled", "BAR {} is configuration space only", index)
            return b"\xff" * size_bytes
        if size_bytes in SINGLE and not offset % size_bytes:
            return bar.read(offset, size_bytes).to_bytes(size_bytes, "little")
        return bar.read_block(offset, size_bytes)

    def write(self, index: int, offset: int, data: bytes) -> None:
        """Write bytes of a region; a card that is gone ignores them."""
        size_bytes = len(data)
        self._inside(index, offset, size_bytes, write=True)
        if index == CONFIG:
            for at, count in _dwords(offset, size_bytes):
                start = at - offset
                self.card.config.write(at, int.from_bytes(data[start : start + count], "little"), count)
            return
        bar = self.card.bars.get(index)
        if bar is None:
            self.card.log.note("pci", "unmodelled", "BAR {} is configuration space only", index)
        elif size_bytes in SINGLE and not offset % size_bytes:
            bar.write(offset, int.from_bytes(data, "little"), size_bytes)
        else:
            bar.write_block(offset, data)

    def write_run(self, index: int, offset: int, data: bytes, size_bytes: int) -> None:
        """Write adjacent words of `size_bytes` each, as many writes would."""
        bar = self.card.bars.get(index)
        plain = size_bytes in SINGLE and not offset % size_bytes and offset + len(data) <= self._writable_bytes(index)
        if bar is not None and plain and index != CONFIG:
            bar.write_run(offset, data, size_bytes)
            return
        for at in range(0, max(len(data), 1), max(size_bytes, 1)):
            self.write(index, offset + at, data[at : at + size_bytes])

    def _writable_bytes(self, index: int) -> int:
        region = self.region(index, can_map=False)
        return region.size_bytes if region.flags & WRITE else 0

    def reset(self) -> None:
        """Reset the function by its mildest reset, and restore its configuration space."""
        self.card.reset(self.card.resets()[0])


def _dwords(offset: int, size_bytes: int) -> list[tuple[int, int]]:
    """Split a range into aligned accesses within a dword each: (offset, bytes)."""
    pieces = []
    end = offset + size_bytes
    while offset < end:
        count = next(size for size in (4, 2, 1) if not offset % size and offset + size <= end)
        pieces.append((offset, count))
        offset += count
    return pieces
