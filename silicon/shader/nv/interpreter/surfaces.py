"""Surface instructions: loads, stores and atomics of texels at places in registers.

Source: Mesa's NAK (MIT), from_nir.rs and sm70.rs; PTX ISA, suld, sust, sured. `.P` converts by the format, `.D` moves
a texel's bits. Outside a surface `.IGN` loads zeros and stores nothing. GUESS: zeros are as the format has them, so a
missing A is one; of a surface without a header they are zeros.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ringup.errors import Unmodelled
from ringup.silicon.shader.nv.decoding.instruction import RZ, Kind, Operand
from ringup.silicon.shader.nv.interpreter.bindings import (
    Sources,
    bits,
    check_handles,
    each_handle,
    tell_residency,
    texture_at,
)
from ringup.silicon.shader.nv.interpreter.memory import check_defined, global_space, operation, shape_of
from ringup.silicon.shader.nv.interpreter.step import RuleBroken
from ringup.silicon.shader.nv.state import LANES
from ringup.silicon.shader.nv.textures import headers
from ringup.silicon.shader.nv.textures.filters import arranged, read
from ringup.silicon.shader.nv.textures.headers import FIRST_SOURCE
from ringup.silicon.shader.nv.textures.places import addresses, size_of
from ringup.silicon.shader.nv.values.atomics import combined_value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from ringup.silicon.shader.common.sampling import Indices, Lanes
    from ringup.silicon.shader.nv.interpreter.step import Step
    from ringup.silicon.shader.nv.textures.headers import Texture

    Words = NDArray[np.uint32]

# By the modifier: how many places, whether the last one is a layer, types of headers.
_DIMENSIONS: dict[str, tuple[int, bool, tuple[int, ...]]] = {
    "1D": (1, False, (headers.ONE_D,)),
    "1D_BUFFER": (1, False, (headers.ONE_D_BUFFER,)),
    "1D_ARRAY": (2, True, (headers.ONE_D_ARRAY,)),
    "2D": (2, False, (headers.TWO_D, headers.TWO_D_NO_MIPMAP)),
    "2D_ARRAY": (3, True, (headers.TWO_D_ARRAY, headers.TWO_D_NO_MIPMAP)),
    "3D": (3, False, (headers.THREE_D,)),
}  # fmt: skip
_WIDE = ("U64", "S64", "64")


class _Surface:
    """The texels that some lanes mean. `inside` are the lanes whose texel there is, `at` the addresses."""

    __slots__ = ("at", "indices", "inside", "level", "texture")

    def __init__(self, texture: Texture, places: list[Indices], some: Lanes, *, is_array: bool) -> None:
        self.texture, self.level = texture, texture.first_level
        nothing = np.zeros(LANES, np.int64)
        layers = places[-1] if is_array else nothing
        x, y, z = (*(places[:-1] if is_array else places), nothing, nothing)[:3]
        sizes = (*size_of(texture, self.level), texture.layers)
        self.inside = some.copy()
        for one, size in zip((x, y, z, layers), sizes, strict=True):
            self.inside &= (one >= 0) & (one < size)
        self.indices = tuple(np.where(self.inside, one, 0) for one in (x, y, z, layers))
        self.at = addresses(texture, self.level, *self.indices)


def _each(step: Step) -> Iterator[tuple[_Surface | None, Lanes]]:
    """Yield each surface, None for one without a header, and the lanes that access it."""
    check_handles(step)
    place = next(one for one in step.ins.operands if one.kind is Kind.ADDRESS)
    check_defined(step, place)
    count, is_array, kinds = next(_DIMENSIONS[one] for one in step.ins.modifiers if one in _DIMENSIONS)
    sources = Sources(step, place.register)
    places = [sources.take().astype(np.int64) for _ in range(count)]
    handles = step.register(bits(step, 64, 8)).copy()
    for handle, some in each_handle(step, handles):
        texture = texture_at(step, handle)
        if texture is None:
            yield None, some
            continue
        if texture.kind not in kinds:
            raise Unmodelled(f"{step.ins.text}: of a texture of type {texture.kind}")
        if texture.is_srgb:
            raise Unmodelled(f"{step.ins.text}: of a surface in sRGB")
        yield _Surface(texture, places, some, is_array=is_array), some


def _count(step: Step) -> int:
    """Return how many registers a formatted access has."""
    return bits(step, 72, 4).bit_count()


def _raw_bytes(step: Step, texture: Texture) -> int:
    """Return how many bytes an access without a format has."""
    size = shape_of(step.ins).size_bytes
    if size != texture.format.size_bytes:
        raise Unmodelled(f"{step.ins.text}: {size} bytes of texels of {texture.format.size_bytes}")
    return size


def _load(step: Step) -> None:
    """SULD: texels to registers."""
    residency, rd = step.ins.operands[:2]
    load, is_formatted = global_space(step).load, step.ins.has("P")
    count = _count(step) if is_formatted else shape_of(step.ins).registers
    results = np.zeros((4, LANES), np.uint32)
    for surface, some in _each(step):
        if surface is None:
            continue
        if is_formatted:
            texels = read(surface.texture, load, surface.level, surface.indices, surface.inside, is_srgb=False)
            results = np.where(some, arranged(surface.texture, texels), results)
            continue
        size = _raw_bytes(step, surface.texture)
        for lane in np.flatnonzero(surface.inside):
            word = int.from_bytes(load(int(surface.at[lane]), size), "little", signed=shape_of(step.ins).is_signed)
            results[:count, lane] = [word >> 32 * number & 0xFFFF_FFFF for number in range(count)]
    if rd.value != RZ:
        for number in range(count):
            step.write_register(rd.value + number, results[number])
    tell_residency(step, residency)


def _store(step: Step) -> None:
    """SUST: registers to texels. A component that no register has becomes zero, where PTX leaves it open."""
    store, is_formatted = global_space(step).store, step.ins.has("P")
    count = _count(step) if is_formatted else shape_of(step.ins).registers
    surfaces = list(_each(step))
    sources = Sources(step, bits(step, 32, 8))
    data = [sources.take().copy() for _ in range(count)]
    for surface, _ in surfaces:
        if surface is None:
            continue
        texture = surface.texture
        size = texture.format.size_bytes if is_formatted else _raw_bytes(step, texture)
        for lane in np.flatnonzero(surface.inside):
            words = [int(one[lane]) for one in data]
            if is_formatted:
                texel = texture.format.pack(_components(texture, words))
            else:
                texel = sum(word << 32 * number for number, word in enumerate(words)) & (1 << 8 * size) - 1
            store(int(surface.at[lane]), texel.to_bytes(size, "little"))


def _components(texture: Texture, words: list[int]) -> list[int]:
    """Return R, G, B and A of a store: each comes from the result that a load would put it in."""
    found = []
    for component in range(FIRST_SOURCE, FIRST_SOURCE + 4):
        number = texture.sources.index(component) if component in texture.sources else len(words)
        found.append(words[number] if number < len(words) else 0)
    return found


def _atomic(step: Step) -> None:
    """SUATOM and SURED: read, combine, write, lane by lane."""
    ins = step.ins
    rd: Operand | None = ins.operands[1] if ins.name == "SUATOM" else None
    how, kind = operation(ins)
    is_wide = any(ins.has(one) for one in _WIDE)
    kind, size = ("64" if is_wide and kind == "U32" else kind), 8 if is_wide else 4
    registers = size // 4
    space = global_space(step)
    surfaces = list(_each(step))
    sources = Sources(step, bits(step, 32, 8))
    data = [sources.take().copy() for _ in range(registers * (2 if how == "CAS" else 1))]
    found = np.zeros((registers, LANES), np.uint32)
    for surface, _ in surfaces:
        if surface is None:
            continue
        if surface.texture.format.size_bytes != size:
            raise RuleBroken("memory", f"an atomic of {size} bytes on texels of {surface.texture.format.size_bytes}")
        for lane in np.flatnonzero(surface.inside):
            at = int(surface.at[lane])
            words = [int(one[lane]) for one in data]
            values = [
                sum(word << 32 * number for number, word in enumerate(words[first : first + registers]))
                for first in range(0, len(words), registers)
            ]
            old = int.from_bytes(space.load(at, size), "little")
            space.store(at, combined_value(how, kind, old, values).to_bytes(size, "little"))
            found[:, lane] = [old >> 32 * number & 0xFFFF_FFFF for number in range(registers)]
    if rd is None:
        return
    if rd.value != RZ:
        for number in range(registers):
            step.write_register(rd.value + number, found[number])
    tell_residency(step, ins.operands[0])


RULES: dict[str, Callable[[Step], None]] = {"SULD": _load, "SUST": _store, "SUATOM": _atomic, "SURED": _atomic}
