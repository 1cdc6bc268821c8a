"""Stage 4: memory, as card and CPU see it, and whether all of it comes back."""

from __future__ import annotations

from typing import Any

import numpy as np

from ringup.drivers.buffer import Buffer, Where
from ringup.drivers.nv.nodes.card import NodesCard
from ringup.errors import OutOfMemory
from ringup.tools.bench.metal.steps import Stage, StepRow, check
from ringup.tools.bench.metal.work import KIB, Work

PLACES: dict[str, tuple[Where, bool]] = {
    "vram": ("vram", True),
    "vram that the CPU does not see": ("vram", False),
    "host": ("host", False),
}
# beginnings of lines and pages, and the end
AT = (0, 4, 4092, 4096, 65_532)
# memory of the caller's own that begins inside a page
PINNED_BYTES, PINNED_AT = 256 * KIB + 321, 100


def both_see(work: Work) -> dict[str, Any]:
    """Let the CPU write what the card reads, and the card what the CPU reads, in memory of each kind and size."""
    card, done = work.card, []
    for size in work.scale.memory_bytes:
        for name, (where, visible) in PLACES.items():
            with card.alloc(size, where, visible=visible, name=name) as buffer:
                _pattern(card, buffer, size)
                done.append(f"{size} bytes of {name}")
    return {"memory": done}


def _pattern(card: NodesCard, buffer: Buffer, size: int) -> None:
    places = [at for at in (*AT, size - 4) if at + 4 <= size]
    view = buffer.view
    for number, at in enumerate(places):
        word = (0xA5000000 | number << 16 | at & 0xFFFF).to_bytes(4, "little")
        if view is not None:
            view[at : at + 4] = word
        else:
            card.copy.upload(buffer, word, at).wait()
        seen = bytes(card.copy.download(buffer, None, at, 4))
        check(seen == word, f"byte {at} of {buffer!r}: the card reads {seen.hex()}, the CPU wrote {word.hex()}")
        if view is not None:
            card.copy.fill(buffer, 0x5A5A0000 | number, at, 4).wait()
            seen = bytes(view[at : at + 4])
            word = (0x5A5A0000 | number).to_bytes(4, "little")
            check(seen == word, f"byte {at} of {buffer!r}: the CPU reads {seen.hex()}, the card wrote {word.hex()}")


def pinned(work: Work) -> dict[str, Any]:
    """Let the card read and write memory of this process."""
    card = work.card
    memory = np.zeros(PINNED_BYTES, np.uint8)
    buffer = card.pin(memory[PINNED_AT:], "the caller's own")
    try:
        size = buffer.size_bytes // 4 * 4
        card.copy.fill(buffer, 0x04030201, 0, size).wait()
    finally:
        buffer.free()
    want = np.tile(np.arange(1, 5, dtype=np.uint8), size // 4)
    check(bool((memory[PINNED_AT : PINNED_AT + size] == want).all()), "the card's words are not in pinned memory")
    check(not memory[:PINNED_AT].any(), "the card wrote before pinned memory")
    check(not memory[PINNED_AT + size :].any(), "the card wrote behind pinned memory")
    return {"bytes": size}


def orders(work: Work) -> dict[str, Any]:
    """Free buffers in the order of their making, and in the opposite one; use what is left each time."""
    card = work.card
    for reverse in (False, True):
        buffers = [card.alloc(size, "vram", visible=True) for size in work.scale.memory_bytes for _ in range(2)]
        for buffer in buffers:
            card.copy.fill(buffer, 0x11111111, 0, 4096)
        card.copy.idle()
        for buffer in reversed(buffers) if reverse else buffers:
            check(bytes(card.copy.download(buffer, None, 0, 8)) == b"\x11" * 8, f"{buffer!r} lost its bytes")
            buffer.free()
    return {"buffers": 2 * 2 * len(work.scale.memory_bytes)}


def cycles(work: Work) -> dict[str, Any]:
    """Allocate and free many times: the card's free memory is the same again."""
    card, sizes = work.card, (4096, 100_000, work.scale.memory_bytes[0])

    def use(number: int) -> None:
        where: Where = "host" if number % 2 else "vram"
        card.alloc(sizes[number % len(sizes)], where, visible=number % 4 == 0).free()

    # the driver keeps page tables that it has once made
    for number in range(12):
        use(number)
    before = card.memory.free_vram_bytes()
    began = card.device.clock.now_us
    for number in range(work.scale.cycles):
        use(number)
    took_us = card.device.clock.now_us - began
    after = card.memory.free_vram_bytes()
    check(after == before, f"{before} bytes of VRAM were free, then {after}")
    return {"cycles": work.scale.cycles, "us_per_cycle": round(took_us / work.scale.cycles, 1), "free_bytes": after}


def too_much(work: Work) -> dict[str, Any]:
    """Ask for more than there is: the driver refuses it, and small memory is still there."""
    card = work.card
    size = 2 * card.info.vram_bytes
    try:
        card.alloc(size).free()
    except OutOfMemory as error:
        said = str(error)
    else:
        check(False, f"{size} bytes were allocated on a card with {card.info.vram_bytes}")
    card.alloc(4096).free()
    return {"refused": said}


STAGE = Stage(
    4,
    "memory",
    (
        StepRow("the CPU sees what the card writes, and the card what the CPU writes", 10, both_see),
        StepRow("pinned memory", 5, pinned),
        StepRow("freed in both orders", 10, orders),
        StepRow("allocated and freed many times", 30, cycles),
        StepRow("more than there is", 5, too_much),
    ),
    needs=(2,),
)
