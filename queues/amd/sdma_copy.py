"""Copies, fills and rectangles of any size on the copy engines, in as many packets as needed. Overlapping copies run in
the safe direction.
"""

from __future__ import annotations

from ringup.queues.amd.packets import narrow
from ringup.queues.amd.sdma import MAX_ELEMENT, Plane, Sdma

# of one call: work that takes more packets is refused
MAX_PACKETS = 65536
# bytes: the unit of the engine's fast mode
WHOLE = 4
# elements of a rectangle's side: the fields of every engine can hold them
TILE = 1 << 14


def copy_all(sdma: Sdma, target_va: int, source_va: int, size_bytes: int) -> list[int]:
    """Copy any number of bytes, zero included; the ranges may overlap.

    Where both addresses are multiples of 4, whole dwords are copied by packets of their own, because they are faster.
    Overlapping ranges are copied in pieces as long as the distance of the ranges; each piece waits for the one before.
    A copy to a lower address begins at the front, a copy to a higher address at the end. Raises a `ValueError` if that
    takes too many packets: copy through other memory then. Source: radv_sdma.c, radv_sdma_copy_memory.
    """
    if size_bytes < 0:
        raise ValueError(f"a copy has no {size_bytes} bytes")
    distance = abs(target_va - source_va)
    if distance == 0 or size_bytes == 0:
        return []
    overlaps = distance < size_bytes
    piece = min(sdma.row.copy_max_bytes, distance) if overlaps else sdma.row.copy_max_bytes
    count = -(-size_bytes // piece)
    if count > MAX_PACKETS:
        raise ValueError(
            f"a copy of {size_bytes} bytes over a distance of {distance} takes {count} packets;"
            " copy through other memory"
        )
    pieces = _pieces(size_bytes, piece, whole=(target_va | source_va) % WHOLE == 0)
    if overlaps and target_va > source_va:
        pieces.reverse()
    out: list[int] = []
    for at, size in pieces:
        if overlaps and out:
            out += sdma.wait_idle()
        out += sdma.copy_linear(target_va + at, source_va + at, size)
    return out


def _pieces(size_bytes: int, piece: int, *, whole: bool) -> list[tuple[int, int]]:
    """Cut a range into pieces of at most `piece` bytes: (first byte, bytes). With `whole`, a rest of less than a dword
    is a piece of its own.
    """
    if whole and piece > WHOLE:
        piece -= piece % WHOLE
    bulk = size_bytes - size_bytes % WHOLE if whole and size_bytes > WHOLE else size_bytes
    pieces = [(at, min(piece, bulk - at)) for at in range(0, bulk, piece)]
    return [*pieces, (bulk, size_bytes - bulk)] if bulk < size_bytes else pieces


def fill_all(sdma: Sdma, gpu_va: int, value: int, size_bytes: int) -> list[int]:
    """Fill any multiple of 4 bytes, zero included, with a dword."""
    if size_bytes < 0 or size_bytes % WHOLE:
        raise ValueError(f"a fill stores whole dwords, not {size_bytes} bytes")
    narrow(value, 32, "CONSTANT_FILL.src_data")
    step = sdma.row.fill_max_bytes
    out: list[int] = []
    for at in range(0, size_bytes, step):
        out += sdma.fill(gpu_va + at, value, min(step, size_bytes - at))
    return out


def copy_rect_all(
    sdma: Sdma,
    target_va: int,
    target_pitch_bytes: int,
    source_va: int,
    source_pitch_bytes: int,
    width_bytes: int,
    height: int,
) -> list[int]:
    """Copy `height` rows of `width_bytes` between planes of different pitch. A size of zero copies nothing. The planes
    may not overlap.

    Uses rectangle packets where addresses and pitches are multiples of 4 bytes and the fields can hold the pitches,
    else one linear copy a row. Raises a `ValueError` if that takes too many packets.
    """
    if min(width_bytes, height) < 0 or min(target_pitch_bytes, source_pitch_bytes) < width_bytes:
        raise ValueError(
            f"rows of {width_bytes} bytes do not lie {target_pitch_bytes} and {source_pitch_bytes} bytes apart"
        )
    if width_bytes == 0 or height == 0:
        return []
    if width_bytes == target_pitch_bytes == source_pitch_bytes:
        return copy_all(sdma, target_va, source_va, width_bytes * height)
    element = _element(sdma, target_va, source_va, target_pitch_bytes, source_pitch_bytes, width_bytes)
    if not element:
        _bounded(height, f"{height} rows that no rectangle packet takes")
        rows = range(height)
        return [
            dword
            for y in rows
            for dword in copy_all(
                sdma, target_va + y * target_pitch_bytes, source_va + y * source_pitch_bytes, width_bytes
            )
        ]
    out: list[int] = []
    # the step keeps the addresses of every tile aligned
    width, step = width_bytes // element, TILE - MAX_ELEMENT
    _bounded(-(-height // TILE) * -(-width // step), f"a rectangle of {width} x {height} elements")
    for y in range(0, height, TILE):
        for x in range(0, width, step):
            target = target_va + y * target_pitch_bytes + x * element
            source = source_va + y * source_pitch_bytes + x * element
            out += sdma.copy_rect(
                Plane(target, target_pitch_bytes // element),
                Plane(source, source_pitch_bytes // element),
                min(step, width - x),
                min(TILE, height - y),
                element_bytes=element,
            )
    return out


def _bounded(count: int, what: str) -> None:
    if count > MAX_PACKETS:
        raise ValueError(
            f"{what}: {count} packets are too many; cut the work, or align addresses and pitches to 4 bytes"
        )


def _element(sdma: Sdma, target_va: int, source_va: int, target_pitch: int, source_pitch: int, width: int) -> int:
    """Return the largest element size in bytes that divides the addresses and the width, and whose pitches fit their
    fields. 0: there is none.
    """
    addresses, pitches = target_va | source_va, target_pitch | source_pitch
    if addresses % WHOLE:
        return 0
    word = sdma.words["COPY_LINEAR_SUBWIN"]
    limit = min(1 << word.FIELDS["src_pitch"].width, 1 << word.FIELDS["dst_pitch"].width)
    element = MAX_ELEMENT
    while element:
        align = element * (sdma.row.pitch_align or max(1, WHOLE // element))
        if (
            (addresses | width) % element == 0
            and pitches % align == 0
            and max(target_pitch, source_pitch) <= limit * element
        ):
            return element
        element //= 2
    return 0
