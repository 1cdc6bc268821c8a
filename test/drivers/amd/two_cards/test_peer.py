"""Two Radeons of one program: one reaches the other's memory over the bus, or the host carries the bytes."""

import logging

import numpy as np
import pytest

import ringup
from ringup.errors import DeviceLost, NotSupported
from ringup.silicon import card as virtual
from ringup.silicon.common.clock import VirtualClock

SOURCE = """
__kernel void scale(__global uint *out, __global const uint *in, uint factor) {
    uint at = __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x();
    out[at] = in[at] * factor; }
"""
COUNT = 4096
DATA = np.random.default_rng(5).integers(0, 1 << 32, COUNT, np.uint32)


def two(*options):
    # one clock, as boards of one computer have it: while one card waits, the other works
    clock = VirtualClock()
    radeons = [virtual("navi31", clock=clock, **one) for one in options]
    return radeons, [ringup.open(radeon.name, transport={"card": radeon}) for radeon in radeons]


@pytest.fixture
def pair():
    radeons, cards = two({"vram_bytes": 256 << 20}, {"vram_bytes": 256 << 20})
    yield radeons, *cards
    for card, radeon in zip(cards, radeons, strict=True):
        card.close()
        assert radeon.violations == []


def words(card, buffer, count=COUNT):
    return card.copy.download_array(buffer, np.uint32, count)


def test_engines_and_kernels_reach_the_other_cards_vram(pair, opencl):
    _, first, second = pair
    peer = second.peer(first)
    assert (peer.direct, peer.why, second.peer(first)) == (True, "", peer)
    there, mine = first.alloc(4 * COUNT, name="theirs"), second.alloc(4 * COUNT)
    first.copy.upload(there, DATA).wait()
    here = peer.map(there)
    assert (here.size_bytes, here.name) == (there.size_bytes, "theirs of virtual:navi31")
    second.copy.copy_buffer(mine, here).wait()
    assert np.array_equal(words(second, mine), DATA)
    # a kernel of the second card reads its own memory and stores in the first card's
    program = second.load(opencl(SOURCE, "gfx1100"))
    stream = second.compute.stream()
    stream.dispatch(program, COUNT // 64, 64, [here, mine, 3])
    first.copy.wait_for(second.compute.submit(stream))
    assert np.array_equal(words(first, there), DATA * 3)


def test_a_program_on_two_cards_hands_its_work_back_and_forth(pair, opencl):
    """Points order the work of both cards; the bytes go over the bus in both directions."""
    _, first, second = pair
    programs = [card.load(opencl(SOURCE, "gfx1100")) for card in (first, second)]
    ends = [card.alloc(4 * COUNT) for card in (first, second)]
    peers = [first.peer(second), second.peer(first)]
    point = first.copy.upload(ends[0], DATA)
    for turn in range(6):
        at = turn % 2
        card = (first, second)[at]
        stream = card.compute.stream()
        stream.wait_for(point)
        stream.dispatch(programs[at], COUNT // 64, 64, [ends[at], ends[at], 3])
        computed = card.compute.submit(stream)
        # pushed by the card that has computed, or fetched by the one that goes on
        mover = peers[at] if turn % 4 < 2 else peers[1 - at]
        point = mover.copy(ends[1 - at], ends[at], after=[computed])
    point.wait()
    assert np.array_equal(words(first, ends[0]), DATA * 3**6)


def test_parts_are_copied_and_ranges_checked(pair):
    _, first, second = pair
    there, mine = first.alloc(8192), second.alloc(4096)
    first.copy.fill(there, 0).wait()
    peer = second.peer(first)
    second.copy.upload(mine, bytes(range(256)) * 16).wait()
    peer.copy(there, mine, 100, target_offset=4097, source_offset=3).wait()
    got = first.copy.download(there)
    assert got == bytes(4097) + (bytes(range(256)) * 2)[3:103] + bytes(8192 - 4197)
    for options in ({"size_bytes": 4097}, {"target_offset": 8000}, {"source_offset": -1}):
        with pytest.raises(ValueError, match="lie outside"):
            peer.copy(there, mine, **options)
    with pytest.raises(ValueError, match=r"one buffer of .* and one of"):
        peer.copy(mine, mine)
    with pytest.raises(ValueError, match="is no peer of its own"):
        first.peer(first)
    with pytest.raises(TypeError, match="another open card"):
        first.peer(there)


def test_freed_memory_and_a_closed_card_end_what_the_other_card_has_mapped(pair):
    radeons, first, second = pair
    peer = second.peer(first)
    there, more = first.alloc(4096, name="there"), first.alloc(4096)
    here, again = peer.map(there), peer.map(there)
    again.free()
    before = second.memory.va.used_bytes
    there.free()
    assert here.freed
    assert second.memory.va.used_bytes < before
    with pytest.raises(ValueError, match="was freed, with the memory of virtual:navi31"):
        here.gpu_va  # noqa: B018
    kept = peer.map(more)
    first.close()
    assert kept.freed
    with pytest.raises(ValueError, match="was closed"):
        second.peer(first)
    assert radeons[1].host.errors == 0


def test_memory_of_the_host_is_reached_where_it_lies(pair):
    _, first, second = pair
    near = first.alloc(4096, "host")
    here = second.peer(first).map(near)
    second.copy.fill(here, 0x0102_0304).wait()
    assert bytes(near.view[:4]) == bytes([4, 3, 2, 1])


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("peer_requests_turned_away", "of 4096 bytes are wrong, the first at 0x0"),
        ("peer_reads_turned_away", "bytes are wrong"),
    ],
)
def test_a_bus_that_passes_nothing_on_is_found_out_and_the_host_carries(pair, caplog, fault, words):
    radeons, first, second = pair
    radeons[1].faults.inject(fault)
    with caplog.at_level(logging.WARNING):
        peer = second.peer(first)
    assert not peer.direct
    assert words in peer.why
    assert "the host carries bytes from virtual:navi31" in caplog.text
    there, mine = first.alloc(20 << 20), second.alloc(20 << 20)
    data = np.random.default_rng(2).integers(0, 256, 20 << 20, np.uint8)
    uploaded = first.copy.upload(there, data)
    peer.copy(mine, there, after=[uploaded]).wait()
    assert second.copy.download(mine) == data.tobytes()
    peer.copy(there, mine, 4096, source_offset=8192).wait()
    assert first.copy.download(there, size_bytes=4096) == data[8192:12288].tobytes()
    with pytest.raises(NotSupported, match="does not reach <Buffer 'theirs'"):
        peer.map(first.alloc(4096, name="theirs"))
    radeons[1].faults.clear()
    assert peer.map(first.alloc(4096, "host")).size_bytes == 4096


