"""What a Radeon puts behind its BARs: memory through the host data path, doorbells, registers."""

from __future__ import annotations

from collections.abc import Callable

from ringup.errors import GuestError
from ringup.silicon.amd.hdp import Hdp
from ringup.silicon.amd.nbio import Nbio
from ringup.silicon.amd.parts import Board

DWORD = 4


class FrameBuffer:
    """BAR 0: the first bytes of VRAM. BIF_FB_EN can close it for reads and writes."""

    READ, WRITE = 1, 2

    def __init__(self, board: Board, hdp: Hdp, nbio: Nbio) -> None:
        self._vram, self._hdp, self._nbio = board.vram, hdp, nbio

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Read VRAM, and what waits for it; all ones behind its end."""
        if not self._nbio.cells["BIF_BX0_BIF_FB_EN"] & self.READ:
            return b"\xff" * size_bytes
        inside = max(0, min(size_bytes, self._vram.size_bytes - offset))
        return self._hdp.read(offset, inside).ljust(size_bytes, b"\xff")

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Write to VRAM through the host data path."""
        if self._nbio.cells["BIF_BX0_BIF_FB_EN"] & self.WRITE:
            inside = max(0, min(len(data), self._vram.size_bytes - offset))
            self._hdp.write(offset, data[:inside])

    def map(self, size_bytes: int) -> memoryview:
        """Return VRAM itself; see `Hdp.map`."""
        return self._hdp.map(min(size_bytes, self._vram.size_bytes))


class Doorbells:
    """BAR 2: a write of 32 or 64 bits rings, a read gives zeros."""

    def __init__(self, nbio: Nbio) -> None:
        self._nbio = nbio

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Return zeros: a doorbell keeps nothing."""
        return bytes(size_bytes)

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Ring; any other width than a doorbell's is the guest's mistake."""
        if len(data) not in (4, 8):
            raise GuestError(f"a doorbell takes 4 or 8 bytes, not {len(data)}, at byte {offset:#x}")
        self._nbio.doorbell(offset // DWORD, int.from_bytes(data, "little"), len(data))


class Registers:
    """BAR 5. A quadword is two dwords, low one first; smaller reads give part of a dword, smaller writes are refused."""

    def __init__(self, board: Board) -> None:
        self._space, self._log = board.space, board.log
        self.watch: Callable[[int], None] | None = None  # called before each access with the byte address

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Read registers."""
        first, end = offset & ~3, offset + size_bytes
        data = b"".join(self._load(at).to_bytes(DWORD, "little") for at in range(first, end, DWORD))
        return data[offset - first : offset - first + size_bytes]

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Write registers."""
        if offset % DWORD or len(data) % DWORD:
            raise GuestError(f"registers are written as dwords, not {len(data)} bytes at {offset:#x}")
        for at in range(0, len(data), DWORD):
            self._store(offset + at, int.from_bytes(data[at : at + DWORD], "little"))

    def _load(self, address: int) -> int:
        self._look(address)
        value = self._space.read(address)
        if self._log.accesses:
            self._log.note(self._block(address), "read", "{} is {:#010x}", self._space.name(address), value)
        return value

    def _store(self, address: int, value: int) -> None:
        self._look(address)
        if self._log.accesses:
            self._log.note(self._block(address), "write", "{} = {:#010x}", self._space.name(address), value)
        self._space.write(address, value)

    def _look(self, address: int) -> None:
        if self.watch is not None:
            self.watch(address)

    def _block(self, address: int) -> str:
        cells = self._space.owner(address)
        return "bus" if cells is None else cells.block
