"""Memory as shader cores see it: host pointers to mapped pages, found through the GMMU."""

from __future__ import annotations

from collections.abc import Callable

from ringup.silicon.nv.memory.gmmu import Missing
from ringup.silicon.nv.memory.space import AddressSpace, PageFault
from ringup.silicon.shader.common.state import MemoryFault, Region

PAGE = 4096
# a region grows over neighbours that lie next to each other in the host too, up to this
MAX_REGION_BYTES = 16 << 20


class ShaderMemory:
    """One address space, for the time of one launch. `fault` is the first access that no page allows.

    `wait` offers a fault to software, and returns once the access may be made again: True; or False if it never may.
    """

    def __init__(self, space: AddressSpace, wait: Callable[[PageFault], bool] = lambda fault: False) -> None:
        self._space, self._wait = space, wait
        self.fault: PageFault | None = None
        self._known: dict[tuple[int, bool], Region] = {}
        self._known_at = -1

    @property
    def epoch(self) -> int:
        """Grows whenever regions returned before may be wrong."""
        return self._space.gmmu.epoch + self._space.memory.epoch

    def region(self, gpu_va: int, write: bool, execute: bool = False) -> Region:
        """Return the region of an address. Pages have no right to execute of their own."""
        page = gpu_va // PAGE * PAGE
        while True:
            if self._known_at != self.epoch:
                self._known.clear()
                self._known_at = self.epoch
            found = self._known.get((page, write))
            if found is not None:
                return found
            try:
                found = self._known[page, write] = self._find(gpu_va, write)
            except PageFault as fault:
                if not self._wait(fault):
                    raise self._failed(fault) from None

    def _find(self, gpu_va: int, write: bool) -> Region:
        space = self._space
        first = space.gmmu.find(space.directory, gpu_va, write=write)
        if isinstance(first, Missing):
            raise space.fault(gpu_va, write, first.kind)
        base = gpu_va >> first.shift << first.shift
        place = space.memory.pointer(first.aperture, first.address, 1 << first.shift, write=write)
        if place is None:
            raise MemoryFault(gpu_va, write, f"nothing answers at {first.aperture.name} address {first.address:#x}")
        end = base + (1 << first.shift)
        while end - base < MAX_REGION_BYTES:
            following = space.gmmu.find(space.directory, end, write=write)
            if isinstance(following, Missing) or following.read_only != first.read_only:
                break
            beside = space.memory.pointer(following.aperture, following.address, 1 << following.shift, write=write)
            if beside != place + end - base:
                break
            end += 1 << following.shift
        return Region(base, end - base, place, writable=not first.read_only)

    def _failed(self, fault: PageFault) -> MemoryFault:
        if self.fault is None:
            self.fault = fault
        return MemoryFault(fault.gpu_va, fault.write, f"{fault.kind.name} fault")
