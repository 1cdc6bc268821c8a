"""Texture instructions: TEX, TLD, TLD4, TXD, TMML and TXQ.

Source: Mesa's NAK (MIT), nak_nir_lower_tex.c (order and packing of sources, what results mean), sm70.rs (fields).
Coordinates are f32, but for TLD; the array's index is an integer of 16 bits. Results go to Rd in pairs: the first two
that the mask chooses, and the others to a second register. Derivatives are those of four lanes in a row (a quad).
GUESS: of a quad's three differences those of its first lane count, and of inactive lanes their registers do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ringup.errors import Unmodelled
from ringup.silicon.shader.nv.decoding.instruction import PT, RZ, Kind
from ringup.silicon.shader.nv.interpreter.bindings import (
    Sources,
    bits,
    bound_handle,
    check_handles,
    each_handle,
    sampler_at,
    tell_residency,
    texture_at,
)
from ringup.silicon.shader.nv.interpreter.memory import global_space
from ringup.silicon.shader.nv.state import LANES
from ringup.silicon.shader.nv.textures import headers
from ringup.silicon.shader.nv.textures.filters import (
    Query,
    arranged,
    clamped_lod,
    gathered,
    lod_of,
    read,
    sampled,
)
from ringup.silicon.shader.nv.textures.places import size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from ringup.silicon.shader.common.sampling import Floats, Indices, Lanes
    from ringup.silicon.shader.nv.interpreter.step import Step
    from ringup.silicon.shader.nv.textures.headers import Sampler, Texture

    Words = NDArray[np.uint32]

# By the instruction's name of a dimension: how many coordinates, whether there is an array's index, types of headers.
_DIMENSIONS: dict[str, tuple[int, bool, tuple[int, ...]]] = {
    "1D": (1, False, (headers.ONE_D, headers.ONE_D_BUFFER)),
    "2D": (2, False, (headers.TWO_D, headers.TWO_D_NO_MIPMAP)),
    "3D": (3, False, (headers.THREE_D,)),
    "CUBE": (3, False, (headers.CUBEMAP,)),
    "ARRAY_1D": (1, True, (headers.ONE_D_ARRAY,)),
    "ARRAY_2D": (2, True, (headers.TWO_D_ARRAY, headers.TWO_D_NO_MIPMAP)),
    "ARRAY_CUBE": (3, True, (headers.CUBEMAP_ARRAY,)),
}  # fmt: skip
AUTO, ZERO, BIAS, EXPLICIT, CLAMP, BIAS_CLAMP = range(6)
_REFUSED = ("SCR", "NDV", "MS", "CL")
_LOD_FRACTION = 256
QUAD = 4


class Given(NamedTuple):
    """The sources of an instruction: `texels` are TLD's coordinates, `places` those of the others."""

    handles: Words
    layers: Indices
    places: list[Floats]
    texels: list[Indices]
    lod: Floats
    least: Floats
    offsets: list[list[Indices]]
    reference: Floats | None
    derivatives: list[Floats]


def _dimension(step: Step) -> tuple[int, bool, tuple[int, ...]]:
    if refused := [one for one in _REFUSED if step.ins.has(one)]:
        raise Unmodelled(f"{step.ins.text}: {', '.join(refused)}")
    name = next(one.name for one in step.ins.operands if one.kind is Kind.NAME)
    return _DIMENSIONS[name]


def _fields(word: Words, width: int, count: int, step_bits: int = 0) -> list[Indices]:
    """Return numbers with signs that lie in a register one above the other."""
    found = []
    for number in range(count):
        part = (word >> np.uint32(number * (step_bits or width)) & np.uint32((1 << width) - 1)).astype(np.int64)
        found.append(part - (part >> width - 1 << width))
    return found


