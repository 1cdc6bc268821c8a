"""The CPU's windows into the card's memory: BAR1 and BAR2 through page tables, PRAMIN in BAR0.

Sources: dev_bus.h (NV_PBUS_BAR0_WINDOW), pri_nv_xal_ep.h of gh100 (NV_XAL_EP_BAR0_WINDOW), dev_vm.h
(BAR1_BLOCK, BAR2_BLOCK, BIND_STATUS, MMU_INVALIDATE) and dev_ram.h (NV_RAMIN_PAGE_DIR_BASE) of NVIDIA's open kernel
modules. GUESS: the older registers of NV_PBUS bind the windows on later chips too; drivers only write 0 to them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ringup.autogen.layout import Word
from ringup.autogen.nv import boot, mmu
from ringup.silicon.common.faults import Faults
from ringup.silicon.common.log import EventLog
from ringup.silicon.common.memory import HostMemory
from ringup.silicon.nv.common.faults import INVALIDATE_STUCK
from ringup.silicon.nv.common.registers import ALL, PRIV_BASE, Registers
from ringup.silicon.nv.memory.gmmu import Aperture, Directory, Gmmu, Missing
from ringup.silicon.nv.memory.protected import ProtectedVram

PAGE = 4096
PRAMIN_AT, PRAMIN_BYTES = 0x70_0000, 1 << 20
WINDOW_SHIFT = 16
# NV_XAL_EP_BAR0_WINDOW_BASE, 21:0: on Hopper and later the window shows video memory only
XAL_WINDOW_MASK = (1 << 22) - 1
BLOCK_VIRTUAL = 1 << 31
# the registers of a window's instance block on Hopper and later: low, high
WIDE_BLOCKS = (
    (mmu.NV_VIRTUAL_FUNCTION_PRIV_FUNC_BAR1_BLOCK_LOW_ADDR, mmu.NV_VIRTUAL_FUNCTION_PRIV_FUNC_BAR1_BLOCK_HIGH_ADDR),
    (mmu.NV_VIRTUAL_FUNCTION_PRIV_FUNC_BAR2_BLOCK_LOW_ADDR, mmu.NV_VIRTUAL_FUNCTION_PRIV_FUNC_BAR2_BLOCK_HIGH_ADDR),
)
# RAMIN: byte offset of the page directory's address
PAGE_DIR_BASE = 0x200
# of BARx_BLOCK, BAR0_WINDOW and PAGE_DIR_BASE
TARGETS = {0: Aperture.VIDEO, 2: Aperture.SYSTEM_COHERENT, 3: Aperture.SYSTEM_NONCOHERENT}
# MMU_INVALIDATE
ALL_VA, ALL_PDB, TRIGGER = 1 << 0, 1 << 1, 1 << 31


class Memory:
    """The card's and the host's memory by aperture, as the CPU's windows and the page walk reach them."""

    def __init__(self, vram: ProtectedVram, host: HostMemory, log: EventLog) -> None:
        self._vram, self._host, self._log = vram, host, log

    def read(self, aperture: Aperture, address: int, size_bytes: int) -> bytes:
        """Return bytes; all ones where there is nothing."""
        if aperture is Aperture.VIDEO:
            return self._vram.read(address, size_bytes)
        if aperture is Aperture.PEER:
            self._log.note("mmu", "violation", "peer memory {:#x} is read: this board has no peer", address)
            return b"\xff" * size_bytes
        return self._host.read(address, size_bytes)

    @property
    def epoch(self) -> int:
        """Grows whenever pointers returned before may be wrong."""
        return self._host.epoch

    def pointer(self, aperture: Aperture, address: int, size_bytes: int, *, write: bool) -> int | None:
        """Return the address in this process of a page; None where no memory with one answers."""
        if aperture is Aperture.VIDEO:
            return self._vram.pointer(address, size_bytes)
        if aperture is Aperture.PEER:
            return None
        span = self._host.find(address)
        if span is None or not span.pointer or span.end - address < size_bytes:
            return None
        allowed = span.readable and (span.writable or not write)
        return span.pointer + address - span.base if allowed else None

    def write(self, aperture: Aperture, address: int, data: bytes | memoryview) -> None:
        """Store bytes."""
        if aperture is Aperture.VIDEO:
            self._vram.write(address, data)
        elif aperture is Aperture.PEER:
            self._log.note("mmu", "violation", "peer memory {:#x} is written: this board has no peer", address)
        else:
            self._host.write(address, data)