class PartlyMapped:
    """Another card's memory, of which the bus passes on the first pages only: host memory lies at the others."""

    def __init__(self, real, elsewhere, pages):
        self._real, self._elsewhere, self._reached = real, elsewhere, 4096 * pages
        self.coherent, self.contiguous, self.size_bytes = True, False, real.size_bytes
        self.view = real.view

    def runs(self):
        ((start, size),) = self._real.runs()
        yield start, min(size, self._reached)
        if size > self._reached:
            yield self._elsewhere.bus_addr(), size - self._reached

    def free(self):
        self._real.free()


def test_a_mapping_whose_later_pages_are_missing_is_found_out_and_the_host_carries(pair, monkeypatch):
    _, first, second = pair
    elsewhere, reach = second.device.alloc_host(1 << 20), second.device.reach
    monkeypatch.setattr(second.device, "reach", lambda *where: PartlyMapped(reach(*where), elsewhere, 3))
    peer = second.peer(first)
    assert peer.direct
    there, mine = first.alloc(20 * 4096 - 100, name="theirs"), second.alloc(20 * 4096 - 100)
    data = np.random.default_rng(4).bytes(there.size_bytes)
    first.copy.upload(there, data).wait()
    with pytest.raises(
        NotSupported,
        match=r"of 20 pages of <Buffer 'theirs'.* 17 that virtual:navi31 reads over the bus are wrong, the first is page 3",
    ):
        peer.map(there)
    assert first.copy.download(there) == data
    peer.copy(mine, there).wait()
    assert second.copy.download(mine) == data
    few = first.alloc(3 * 4096)
    assert peer.map(few).size_bytes == few.size_bytes


def test_memory_keeps_its_contents_when_it_is_mapped(pair):
    """Also that of work which was under way, and the bytes between the marks."""
    _, first, second = pair
    there = first.alloc(3 << 20)
    data = np.random.default_rng(6).bytes(3 << 20)
    first.copy.upload(there, data)
    here = second.peer(first).map(there)
    assert second.copy.download(here) == first.copy.download(there) == data


def test_a_small_bar_shows_a_part_and_the_host_carries_the_rest():
    radeons, (first, second) = two({"vram_bytes": 512 << 20, "bar0_bytes": 256 << 20}, {"vram_bytes": 256 << 20})
    peer = second.peer(first)
    hidden, shown = first.alloc(1 << 20, name="hidden"), first.alloc(4096, visible=True)
    with pytest.raises(NotSupported, match=r"'hidden'.* lies beyond the 256 MiB .* resizable BAR"):
        peer.map(hidden)
    assert peer.map(shown).size_bytes == 4096
    mine = second.alloc(1 << 20)
    first.copy.upload(hidden, b"\x5a" * (1 << 20)).wait()
    peer.copy(mine, hidden).wait()
    assert second.copy.download(mine) == b"\x5a" * (1 << 20)
    for card, radeon in zip((first, second), radeons, strict=True):
        card.close()
        assert radeon.violations == []


def test_a_card_behind_a_bridge_reaches_no_other_and_is_reached_by_none(caplog):
    with ringup.open("virtual:navi31@asm2464pd") as far, ringup.open("virtual:navi31") as near:
        for card, other in ((far, near), (near, far)):
            peer = card.peer(other)
            assert not peer.direct
            source, target = other.alloc(4096), card.alloc(4096)
            other.copy.fill(source, 7).wait()
            peer.copy(target, source).wait()
            assert card.copy.download(target) == b"\7\0\0\0" * 1024
        assert "reaches no memory of other cards over its path" in caplog.text
        assert "does not" in caplog.text


def test_a_card_that_lost_its_memory_is_tried_again(pair):
    _, first, second = pair
    peer, there = second.peer(first), first.alloc(4096)
    here = peer.map(there)
    first.reset("mode1")
    assert here.freed
    assert second.peer(first) is not peer
    first.device.unplug()
    with pytest.raises(DeviceLost):
        second.peer(first).copy(second.alloc(4096), first.alloc(4096)).wait()
