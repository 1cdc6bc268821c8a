"""Bytes between host and card, compared with NumPy: accepted types, rectangles, overlaps, fills, pinned memory, two
engines.
"""

import mmap
import random

import numpy as np
import pytest

from ringup.errors import NotSupported

pytestmark = pytest.mark.metal


@pytest.fixture(scope="module")
def card(metal_card):
    return metal_card


@pytest.fixture
def buffer(card):
    with card.alloc(1 << 20, name="buffer") as made:
        yield made


@pytest.mark.parametrize("size", [0, 1, 3, 4, 4095, 1 << 20, (1 << 20) + 1, 9 << 20])
def test_any_number_of_bytes_goes_in_and_comes_out(card, size):
    data = np.random.default_rng(size).bytes(size)
    with card.alloc(max(size, 1) + 64) as there:
        card.copy.fill(there, 0x55555555, 0, (size + 64) // 4 * 4)
        card.copy.upload(there, data, 5).wait()
        assert card.copy.download(there, None, 5, size) == data
        assert card.copy.download(there, None, 0, 5) == b"U" * 5


class ByDlpack:
    """An array of another library: it offers DLPack but no buffer protocol."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


@pytest.mark.parametrize(
    "wrap",
    [bytes, bytearray, memoryview, np.frombuffer, lambda data: ByDlpack(np.array(np.frombuffer(data, np.uint8)))],
)
def test_bytes_may_come_from_any_object_that_holds_them(card, buffer, wrap):
    data = bytes(range(256)) * 16
    given = wrap(data) if wrap is not np.frombuffer else np.frombuffer(data, np.float32).reshape(32, -1)
    card.copy.upload(buffer, given).wait()
    assert card.copy.download(buffer, size_bytes=len(data)) == data


def test_the_data_may_change_as_soon_as_upload_returns(card, buffer):
    data = bytearray(b"x" * 500_000)
    done = card.copy.upload(buffer, data)
    data[:] = b"y" * len(data)
    done.wait()
    assert card.copy.download(buffer, size_bytes=len(data)) == b"x" * len(data)


def test_arrays_come_out_in_place_or_new_and_give_dlpack(card, buffer):
    array = np.random.default_rng(3).random((50, 70))
    card.copy.upload(buffer, array)
    out = np.zeros_like(array)
    assert card.copy.download(buffer, out) is out
    assert np.array_equal(out, array)
    again = card.copy.download_array(buffer, np.float64, (50, 70))
    assert np.array_equal(np.from_dlpack(again), array)


@pytest.mark.parametrize(
    ("act", "text"),
    [
        (lambda card, buffer: card.copy.upload(buffer, bytes((1 << 20) + 1)), "lie outside"),
        (lambda card, buffer: card.copy.upload(buffer, b"1234", -1), "lie outside"),
        (lambda card, buffer: card.copy.upload(buffer, np.zeros((8, 8))[:, ::2]), "row by row without gaps"),
        (lambda card, buffer: card.copy.download(buffer, bytes(8)), "read-only"),
        (lambda card, buffer: card.copy.download(buffer, None, 1 << 20, 1), "lie outside"),
        (lambda card, buffer: card.copy.fill(buffer, 0, 0, 6), "whole dwords"),
        (lambda card, buffer: card.copy.fill(buffer, 1 << 32), "holds 32 bits"),
        (lambda card, buffer: card.copy.copy_buffer(buffer, buffer, 16, source_offset=(1 << 20) - 8), "lie outside"),
        (lambda card, buffer: card.copy.copy_rect(buffer, 4096, buffer, 4096, 8192, 4), "do not lie"),
    ],
)
def test_nonsense_is_refused_and_nothing_is_submitted(card, buffer, act, text):
    before = card.copy.timeline.last
    with pytest.raises(ValueError, match=text):
        act(card, buffer)
    assert card.copy.timeline.last == before


def test_copies_between_and_within_buffers_are_numpy_s_with_overlap(card):
    random.seed(11)
    size = 100_000
    model = np.random.default_rng(5).integers(0, 256, size, np.uint8)
    with card.alloc(size) as buffer:
        card.copy.upload(buffer, model)
        for _ in range(60):
            count = random.choice([1, 7, 64, 1000, 33_333])
            source, target = random.randrange(size - count), random.randrange(size - count)
            if abs(source - target) and count // abs(source - target) > 1000:
                continue
            card.copy.copy_buffer(buffer, buffer, count, target_offset=target, source_offset=source)
            model[target : target + count] = model[source : source + count].copy()
        assert np.array_equal(card.copy.download_array(buffer, np.uint8, size), model)


@pytest.mark.parametrize("width", [1, 4, 30, 256])
def test_rectangles_land_where_numpy_puts_them(card, width):
    source = np.random.default_rng(9).integers(0, 256, (40, 512), np.uint8)
    target = np.zeros((64, 320), np.uint8)
    with card.alloc(source.nbytes) as from_, card.alloc(target.nbytes) as to:
        card.copy.upload(from_, source)
        card.copy.upload(to, target)
        card.copy.copy_rect(to, 320, from_, 512, width, 33, target_offset=3 * 320 + 8, source_offset=2 * 512 + 16)
        target[3:36, 8 : 8 + width] = source[2:35, 16 : 16 + width]
        assert np.array_equal(card.copy.download_array(to, np.uint8, target.shape), target)


def test_fills_cover_their_range(card, buffer):
    card.copy.fill(buffer, 0)
    card.copy.fill(buffer, 0xDEADBEEF, 8, 4000)
    out = card.copy.download_array(buffer, np.uint32, 2000)
    assert (out[2:1002] == 0xDEADBEEF).all()
    assert not out[:2].any()
    assert not out[1002:].any()


def test_pinned_memory_is_reached_without_staging(card):
    if card.device.polls_vram:
        pytest.skip("host memory is out of the card's reach on this path")
    own = mmap.mmap(-1, 1 << 16)
    own[:] = np.random.default_rng(1).bytes(1 << 16)
    with card.alloc(1 << 16) as there:
        pinned = card.pin(own, "pinned")
        card.copy.copy_buffer(there, pinned).wait()
        assert card.copy.download(there) == own[:]
        card.copy.fill(there, 0x01020304).wait()
        card.copy.copy_buffer(pinned, there).wait()
        assert own[:8] == b"\4\3\2\1" * 2
        pinned.free()


@pytest.mark.parametrize("size", [100, 4097])
def test_memory_that_is_no_whole_pages_is_pinned_through_the_kernel_alone(card, size):
    """amdkfd maps the whole pages around it; a bare driver does not show the card what lies beside."""
    own = bytearray(np.random.default_rng(size).bytes(size))
    if not card.name.startswith("kfd:"):
        with pytest.raises((ValueError, NotSupported)):
            card.pin(memoryview(own))
        return
    pinned = card.pin(memoryview(own), "pinned")
    with card.alloc(size) as there:
        card.copy.copy_buffer(there, pinned).wait()
        assert card.copy.download(there)[:size] == own
    pinned.free()


def test_engines_copy_at_once_and_wait_for_each_other(card):
    # a Radeon has two, an MI300X sixteen
    first, *_, second = card.copies
    assert first.hardware.engine_number != second.hardware.engine_number
    data = np.random.default_rng(2).bytes(3 << 20)
    with card.alloc(len(data)) as a, card.alloc(len(data)) as b:
        second.wait_for(first.upload(a, data))
        first.wait_for(second.copy_buffer(b, a))
        assert first.download(b) == data