def _given(step: Step) -> Given:
    """Take the sources in the order of their registers."""
    name = step.ins.name
    count, has_index, _ = _dimension(step)
    is_bindless, mode = bits(step, 59, 1), bits(step, 87, 3) if name in ("TEX", "TLD") else ZERO
    first, second = Sources(step, bits(step, 24, 8)), Sources(step, bits(step, 32, 8))
    nothing, integers = np.zeros(LANES), np.zeros(LANES, np.int64)
    layers, least, lod, offsets, derivatives = integers, nothing, nothing, [[integers] * 3], []
    gradients = name == "TXD"
    handles = None if is_bindless else bound_handle(step)
    if gradients and handles is None:
        handles = first.take()
    packed: Words | None = None
    if not gradients and (has_index or mode in (CLAMP, BIAS_CLAMP)):
        packed = first.take()
        least = (packed >> np.uint32(16)).astype(np.float64) / _LOD_FRACTION if mode in (CLAMP, BIAS_CLAMP) else nothing
    takes = first.integers if name == "TLD" else first.floats
    coordinates: list[NDArray[np.float64] | NDArray[np.int64]] = [takes() for _ in range(count)]
    if gradients:
        if has_index or step.ins.has("AOFFI"):
            packed = first.take()
        if step.ins.has("AOFFI"):
            assert packed is not None
            offsets = [_fields(packed >> np.uint32(16), 4, 3)]
        derivatives = [second.floats() for _ in range(2 * count)]
    elif handles is None:
        handles = second.take()
    if has_index:
        assert packed is not None
        layers = (packed & np.uint32(0xFFFF)).astype(np.int64)
    if mode in (BIAS, EXPLICIT, BIAS_CLAMP):
        lod = second.integers().astype(np.float64) if name == "TLD" else second.floats()
    if name == "TLD4" and step.ins.has("PTP"):
        pairs = [part for word in (second.take(), second.take()) for part in _fields(word, 8, 4)]
        offsets = [pairs[2 * at : 2 * at + 2] for at in range(4)]
    elif step.ins.has("AOFFI") and not gradients:
        offsets = [_fields(second.take(), 8 if name == "TLD4" else 4, 3)]
    reference = second.floats() if step.ins.has("DC") else None
    assert handles is not None
    places = [one.astype(np.float64) for one in coordinates]
    texels = [one.astype(np.int64) for one in coordinates] if name == "TLD" else []
    return Given(handles, layers, places, texels, lod, least, offsets, reference, derivatives)


def _deliver(step: Step, results: Words) -> None:
    """Write the results that the mask chooses: two to Rd, two to the second register."""
    chosen = [at for at in range(4) if bits(step, 72, 4) >> at & 1]
    for number, at in enumerate(chosen):
        first = bits(step, 16 if number < 2 else 64, 8)
        if first != RZ:
            step.write_register(first + number % 2, results[at])


def _run(step: Step, given: Given, answer: Callable[[Texture, int, Lanes], Words]) -> None:
    """Write what `answer` says for the lanes of each texture; those without one get zeros."""
    check_handles(step)
    results = np.zeros((4, LANES), np.uint32)
    _, _, kinds = _dimension(step)
    for handle, some in each_handle(step, given.handles):
        texture = texture_at(step, handle)
        if texture is None:
            continue
        if texture.kind not in kinds:
            raise Unmodelled(f"{step.ins.text}: of a texture of type {texture.kind}")
        results = np.where(some, answer(texture, handle, some), results)
    _deliver(step, results)
    if step.ins.operands[0].kind is Kind.PREDICATE and step.ins.operands[0].value != PT:
        tell_residency(step, step.ins.operands[0])


def _query(step: Step, given: Given, texture: Texture, how: Sampler, some: Lanes, offsets: Sequence[Indices]) -> Query:
    last = texture.layers // (headers.FACES if texture.has_faces else 1) - 1
    layers = np.clip(given.layers, 0, last)
    load = global_space(step).load
    return Query(texture, how, load, given.places, layers, offsets, given.reference, some)


def _quad_lod(step: Step, given: Given, texture: Texture, how: Sampler) -> Floats:
    """Return the level of detail that neighbours in quads give."""
    if texture.has_faces:
        raise Unmodelled(f"{step.ins.text}: derivatives of a cube")
    quads = [one.reshape(-1, QUAD) for one in given.places]
    pairs = [[np.repeat(one[:, other] - one[:, 0], QUAD) for one in quads] for other in (1, 2)]
    return lod_of(texture, *pairs, is_scaled=_is_scaled(texture, how))


def _is_scaled(texture: Texture, how: Sampler) -> bool:
    return texture.is_normalized and not how.is_unnormalized


def _isotropic(step: Step, how: Sampler) -> None:
    if how.is_anisotropic:
        raise Unmodelled(f"{step.ins.text}: anisotropic filters")


def _tex(step: Step) -> None:
    """Sample at a level of detail: of neighbours, zero, or given."""
    given, mode = _given(step), bits(step, 87, 3)

    def answer(texture: Texture, handle: int, some: Lanes) -> Words:
        how, lod = sampler_at(step, handle), given.lod
        if mode in (AUTO, BIAS, CLAMP, BIAS_CLAMP):
            _isotropic(step, how)
            lod = lod + _quad_lod(step, given, texture, how)
        query = _query(step, given, texture, how, some, given.offsets[0])
        return sampled(query, clamped_lod(texture, how, lod, given.least))

    _run(step, given, answer)


def _txd(step: Step) -> None:
    """Sample at the level of detail of given derivatives, along x and y of each coordinate in turn."""
    given = _given(step)

    def answer(texture: Texture, handle: int, some: Lanes) -> Words:
        how = sampler_at(step, handle)
        _isotropic(step, how)
        pairs = given.derivatives[::2], given.derivatives[1::2]
        lod = lod_of(texture, *pairs, is_scaled=_is_scaled(texture, how))
        query = _query(step, given, texture, how, some, given.offsets[0])
        return sampled(query, clamped_lod(texture, how, lod))

    _run(step, given, answer)


