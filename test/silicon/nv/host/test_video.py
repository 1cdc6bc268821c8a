"""The video decoder as far as a channel. Methods are those of clc7b0.h."""

import struct


def test_a_decoder_keeps_its_state_and_releases_semaphores(video):
    # the set-up of a picture, as libnvcuvid sends it, then a semaphore with the time and one without
    video.push(
        *video.incr(0, 0x200, 7, 1000), *video.incr(0, 0x400, 0x52057, 0x100, 0x200),
        *video.incr(0, 0x240, 0, 0x8000, 5), *video.incr(0, 0x304, 1), *video.incr(0, 0x240, 0, 0x8010, 6),
        *video.incr(0, 0x304, 0),
    )  # fmt: skip
    payload, time_ns = struct.unpack("<QQ", video.peek(0x8000, 16))
    assert payload == 5
    assert time_ns > 0
    assert video.peek(0x8010, 8) == struct.pack("<II", 6, 0)
    assert video.failed == []


def test_decoding_is_refused_by_name(video):
    video.push(*video.incr(0, 0x300, 0))
    # ROBUST_CHANNEL_NVDEC0_ERROR
    assert video.error == (68, "channel 5 on runlist 5: decoding a picture is not modelled")


def test_a_wrong_semaphore_is_refused(video):
    video.push(*video.incr(0, 0x304, 1 << 16))
    assert video.error[0] == 68
    assert "has operation 1" in video.error[1]
