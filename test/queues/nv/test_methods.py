"""Runs of methods against the layouts of clc56f.h: operation 31:29, count 28:16, subchannel 15:13, method/4 11:0."""

import pytest

from ringup.autogen.nv import methods_copy as ce
from ringup.errors import NotSupported
from ringup.queues.dwords import to_bytes
from ringup.queues.nv.methods import COPY, Methods, address, immediate, increment_once, incrementing, non_incrementing
from ringup.queues.nv.rows import ROWS, host_methods, row_among, row_of


def test_headers_have_the_documents_layout():
    assert incrementing(4, 0x400, [1, 2]) == [0x2002_8100, 1, 2]
    assert non_incrementing(1, 0x1B4, [7]) == [0x6001_206D, 7]
    assert increment_once(1, 0x1B0, [0x41, 5, 6]) == [0xA003_206C, 0x41, 5, 6]
    assert immediate(4, 0x300, 0x186) == [0x8186_80C0]


def test_many_values_for_one_method_take_several_runs():
    words = non_incrementing(1, 0x1B4, list(range(0x2000)))
    assert words[0] == 0x7FFF_206D
    assert words[0x2000] == 0x6001_206D
    assert words[1:0x2000] + words[0x2001:] == list(range(0x2000))


@pytest.mark.parametrize(
    ("build", "arguments", "message"),
    [
        (incrementing, (8, 0x100, [1]), "subchannels 0 to 7"),
        (incrementing, (-1, 0x100, [1]), "subchannels 0 to 7"),
        (incrementing, (0, 0x102, [1]), "multiple of 4"),
        (incrementing, (0, 0x4000, [1]), "reach beyond"),
        (incrementing, (0, 0x3FFC, [1, 2]), "reach beyond"),
        (incrementing, (0, 0x100, []), "1 to 8191 data words"),
        (incrementing, (0, 0x100, [0] * 0x2000), "1 to 8191 data words"),
        (incrementing, (0, 0x100, [1 << 32]), "32 bits, not 0x100000000"),
        (incrementing, (0, 0x100, [-1]), "32 bits, not -0x1"),
        (increment_once, (0, 0x100, []), "1 to 8191 data words"),
        (non_incrementing, (0, 0x100, [1 << 40]), "32 bits"),
        (immediate, (0, 0x100, 0x2000), "13 bits"),
        (immediate, (0, 0x100, -1), "13 bits"),
    ],
)
def test_what_no_header_can_say_is_refused(build, arguments, message):
    with pytest.raises(ValueError, match=message):
        build(*arguments)


def test_neighbouring_methods_share_a_header_and_small_lone_values_go_into_one():
    copy = Methods(ce, 0xC7B5, COPY)
    words = copy.run(ce.OFFSET_IN_UPPER(1), ce.OFFSET_IN_LOWER(2), ce.LINE_LENGTH_IN(0x1FFF), ce.LAUNCH_DMA(0x4000))
    assert words == [0x2002_8100, 1, 2, 0x9FFF_8106, 0x2001_80C0, 0x4000]
    assert copy.run() == []
    assert copy.set_object(3) == [0x2001_8000, 0x3C7B5]


def test_a_class_without_a_method_is_named():
    turing = Methods(ce, 0xC5B5, COPY)
    assert not turing.has(ce.SET_SEMAPHORE_PAYLOAD_UPPER)
    with pytest.raises(ValueError, match="class 0xc5b5 has no method SET_SEMAPHORE_PAYLOAD_UPPER"):
        turing.run(ce.SET_SEMAPHORE_PAYLOAD_UPPER(1))
    with pytest.raises(ValueError, match="knows no class 0x1234"):
        Methods(ce, 0x1234, COPY)


def test_addresses_and_dwords_are_checked():
    assert address(0x1_0000_0004, 4, 40, "it") == (4, 1)
    for gpu_va in (2, 1 << 40, -4):
        with pytest.raises(ValueError, match="it is an address of 40 bits aligned to 4 bytes"):
            address(gpu_va, 4, 40, "it")
    with pytest.raises(ValueError, match="not of 'a'"):
        to_bytes(["a"])
    with pytest.raises(ValueError, match="not of 4294967296"):
        to_bytes([1, 1 << 32])


def test_a_generation_is_found_by_its_classes():
    for row in ROWS:
        assert row_of(row.compute_class) is row
        assert row_among({row.channel_class, row.compute_class, row.copy_class, 0x80}) is row
        host_methods(row.channel_class)
    with pytest.raises(NotSupported, match="compute class 0xc3c0"):
        row_of(0xC3C0)
    with pytest.raises(NotSupported, match="offers classes 0x80"):
        row_among({0x80})
    with pytest.raises(NotSupported, match="channel class 0xc36f"):
        host_methods(0xC36F)
