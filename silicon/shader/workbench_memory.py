"""Memory of a kernel that runs without a card: the caller's arrays and the runtime's data, with names and rights."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringup.silicon.shader.common.state import MemoryFault, Region
from ringup.silicon.shader.program import CodeObject

PAGE_BYTES = 0x1000
NEAR_BYTES = 1 << 20  # an address within this distance of a buffer is reported relative to it


class _Place(NamedTuple):
    region: Region
    data: NDArray[Any]
    name: str

    @property
    def end(self) -> int:
        return self.region.gpu_va + self.region.size_bytes


class Arena:
    """Memory with exact bounds: each array is mapped at its address, and nothing in between. It is a
    `common.state.Memory`.
    """

    def __init__(self) -> None:
        self.epoch = 0
        self._places: list[_Place] = []

    def place(
        self, gpu_va: int, data: NDArray[Any], *, writable: bool = True, executable: bool = False, name: str = ""
    ) -> None:
        """Map an array, which stays the caller's: a kernel's stores are visible in it.

        An array that NumPy holds read-only is read-only for kernels too.
        """
        if not data.flags.c_contiguous:
            raise ValueError("only a contiguous array can be mapped")
        region = Region(gpu_va, data.nbytes, data.ctypes.data, writable and data.flags.writeable, executable)
        self._places.append(_Place(region, data, name or f"the buffer at {gpu_va:#x}"))

    def place_program(self, program: CodeObject, base: int) -> None:
        """Map a program's pages with the rights of its segments: code R-X, constants R--, variables RW-."""
        image = np.frombuffer(program.image(base), np.uint8).copy()
        rights: dict[int, tuple[bool, bool]] = {}
        for one in program.segments:
            for page in range(one.address // PAGE_BYTES, -(-(one.address + one.size_bytes) // PAGE_BYTES)):
                writable, executable = rights.get(page, (False, False))
                rights[page] = writable or one.writable, executable or one.executable
        pages = sorted(rights)
        for at, page in enumerate(pages):
            if at and pages[at - 1] == page - 1 and rights[page - 1] == rights[page]:
                continue
            last = page
            while rights.get(last + 1) == rights[page]:
                last += 1
            writable, executable = rights[page]
            part = image[page * PAGE_BYTES : (last + 1) * PAGE_BYTES]
            name = "the program's code" if executable else "its variables" if writable else "its constants"
            self.place(base + page * PAGE_BYTES, part, writable=writable, executable=executable, name=name)

    def region(self, gpu_va: int, write: bool, execute: bool = False) -> Region:
        """Return the array that holds an address."""
        for one in self._places:
            region = one.region
            if region.gpu_va <= gpu_va < one.end:
                if (write and not region.writable) or (execute and not region.executable):
                    rights = f"R{'W' if region.writable else '-'}{'X' if region.executable else '-'}"
                    raise MemoryFault(gpu_va, write, f"not permitted, {self.describe(gpu_va)} ({rights})")
                return region
        raise MemoryFault(gpu_va, write, f"no buffer is there, {self.describe(gpu_va)}")

    def describe(self, gpu_va: int) -> str:
        """Return where an address is: in an array, or how far from the nearest one."""
        for one in self._places:
            if one.region.gpu_va <= gpu_va < one.end:
                return f"byte {gpu_va - one.region.gpu_va:#x} of {one.name}"
        near = [(gpu_va - one.end, "past the end of", one.name) for one in self._places if gpu_va >= one.end]
        near += [(one.region.gpu_va - gpu_va, "before", one.name) for one in self._places if gpu_va < one.region.gpu_va]
        distance, where, name = min(near, default=(NEAR_BYTES, "", ""))
        return f"{distance:#x} bytes {where} {name}" if distance < NEAR_BYTES else "in no buffer"
