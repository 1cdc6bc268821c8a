"""Fingerprints of published firmware: the parts are found in a file, and the committed fingerprints come from the
package.
"""

import struct
from hashlib import sha256
from pathlib import Path

import pytest

from ringup.autogen.amd import psp_published
from ringup.autogen.generate.amd import published
from ringup.errors import HeaderError


def part(body, padding=0, magic=b"$PS1"):
    data = bytearray(0x100) + body + bytes(padding)
    data[0x10:0x14] = magic
    struct.pack_into("<I", data, 0x14, len(body) + padding)
    struct.pack_into("<II", data, 0x58, 0x8101_2048, 0)
    struct.pack_into("<I", data, 0x60, 7)
    struct.pack_into("<I", data, 0x6C, 0x200 + len(body) + padding)
    data[0xD0:0xF0] = sha256(body).digest()
    return bytes(data) + bytes(0x100)


@pytest.mark.parametrize("body_padding", [0, 8])
@pytest.mark.parametrize("magic", [b"$PS1", bytes(4)])
def test_parts_are_found_wherever_they_lie(body_padding, magic):
    first, second = part(b"\x11" * 0x38 + b"\x22" * 8, body_padding, magic), part(b"\x33" * 0x40)
    found = list(published.find(b"\xaa" * 0x130 + first + second + b"\xbb" * 32))
    assert [one.whole for one in found] == [first, second]
    assert [(one.kind, one.version) for one in found] == [(0x2048, 7)] * 2


def test_what_only_looks_like_a_part_is_left_out():
    whole = part(b"\x11" * 0x40)
    assert not list(published.find(whole[:-1]))
    assert not list(published.find(whole[:0x120] + b"\x12" + whole[0x121:]))


def test_the_committed_fingerprints_are_those_of_the_package(sources):
    made = published.read_published(sources.root("firmware-amd"))
    assert made[published.OUTPUT] == Path(psp_published.__file__).read_text(encoding="utf-8")


def test_a_folder_without_firmware_is_refused(tmp_path):
    with pytest.raises(HeaderError, match="firmware package: no lib/firmware/amdgpu"):
        published.read_published(tmp_path)
