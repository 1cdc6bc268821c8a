"""An NVIDIA card and another card of one program: the host carries the bytes, and the program is told so."""

import random

import pytest

import ringup
from ringup.errors import NotSupported

OTHERS = ("virtual:navi31", "virtual:ad102@nvidia")


@pytest.mark.parametrize("name", OTHERS)
def test_bytes_go_both_ways_through_the_host(ga102, name):
    data = random.Random(5).randbytes(100_000)
    with ringup.open(name) as other:
        for one, two in ((ga102, other), (other, ga102)):
            peer = one.peer(two)
            assert not peer.direct
            assert peer.why
            here, there = one.alloc(200_000), two.alloc(200_000)
            one.copy.upload(here, data, 10).wait()
            peer.copy(there, here, len(data), target_offset=5, source_offset=10).wait()
            assert two.copy.download(there, None, 5, len(data)) == data
            done = two.copy.fill(there, 0x77777777, 0, 4096)
            peer.copy(here, there, 4096, after=[done]).wait()
            assert set(one.copy.download(here, None, 0, 4096)) == {0x77}


def test_memory_of_another_card_is_not_mapped_and_says_why(ga102):
    with ringup.open("virtual:navi31") as other:
        buffer, peer = other.alloc(4096), ga102.peer(other)
        with pytest.raises(NotSupported, match="the host carries the bytes"):
            peer.map(buffer)


def test_a_queue_waits_for_a_point_of_the_other_card(ga102):
    with ringup.open("virtual:navi31") as other:
        ga102.peer(other)
        buffer = other.alloc(4096)
        stream = ga102.copy.stream()
        stream.wait_for(other.copy.fill(buffer, 3))
        ga102.copy.submit(stream).wait()
        assert set(other.copy.download_array(buffer, "u4", 1024)) == {3}
