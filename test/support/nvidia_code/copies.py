"""What a copy has to leave in memory."""

import random


def copies_and_keeps_the_rest(card, size, where="vram"):
    """Copy `size` bytes between odd places of two buffers: every byte arrives, and no other changes."""
    data, whole = random.Random(size).randbytes(size), (size + 64) // 4 * 4
    with card.alloc(size + 64, where) as source, card.alloc(size + 64) as target:
        card.copy.fill(target, 0x5A5A5A5A, 0, whole)
        card.copy.upload(source, data, 7)
        card.copy.copy_buffer(target, source, size, target_offset=21, source_offset=7).wait()
        seen = card.copy.download(target)
        assert seen[21 : 21 + size] == data
        assert seen[:21] == b"\x5a" * 21
        assert set(seen[21 + size : whole]) == {0x5A}
