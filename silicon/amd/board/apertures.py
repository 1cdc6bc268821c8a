"""What a Radeon puts behind its BARs: memory through the host data path, doorbells, registers."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from functools import cache

from ringup.autogen.regdb import open_chip
from ringup.errors import GuestError
from ringup.silicon.amd.board.nbio import Nbio
from ringup.silicon.amd.common.parts import Board
from ringup.silicon.amd.memory.hdp import Hdp
from ringup.silicon.common.cells import block_map

DWORD = 4
# registers by which a host makes an engine read memory: ring pointers, mailboxes, TLB invalidations
KICKS = (
    ("gc", "SDMA?_QUEUE?_RB_WPTR"), ("gc", "CP_RB?_WPTR"), ("gc", "GCVM_INVALIDATE_ENG*_REQ"),
    ("mmhub", "MMVM_INVALIDATE_ENG*_REQ"), ("mp", "MP0_SMN_C2PMSG_35"), ("mp", "MP0_SMN_C2PMSG_64"),
    ("mp", "MP0_SMN_C2PMSG_67"), ("mp", "MPASP_SMN_C2PMSG_35"), ("mp", "MPASP_SMN_C2PMSG_64"), ("mp", "MPASP_SMN_C2PMSG_67"),
    ("mp", "MP1_SMN_C2PMSG_66"), ("mp", "MP1_SMN_C2PMSG_75"), ("gc", "VM_INVALIDATE_ENG*_REQ"),
    ("mmhub", "VM_INVALIDATE_ENG*_REQ"), ("sdma", "SDMA_*_RB_WPTR"),
)  # fmt: skip


@cache
def kicks(chip: str) -> dict[int, str]:
    """Return the registers that match `KICKS`: names by byte address."""
    places = {place.block: len(place.bases) for place in open_chip(chip).row.places}
    return {
        address: name
        for block, pattern in KICKS
        for instance in range(places.get(block, 0))
        for name, address in block_map(chip, block, instance).addresses.items()
        if fnmatchcase(name, pattern)
    }


class FrameBuffer:
    """BAR 0: the first bytes of VRAM. BIF_FB_EN can disable reads and writes."""

    READ, WRITE = 1, 2

    def __init__(self, board: Board, hdp: Hdp, nbio: Nbio) -> None:
        self._vram, self._hdp, self._nbio = board.vram, hdp, nbio

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Read VRAM, including writes that HDP still holds; all ones past the end of VRAM."""
        if not self._nbio.cells["BIF_BX0_BIF_FB_EN"] & self.READ:
            return b"\xff" * size_bytes
        inside = max(0, min(size_bytes, self._vram.size_bytes - offset))
        return self._hdp.read(offset, inside).ljust(size_bytes, b"\xff")

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Write to VRAM through the host data path."""
        if self._nbio.cells["BIF_BX0_BIF_FB_EN"] & self.WRITE:
            inside = max(0, min(len(data), self._vram.size_bytes - offset))
            self._hdp.write(offset, data[:inside])

    def check(self, offset: int, size_bytes: int) -> bool:
        """Accept any access: this is memory."""
        return True

    def map(self, size_bytes: int) -> memoryview:
        """Return VRAM itself; see `Hdp.map`."""
        return self._hdp.map(min(size_bytes, self._vram.size_bytes))


class Doorbells:
    """BAR 2: a write of 32 or 64 bits rings a doorbell, a read returns zeros."""

    def __init__(self, nbio: Nbio) -> None:
        self._nbio = nbio

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Return zeros: doorbells store nothing."""
        return bytes(size_bytes)

    def check(self, offset: int, size_bytes: int) -> bool:
        """Refuse any width that a doorbell does not have: that is the guest's mistake."""
        if size_bytes not in (4, 8):
            raise GuestError(f"a doorbell takes 4 or 8 bytes, not {size_bytes}, at byte {offset:#x}")
        return True

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Ring the doorbell."""
        self._nbio.doorbell(offset // DWORD, int.from_bytes(data, "little"), len(data))


class Registers:
    """BAR 5. A quadword access is two dwords, the low one first. Smaller reads return part of a dword; smaller writes
    are refused.
    """

    def __init__(self, board: Board, hdp: Hdp) -> None:
        self._space, self._log, self._hdp = board.space, board.log, hdp
        self._kicks = kicks(board.chip)
        # called before each access with the byte address
        self.watch: Callable[[int], None] | None = None

    def read(self, offset: int, size_bytes: int) -> bytes:
        """Read registers."""
        if size_bytes == DWORD and not offset & 3:
            return self._load(offset).to_bytes(DWORD, "little")
        first, end = offset & ~3, offset + size_bytes
        data = b"".join(self._load(at).to_bytes(DWORD, "little") for at in range(first, end, DWORD))
        return data[offset - first : offset - first + size_bytes]

    def check(self, offset: int, size_bytes: int) -> bool:
        """Refuse accesses that are not whole dwords. Return whether every register exists now: a posted write may still
        map one.
        """
        if offset % DWORD or size_bytes % DWORD:
            raise GuestError(f"registers are written as dwords, not {size_bytes} bytes at {offset:#x}")
        if size_bytes == DWORD:
            return self._space.answers(offset)
        return all(map(self._space.answers, range(offset, offset + size_bytes, DWORD)))

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Write registers."""
        if len(data) == DWORD:
            self._store(offset, int.from_bytes(data, "little"))
            return
        for at in range(0, len(data), DWORD):
            self._store(offset + at, int.from_bytes(data[at : at + DWORD], "little"))

    def _load(self, address: int) -> int:
        if self.watch is not None:
            self.watch(address)
        value = self._space.read(address)
        if self._log.accesses:
            self._log.note(self._block(address), "read", "{} is {:#010x}", self._space.name(address), value)
        return value

    def _store(self, address: int, value: int) -> None:
        if self.watch is not None:
            self.watch(address)
        if self._log.accesses:
            self._log.note(self._block(address), "write", "{} = {:#010x}", self._space.name(address), value)
        if address in self._kicks:
            self._hdp.kick("{}", self._kicks[address])
        self._space.write(address, value)

    def _block(self, address: int) -> str:
        cells = self._space.owner(address)
        return "bus" if cells is None else cells.block
