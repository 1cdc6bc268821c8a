"""A copy engine: lines of bytes from one place to another, and a semaphore.

Source: clc6b5.h and clc7b5.h of open-gpu-doc (NVC7B5_LAUNCH_DMA and the methods that it takes). Pitch layouts only so
far: block-linear layouts and remapping are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ringup.autogen.nv import methods_copy as methods
from ringup.silicon.nv.host.semaphores import Reduction, reduced, release
from ringup.silicon.nv.host.space import AddressSpace
from ringup.silicon.nv.memory.gmmu import Aperture
from ringup.silicon.nv.memory.windows import Memory

# of SET_SRC_PHYS_MODE and SET_DST_PHYS_MODE
TARGETS = {0: Aperture.VIDEO, 1: Aperture.SYSTEM_COHERENT, 2: Aperture.SYSTEM_NONCOHERENT}
# GUESS: what one copy engine reaches on these boards
BYTES_PER_US = 20_000
# GUESS: what a short line costs. Others get their turn between pieces.
PIECE_BYTES, BURST_BYTES = 1 << 20, 1 << 12


class Refused(Exception):  # an event of the card
    """A launch that the engine, or this model of it, does not do."""


class CopyEngine:
    """The state of one channel on a copy engine of a class. `privileged`: it may use physical addresses."""

    def __init__(
        self, class_id: int, space: AddressSpace, memory: Memory, now_ns: Callable[[], int], *, privileged: bool
    ) -> None:
        self._space, self._memory, self._now_ns, self._privileged = space, memory, now_ns, privileged
        table = methods.METHODS[class_id if class_id in methods.METHODS else 0xC6B5]
        self._names = {place: word.__name__ for word, place in table.items() if isinstance(place, int)}
        self._state: dict[str, int] = {}

    def method(self, address: int, data: int) -> Iterator[float]:
        """Take a method; a launch yields the microseconds that its pieces take. Raises `Refused`, or the space's
        `PageFault`.
        """
        name = self._names.get(address)
        if name is None:
            raise Refused(f"method {address:#x} is none of this class")
        self._state[name] = data
        if name == "LAUNCH_DMA":
            yield from self._launch(methods.LAUNCH_DMA(data))

    def _get(self, name: str) -> int:
        return self._state.get(name, 0)

    def _launch(self, launch: methods.LAUNCH_DMA) -> Iterator[float]:
        if launch.data_transfer_type != methods.LAUNCH_DMA_DATA_TRANSFER_TYPE_NONE:
            yield from self._copy(launch)
        if launch.semaphore_type:
            self._semaphore(launch)

    def _copy(self, launch: methods.LAUNCH_DMA) -> Iterator[float]:
        """Copy the lines piece by piece."""
        if launch.remap_enable or not launch.src_memory_layout or not launch.dst_memory_layout:
            raise Refused(f"LAUNCH_DMA {int(launch):#x}: block-linear layouts and remapping are not modelled")
        size_bytes, lines = self._get("LINE_LENGTH_IN"), self._get("LINE_COUNT") if launch.multi_line_enable else 1
        source = self._get("OFFSET_IN_UPPER") << 32 | self._get("OFFSET_IN_LOWER")
        target = self._get("OFFSET_OUT_UPPER") << 32 | self._get("OFFSET_OUT_LOWER")
        pitch_in, pitch_out = _signed(self._get("PITCH_IN")), _signed(self._get("PITCH_OUT"))
        read, write = self._reader(launch), self._writer(launch)
        if pitch_in == pitch_out == size_bytes:
            size_bytes, lines = size_bytes * lines, 1
        moved = 0
        for line in range(lines):
            for at in range(0, size_bytes, PIECE_BYTES):
                count = min(PIECE_BYTES, size_bytes - at)
                write(target + line * pitch_out + at, read(source + line * pitch_in + at, count))
                # a short line costs as much as a full burst
                moved += max(count, BURST_BYTES)
                if moved >= PIECE_BYTES:
                    yield moved / BYTES_PER_US
                    moved = 0
        if moved:
            yield moved / BYTES_PER_US

    def _aperture(self, mode: int) -> Aperture:
        if not self._privileged:
            raise Refused("a physical address in a channel that is not privileged")
        aperture = TARGETS.get(mode & 3)
        if aperture is None:
            raise Refused(f"physical mode {mode:#x} has a target that there is not")
        return aperture

    def _reader(self, launch: methods.LAUNCH_DMA) -> Callable[[int, int], bytes]:
        if not launch.src_type:
            return self._space.read
        aperture = self._aperture(self._get("SET_SRC_PHYS_MODE"))
        return lambda address, size_bytes: self._memory.read(aperture, address, size_bytes)

    def _writer(self, launch: methods.LAUNCH_DMA) -> Callable[[int, bytes], None]:
        if not launch.dst_type:
            return self._space.write
        aperture = self._aperture(self._get("SET_DST_PHYS_MODE"))
        return lambda address, data: self._memory.write(aperture, address, data)

    def _semaphore(self, launch: methods.LAUNCH_DMA) -> None:
        gpu_va = self._get("SET_SEMAPHORE_A") << 32 | self._get("SET_SEMAPHORE_B")
        payload, kind = self._get("SET_SEMAPHORE_PAYLOAD"), launch.semaphore_type
        if kind == methods.LAUNCH_DMA_SEMAPHORE_TYPE_RELEASE_CONDITIONAL_INTR_SEMAPHORE:
            raise Refused("a semaphore that interrupts on a condition is not modelled")
        if launch.semaphore_reduction_enable:
            value = int.from_bytes(self._space.read(gpu_va, 4), "little")
            if launch.semaphore_reduction > Reduction.DEC:
                raise Refused(f"semaphore reduction {launch.semaphore_reduction} is not modelled")
            signed = not launch.semaphore_reduction_sign
            payload = reduced(Reduction(launch.semaphore_reduction), value, payload, 32, signed=signed)
        stamped = kind == methods.LAUNCH_DMA_SEMAPHORE_TYPE_RELEASE_FOUR_WORD_SEMAPHORE
        release(self._space, gpu_va, payload, 32, self._now_ns if stamped else None)


def _signed(pitch: int) -> int:
    """Return a pitch: 32 bits with a sign."""
    return pitch - (1 << 32) if pitch >> 31 else pitch