class BarWindow:
    """BAR1 or BAR2: physical after a reset, virtual once a page directory is bound."""

    def __init__(self, number: int, memory: Memory, gmmu: Gmmu, log: EventLog) -> None:
        self.number, self.name = number, f"BAR{number}"
        self._memory, self._gmmu, self._log = memory, gmmu, log
        self.directory: Directory | None = None
        # the page that the last write found, and the epoch of the translations then
        self._near = 0, 0, Aperture.VIDEO, 0, -1

    def reset(self) -> None:
        """Unbind the page directory."""
        self.bind(None)

    def bind(self, directory: Directory | None) -> None:
        """Translate by a page directory from now on; None: addresses are physical."""
        self.directory = directory
        # this also makes the last page unknown
        self._gmmu.invalidate(lambda one: one == directory)

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Read memory; all ones where nothing is mapped."""
        parts = []
        for at, count in _pages(offset, size_bytes):
            place = self._find(at, write=False)
            parts.append(b"\xff" * count if place is None else self._memory.read(*place, count))
        return b"".join(parts)

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Write memory; dropped where nothing is mapped."""
        # drivers fill pages byte by byte
        first, end, aperture, address, epoch = self._near
        if first <= offset and offset + len(data) <= end and epoch == self._gmmu.epoch:
            self._memory.write(aperture, address + offset - first, data)
            return
        for at, count in _pages(offset, len(data)):
            place = self._find(at, write=True)
            if place is not None:
                self._memory.write(*place, data[at - offset : at - offset + count])

    def check(self, offset: int, size_bytes: int) -> bool:
        """Accept any access: this is memory."""
        return True

    def _find(self, offset: int, *, write: bool) -> tuple[Aperture, int] | None:
        if self.directory is None:
            return Aperture.VIDEO, offset
        found = self._gmmu.find(self.directory, offset, write=write)
        if isinstance(found, Missing):
            verb = "written" if write else "read"
            self._log.note("mmu", "fault", "{} {} at {:#x}: {}", self.name, verb, offset, found.kind.name)
            return None
        if write:
            first = offset >> found.shift << found.shift
            self._near = first, first + (1 << found.shift), found.aperture, found.address, self._gmmu.epoch
        return found.aperture, found.address | offset & (1 << found.shift) - 1


