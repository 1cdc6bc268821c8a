"""BAR0: the registers of a chip by byte address, with the names of the published manuals.

A block makes a cell for each register that it acts on. A register with a published name and no cell is stored and
logged once as unmodelled. An address without a name answers as the register bus does when no block claims a request.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from ringup.autogen.layout import Word
from ringup.autogen.nv import boot, engines, falcon, fifo, mmu, riscv
from ringup.silicon.common.cells import Note
from ringup.silicon.nv.chips.row import ChipRow

ALL = 0xFFFF_FFFF
DWORD = 4
# GUESS: the low half, which tells why a request failed; drivers look for 0xbadf in the high half
NO_SUCH_REGISTER = 0xBADF_1100
# NV_VIRTUAL_FUNCTION_PRIV and NV_VIRTUAL_FUNCTION of the physical function: dev_vm.h, NV_VGPU_...; nouveau vfn/tu102.c
PRIV_BASE, USER_BASE = 0xB8_0000, 0xBB_0000
# elements of arrays whose size a manual leaves out: by name from another chip's manual, else as many as drivers use
COUNTS = {"NV_PBUS_SW_SCRATCH": 64}
UNTOLD_COUNT = 4


class Place(NamedTuple):
    """A register, or the first of an array."""

    offset: int
    stride: int
    elements: int


def place(chip: str, word: type[Word]) -> Place:
    """Return where the manual of a chip puts a register. Raises `KeyError` for one that the chip lacks."""
    for module in (boot, engines, falcon, fifo, mmu, riscv):
        found = module.PLACES.get(chip, {}).get(word)
        if found is not None:
            if isinstance(found, int):
                return Place(found, 0, 1)
            offset, stride, count = found
            return Place(offset, stride, count or COUNTS.get(word.__name__, UNTOLD_COUNT))
    raise KeyError(f"{chip} has no register {word.__name__}")


@cache
def published(chip: ChipRow) -> dict[int, str]:
    """Return the names of all published registers by address; arrays element by element."""
    names: dict[int, str] = {}

    def add(word: type[Word], base: int, owner: str = "") -> None:
        first = place(chip.name, word)
        for index in range(first.elements):
            name = owner + (word.__name__ if first.elements == 1 else f"{word.__name__}({index})")
            names.setdefault(base + first.offset + index * first.stride, name)

    for row in chip.falcons:
        for module, base in ((falcon, row.base), (riscv, row.base2)):
            for word in module.PLACES[chip.name]:
                second = word.__name__.startswith("NV_PFALCON2")
                interface = word.__name__.startswith("NV_PFALCON_FBIF")
                add(word, row.fbif if interface else row.base2 if second else base, row.prefix)
    for word in mmu.PLACES[chip.name]:
        if word.__name__.startswith("NV_PFALCON"):
            continue
        relative = word.__name__.startswith("NV_VIRTUAL_FUNCTION")
        add(word, PRIV_BASE if relative else 0)
    for module in (boot, engines, fifo):
        for word in module.PLACES[chip.name]:
            if not word.__name__.startswith(
                ("NV_PROM", "NV_PBUS_IFR", "NV_CE_BASE", "NV_CHRAM", "NV_RUNLIST", "NV_PBDMA")
            ):
                add(word, 0)
    return names


class Cell:
    """One register. `fixed` bits cannot be changed by the bus; writing 1 clears `clears` bits."""

    __slots__ = ("address", "clears", "fixed", "name", "on_read", "on_write", "reset", "value")

    def __init__(self, address: int, name: str, reset: int, fixed: int, clears: int) -> None:
        self.address, self.name, self.reset, self.value = address, name, reset, reset
        self.fixed, self.clears = fixed, clears
        # answers a read instead of `value`; gets the stored value after a write
        self.on_read: Callable[[], int] | None = None
        self.on_write: Callable[[int], None] | None = None


class Window(NamedTuple):
    """A range of addresses that functions implement; they get the offset within it."""

    first: int
    end: int
    name: str
    read: Callable[[int, int], bytes]
    write: Callable[[int, bytes], None]


class Lock(NamedTuple):
    """A range of addresses that another processor keeps from the bus while `holds` says so; reads get `answer`."""

    first: int
    end: int
    holds: Callable[[], bool]
    answer: int


class Registers:
    """All registers of one card."""

    def __init__(self, chip: ChipRow, note: Note) -> None:
        self.chip, self.note = chip, note
        self._cells: dict[int, Cell] = {}
        self._windows: list[Window] = []
        self._locks: list[Lock] = []
        # registers without a cell: what was written, and those that have been logged
        self._stored: dict[int, int] = {}
        self._logged: set[tuple[int, bool]] = set()

    # --- making it ----------------------------------------------------------------------------------------------
    def cell(
        self,
        word: type[Word],
        index: int = 0,
        base: int = 0,
        *,
        reset: int = 0,
        fixed: int = 0,
        clears: int = 0,
        owner: str = "",
    ) -> Cell:
        """Make the cell of a published register, element `index` of an array, relative to `base`. `owner`: whose it is,
        in front of the name.
        """
        where = place(self.chip.name, word)
        name = owner + (word.__name__ if where.elements == 1 else f"{word.__name__}({index})")
        return self.at(base + where.offset + index * where.stride, name, reset=reset, fixed=fixed, clears=clears)

    def has(self, word: type[Word]) -> bool:
        """Return whether the manual of this chip has a register."""
        try:
            place(self.chip.name, word)
        except KeyError:
            return False
        return True

    def count(self, word: type[Word]) -> int:
        """Return how many elements an array has. Where the manual leaves it out, as many as drivers use."""
        return place(self.chip.name, word).elements

    def at(self, address: int, name: str, *, reset: int = 0, fixed: int = 0, clears: int = 0) -> Cell:
        """Make the cell of a register that only drivers name."""
        if address in self._cells:
            raise ValueError(f"two cells at {address:#x}: {self._cells[address].name} and {name}")
        cell = self._cells[address] = Cell(address, name, reset, fixed, clears)
        return cell

    def window(
        self,
        first: int,
        size_bytes: int,
        name: str,
        read: Callable[[int, int], bytes],
        write: Callable[[int, bytes], None],
    ) -> None:
        """Map a range of addresses to functions of the offset within it."""
        self._windows.append(Window(first, first + size_bytes, name, read, write))

    def lock(self, first: int, size_bytes: int, holds: Callable[[], bool], answer: int) -> None:
        """Let another processor keep a range from the bus at times."""
        self._locks.append(Lock(first, first + size_bytes, holds, answer))

    def _locked(self, address: int) -> Lock | None:
        return next((one for one in self._locks if one.first <= address < one.end and one.holds()), None)

    def reset(self) -> None:
        """Set every register to its reset value."""
        for cell in self._cells.values():
            cell.value = cell.reset
        self._stored.clear()

    # --- the bus ------------------------------------------------------------------------------------------------
    def find_window(self, address: int) -> Window | None:
        """Return the window at an address."""
        return next((one for one in self._windows if one.first <= address < one.end), None)

    def name(self, address: int) -> str:
        """Return the name of a register; its address if it has none."""
        cell = self._cells.get(address)
        if cell is not None:
            return cell.name
        return published(self.chip).get(address, f"{address:#08x}")

    def read(self, address: int) -> int:
        """Read a register by its byte address."""
        if (lock := self._locked(address)) is not None:
            return lock.answer
        cell = self._cells.get(address)
        if cell is not None:
            return (cell.value if cell.on_read is None else cell.on_read()) & ALL
        known = address in published(self.chip)
        value = self._stored.get(address, 0) if known else NO_SUCH_REGISTER
        self._unmodelled(address, write=False, text=f"is read as {value:#x}")
        return value

    def write(self, address: int, value: int) -> None:
        """Write a register by its byte address."""
        if self._locked(address) is not None:
            self.note("bus", "violation", "{} = {:#x} goes nowhere: the register is locked", self.name(address), value)
            return
        cell = self._cells.get(address)
        if cell is None:
            known = address in published(self.chip)
            if known:
                self._stored[address] = value
            kept = "is kept without effect" if known else "goes nowhere"
            self._unmodelled(address, write=True, text=f"= {value:#x} {kept}")
            return
        new = value
        if cell.clears:
            new = new & ~cell.clears | cell.value & ~value & cell.clears
        if cell.fixed:
            new = new & ~cell.fixed | cell.value & cell.fixed
        cell.value = new
        if cell.on_write is not None:
            cell.on_write(value if cell.clears else new)

    def _unmodelled(self, address: int, *, write: bool, text: str) -> None:
        if (address, write) not in self._logged:
            self._logged.add((address, write))
            self.note("bus", "unmodelled", "{} {}, without a model", self.name(address), text)


class RegisterBar:
    """BAR0 as the bus sees it: dwords; a narrower access reaches part of one."""

    def __init__(self, registers: Registers, log_accesses: Callable[[], bool], note: Note) -> None:
        self._registers, self._log_accesses, self._note = registers, log_accesses, note

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Read registers, or bytes of a window."""
        window = self._registers.find_window(offset)
        if window is not None:
            data = window.read(offset - window.first, size_bytes)
            if self._log_accesses():
                self._note("bus", "read", "{}+{:#x} is {}", window.name, offset - window.first, data.hex())
            return data
        first, end = offset & ~3, offset + size_bytes
        data = b"".join(self._load(at).to_bytes(DWORD, "little") for at in range(first, end, DWORD))
        return data[offset - first : offset - first + size_bytes]

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Write registers, or bytes of a window."""
        window = self._registers.find_window(offset)
        if window is not None:
            if self._log_accesses():
                self._note("bus", "write", "{}+{:#x} = {}", window.name, offset - window.first, bytes(data).hex())
            window.write(offset - window.first, bytes(data))
        elif offset % DWORD or len(data) % DWORD:
            self._note("bus", "violation", "{} bytes written to register {:#x}, which takes dwords", len(data), offset)
        else:
            for at in range(0, len(data), DWORD):
                self._store(offset + at, int.from_bytes(data[at : at + DWORD], "little"))

    def check(self, offset: int, size_bytes: int) -> bool:
        """Accept any access: the register bus answers all of them."""
        return True

    def _load(self, address: int) -> int:
        value = self._registers.read(address)
        if self._log_accesses():
            self._note("bus", "read", "{} is {:#010x}", self._registers.name(address), value)
        return value

    def _store(self, address: int, value: int) -> None:
        if self._log_accesses():
            self._note("bus", "write", "{} = {:#010x}", self._registers.name(address), value)
        self._registers.write(address, value)
