"""Which texture and sampler an instruction means: its handle selects entries of the channel's two tables.

A handle has the header's index in bits 0 to 19 and the sampler's above. It is in a register (`.B`), or in a constant
bank. Source: Mesa's NVK, nvk_descriptor_types.h; NAK, sm70.rs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ringup.silicon.shader.nv.decoding.instruction import PT, RZ, Kind, Operand
from ringup.silicon.shader.nv.interpreter.memory import global_space
from ringup.silicon.shader.nv.interpreter.step import RuleBroken
from ringup.silicon.shader.nv.state import LANES, lanes
from ringup.silicon.shader.nv.textures.formats import BadHeader
from ringup.silicon.shader.nv.textures.headers import ENTRY_BYTES, Sampler, Texture, sampler_of, texture_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from ringup.silicon.nv.compute.launch import Pool
    from ringup.silicon.shader.common.sampling import Lanes
    from ringup.silicon.shader.nv.interpreter.step import Step

    Words = NDArray[np.uint32]

HEADER_BITS, SAMPLER_BITS = 20, 12


def bits(step: Step, lo: int, width: int) -> int:
    """Return some bits of the instruction's word."""
    return step.ins.word >> lo & (1 << width) - 1


class Sources:
    """Registers that follow each other, taken one by one."""

    def __init__(self, step: Step, first: int) -> None:
        self._step, self._next = step, first

    def take(self) -> Words:
        """Return the next register; all behind RZ are zero."""
        number = self._next
        self._next += number != RZ
        return self._step.register(number)

    def floats(self) -> NDArray[np.float64]:
        """Return the next register as f32, in f64."""
        return self.take().view(np.float32).astype(np.float64)

    def integers(self) -> NDArray[np.int64]:
        """Return the next register as an integer with a sign."""
        return self.take().view(np.int32).astype(np.int64)


def handle_registers(name: str, word: int) -> tuple[int, ...]:
    """Return the registers that hold handles: those that decide which memory an instruction accesses."""
    if name in ("SULD", "SUST", "SUATOM", "SURED"):
        return (word >> 64 & 0xFF,)
    if name not in ("TEX", "TLD", "TLD4", "TMML", "TXD", "TXQ") or not word >> 59 & 1:
        return ()
    return (word >> (24 if name in ("TXD", "TXQ") else 32) & 0xFF,)


def check_handles(step: Step) -> None:
    """Raise if the register of a handle was never given a value in a lane that executes."""
    if step.track is None:
        return
    for number in handle_registers(step.ins.name, step.ins.word):
        if number != RZ and (without := step.track.is_undefined("R", number, step.mask)):
            lane = (without & -without).bit_length() - 1
            detail = f"R{number} is an address and was never given a value in lane {lane}"
            raise RuleBroken("uninitialised", detail, lane)


def bound_handle(step: Step) -> Words:
    """Return the handle of an instruction that names a constant bank, and a dword in it."""
    place = Operand(Kind.CONSTANT, 4 * bits(step, 40, 14), bank=bits(step, 54, 5))
    return np.full(LANES, step.constant(place, 4), np.uint32)


def each_handle(step: Step, handles: Words) -> Iterator[tuple[int, Lanes]]:
    """Yield each handle of the lanes that execute, and the lanes that have it."""
    executing = np.zeros(LANES, np.bool_)
    executing[lanes(step.mask)] = True
    for one in np.unique(handles[executing]):
        yield int(one), executing & (handles == one)


def _entry(step: Step, what: str, pool: Pool, index: int) -> int:
    if index > pool.max_index:
        raise RuleBroken("memory", f"{what} {index} is beyond the last one, {pool.max_index}")
    return int.from_bytes(global_space(step).load(pool.gpu_va + ENTRY_BYTES * index, ENTRY_BYTES), "little")


def texture_at(step: Step, handle: int) -> Texture | None:
    """Return the texture of a handle, None if its header is empty."""
    index = handle & (1 << HEADER_BITS) - 1
    words = _entry(step, "texture header", step.group.launch.windows.headers, index)
    try:
        return texture_of(words)
    except BadHeader as error:
        raise RuleBroken("memory", f"texture header {index}, {words:#066x}: {error}") from None


def sampler_at(step: Step, handle: int) -> Sampler:
    """Return the sampler of a handle."""
    index = handle >> HEADER_BITS & (1 << SAMPLER_BITS) - 1
    if step.group.launch.linked_samplers:
        index = handle & (1 << HEADER_BITS) - 1
    words = _entry(step, "sampler", step.group.launch.windows.samplers, index)
    try:
        return sampler_of(words)
    except BadHeader as error:
        raise RuleBroken("memory", f"sampler {index}, {words:#066x}: {error}") from None


def tell_residency(step: Step, operand: Operand) -> None:
    """Write the predicate of sparse textures. GUESS: false, since all pages are there or fault."""
    if operand.value != PT:
        step.set_flags(operand, np.zeros(LANES, np.bool_))