def _pages(offset: int, size_bytes: int) -> list[tuple[int, int]]:
    """Split a range at pages: (offset, bytes) each."""
    pieces = []
    end = offset + size_bytes
    while offset < end:
        count = min(end, (offset // PAGE + 1) * PAGE) - offset
        pieces.append((offset, count))
        offset += count
    return pieces


class Windows:
    """The windows, with the registers that point them somewhere and that invalidate translations."""

    def __init__(self, registers: Registers, memory: Memory, log: EventLog, faults: Faults) -> None:
        self.gmmu = Gmmu(memory, registers.chip.mmu_version)
        self._memory, self._log, self._faults = memory, log, faults
        self.bar1 = BarWindow(1, memory, self.gmmu, log)
        self.bar2 = BarWindow(2, memory, self.gmmu, log)
        # called with what an invalidation asks for about faults that wait
        self.on_replay: Callable[[int], None] = lambda replay: None
        moved = registers.chip.bus.window
        self._window_has_target = moved is None
        self._window = registers.at(moved[1], moved[0]) if moved else registers.cell(boot.NV_PBUS_BAR0_WINDOW)
        registers.window(PRAMIN_AT, PRAMIN_BYTES, "PRAMIN", self._read_pramin, self._write_pramin)
        self._blocks(registers, self.bar1, mmu.NV_VIRTUAL_FUNCTION_PRIV_BAR1_BLOCK, WIDE_BLOCKS[0])
        self._blocks(registers, self.bar2, mmu.NV_VIRTUAL_FUNCTION_PRIV_BAR2_BLOCK, WIDE_BLOCKS[1])
        # the older registers for the same: nvidia.ko unbinds BAR 2 by one when it goes, tinygrad BAR 1 when it comes
        for word, bar in ((boot.NV_PBUS_BAR1_BLOCK, self.bar1), (boot.NV_PBUS_BAR2_BLOCK, self.bar2)):
            registers.cell(word).on_write = partial(self._bind, bar)
        # a flush is done within the time of its write. Source: nouveau's nvkm/subdev/bar/g84.c
        registers.at(0x7_0000, "NV_PFLUSH", fixed=ALL)
        # a binding takes effect within the time of its write
        registers.cell(mmu.NV_VIRTUAL_FUNCTION_PRIV_BIND_STATUS, 0, PRIV_BASE, fixed=ALL)
        self._directory = registers.cell(mmu.NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_PDB, 0, PRIV_BASE)
        self._directory_upper = registers.cell(mmu.NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE_UPPER_PDB, 0, PRIV_BASE)
        invalidate = registers.cell(mmu.NV_VIRTUAL_FUNCTION_PRIV_MMU_INVALIDATE, 0, PRIV_BASE)
        invalidate.on_write = self._invalidate
        # an invalidation ends within the time of its write
        self._stuck = False
        invalidate.on_read = lambda: invalidate.value & ~(0 if self._stuck else TRIGGER)

    def reset(self) -> None:
        """Unbind everything: the chip was reset."""
        self.bar1.reset()
        self.bar2.reset()
        self.gmmu.invalidate()

    def _blocks(
        self, registers: Registers, bar: BarWindow, word: type[Word], wide: tuple[type[Word], type[Word]]
    ) -> None:
        """Make the register of a window's instance block, on Hopper and later two. Writing the upper half of the
        address binds (kern_bus_gh100.c). Inference: the mode "physical" takes effect without that, as tinygrad writes
        the lower register alone.
        """
        if not registers.has(wide[0]):
            registers.cell(word, 0, PRIV_BASE).on_write = lambda value: self._bind(bar, value)
            return
        low, high = (registers.cell(one, 0, PRIV_BASE) for one in wide)
        # bound within the time of the write: neither pending nor outstanding
        low.on_read = lambda: low.value & ~3
        low.on_write = lambda value: None if value >> 9 & 1 else bar.bind(None)
        high.on_write = lambda value: self._bind_block(
            bar, bool(low.value >> 9 & 1), low.value >> 10 & 3, value << 32 | low.value >> 12 << 12
        )

    def _bind(self, bar: BarWindow, value: int) -> None:
        """Bind what a register of a window names."""
        self._bind_block(bar, bool(value & BLOCK_VIRTUAL), value >> 28 & 3, (value & (1 << 28) - 1) << 12)

    def _bind_block(self, bar: BarWindow, virtual: bool, where: int, block: int) -> None:
        """Bind the page directory of an instance block to a window."""
        if not virtual:
            bar.bind(None)
            return
        target = TARGETS.get(where)
        if target is None:
            self._log.note("mmu", "violation", "{}_BLOCK names memory that there is not: {}", bar.name, where)
            return
        base = int.from_bytes(self._memory.read(target, block + PAGE_DIR_BASE, 8), "little")
        aperture = TARGETS.get(base & 3)
        if aperture is None or not base >> 10 & 1:
            self._log.note("mmu", "violation", "{}'s instance block has no page directory of version 2", bar.name)
            return
        bar.bind(Directory(aperture, base >> 12 << 12))

    def _invalidate(self, value: int) -> None:
        if not value & TRIGGER:
            return
        self._stuck = self._faults.take(INVALIDATE_STUCK)
        if (replay := value >> 3 & 7) != 0:
            self.on_replay(replay)
        if not value & ALL_VA:
            self._log.note("mmu", "unmodelled", "MMU_INVALIDATE {:#x} of some addresses drops all of them", value)
        if value & ALL_PDB:
            self.gmmu.invalidate()
            return
        address = (self._directory.value >> 4 | (self._directory_upper.value & 0xF_FFFF) << 28) << 12
        self.gmmu.invalidate(lambda one: one.address == address)

    def _pramin(self, offset: int) -> tuple[Aperture, int] | None:
        if not self._window_has_target:
            return Aperture.VIDEO, ((self._window.value & XAL_WINDOW_MASK) << WINDOW_SHIFT) + offset
        target = TARGETS.get(self._window.value >> 24 & 3)
        if target is None:
            self._log.note("bus", "violation", "BAR0_WINDOW {:#x} has a target that there is not", self._window.value)
            return None
        return target, ((self._window.value & 0xFF_FFFF) << WINDOW_SHIFT) + offset

    def _read_pramin(self, offset: int, size_bytes: int) -> bytes:
        place = self._pramin(offset)
        return b"\xff" * size_bytes if place is None else self._memory.read(*place, size_bytes)

    def _write_pramin(self, offset: int, data: bytes) -> None:
        place = self._pramin(offset)
        if place is not None:
            self._memory.write(*place, data)