def _tld4(step: Step) -> None:
    """Gather a component of four texels; with an offset for each, the one above left of each place."""
    given, component = _given(step), bits(step, 87, 2)

    def answer(texture: Texture, handle: int, some: Lanes) -> Words:
        how = sampler_at(step, handle)
        found = [gathered(_query(step, given, texture, how, some, offsets), component) for offsets in given.offsets]
        return found[0] if len(found) == 1 else np.stack([one[3] for one in found])

    _run(step, given, answer)


def _tld(step: Step) -> None:
    """Load texels. GUESS: those outside are zeros as the format has them, as robust access wants."""
    given = _given(step)

    def answer(texture: Texture, handle: int, some: Lanes) -> Words:
        nothing = np.zeros(LANES, np.int64)
        levels = given.lod.astype(np.int64) + texture.first_level
        found = np.zeros((4, LANES), np.uint32)
        there = some & (levels >= texture.first_level) & (levels <= texture.last_level)
        for level in np.unique(levels[there]):
            sizes = size_of(texture, int(level))
            x, y, z = (
                *(one + off for one, off in zip(given.texels, given.offsets[0], strict=False)),
                nothing,
                nothing,
            )[:3]
            inside = there & (levels == level) & (given.layers < texture.layers)
            for one, size in zip((x, y, z), sizes, strict=True):
                inside &= (one >= 0) & (one < size)
            indices = (x, y, z, given.layers)
            texels = read(texture, global_space(step).load, int(level), indices, inside, is_srgb=texture.is_srgb)
            found = np.where(inside, texels, found)
        return arranged(texture, found)

    _run(step, given, answer)


def _tmml(step: Step) -> None:
    """Return the level of detail of neighbours, before and after the sampler's bounds, in steps of 1/256."""
    given = _given(step)

    def answer(texture: Texture, handle: int, some: Lanes) -> Words:
        how = sampler_at(step, handle)
        _isotropic(step, how)
        raw = _quad_lod(step, given, texture, how) + how.bias
        bounded = np.clip(clamped_lod(texture, how, raw - how.bias), 0, texture.last_level - texture.first_level)
        scaled = np.clip(np.nan_to_num(raw) * _LOD_FRACTION, -0x8000, 0x7FFF)
        before = np.floor(scaled + 0.5).astype(np.int64).astype(np.uint32) & np.uint32(0xFFFF)
        after = np.floor(bounded * _LOD_FRACTION + 0.5).astype(np.uint32)
        return np.stack([before, after, np.zeros_like(after), np.zeros_like(after)])

    _run(step, given, answer)


def _txq(step: Step) -> None:
    """Return a level's size, and how many levels there are; or how many samples a texel has."""
    sources = Sources(step, bits(step, 24, 8))
    handles = sources.take() if bits(step, 59, 1) else bound_handle(step)
    query = next(one.name for one in step.ins.operands if one.kind is Kind.NAME)
    check_handles(step)
    results = np.zeros((4, LANES), np.uint32)
    if query == "TEX_HEADER_TEXTURE_TYPE":
        if bits(step, 72, 4) != 4:
            raise Unmodelled(f"{step.ins.text}: other results than the third one")
        for handle, some in each_handle(step, handles):
            results[2] = np.where(some, texture_at(step, handle) is not None, results[2])
    elif query == "TEX_HEADER_DIMENSION":
        levels = sources.integers()
        for handle, some in each_handle(step, handles):
            texture = texture_at(step, handle)
            if texture is not None:
                results = np.where(some, _sizes(texture, levels), results)
    else:
        raise Unmodelled(f"{step.ins.text}: places of samples")
    _deliver(step, results)


def _sizes(texture: Texture, levels: Indices) -> Words:
    """Return width, height, depth and levels; an array's layers, or cubes, stand behind its other sizes."""
    count = texture.last_level - texture.first_level + 1
    sizes = []
    for at in range(3):
        full = (texture.width, texture.height, texture.depth)[at]
        sizes.append(np.maximum(full >> np.clip(levels + texture.first_level, 0, 31), 1))
    arrays = {headers.ONE_D_ARRAY: 1, headers.TWO_D_ARRAY: 2, headers.CUBEMAP_ARRAY: 2}
    if texture.kind in arrays:
        layers = texture.layers // (headers.FACES if texture.has_faces else 1)
        sizes[arrays[texture.kind]] = np.full_like(levels, layers)
    there = (levels >= 0) & (levels < count)
    found = np.stack([*(np.where(there, one, 0) for one in sizes), np.full_like(levels, count)])
    return found.astype(np.uint32)


RULES: dict[str, Callable[[Step], None]] = {
    "TEX": _tex, "TLD": _tld, "TLD4": _tld4, "TXD": _txd, "TMML": _tmml, "TXQ": _txq,
}  # fmt: skip
