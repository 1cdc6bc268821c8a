"""Extracting (encoding, text) pairs from LLVM's test files."""

import pytest

from ringup.autogen.generate.isa.pairs import pack, pairs
from ringup.errors import HeaderError

SOURCE = """\
// RUN: llvm-mc -triple=amdgcn -mcpu=gfx1100 -show-encoding %s | FileCheck --check-prefixes=GFX11,W32 %s
// RUN: not llvm-mc -triple=amdgcn -mcpu=gfx1100 -mattr=+wavefrontsize64 %s 2>&1 | FileCheck --check-prefix=ERR %s
// RUN: llvm-mc -triple=amdgcn -mcpu=gfx1200 -show-encoding %s | FileCheck --check-prefix=GFX12 %s

v_add_f32 v0, v1, v2
// GFX11: v_add_f32_e32 v0, v1, v2       ; encoding: [0x01,0x05,0x00,0x06]
// GFX12: v_add_f32_e32 v0, v1, v3       ; encoding: [0x01,0x07,0x00,0x06]
// W32: s_nop 0 // encoding: [0x00,0x00,0x80,0xbf]
// ERR: s_nop 1 ; encoding: [0x01,0x00,0x80,0xbf]
// GFX11: v_add_f32_e32 v0, v{{[0-9]}}, v2 ; encoding: [0x02,0x05,0x00,0x06]
"""


def test_only_lines_of_the_processors_own_runs_count(tmp_path):
    (tmp_path / "a.s").write_text(SOURCE)
    assert pairs([tmp_path], ["gfx1100"]) == [("000080bf", "s_nop 0"), ("01050006", "v_add_f32_e32 v0, v1, v2")]


def test_a_folder_without_tests_says_what_to_unpack(tmp_path):
    with pytest.raises(HeaderError, match="unpack llvm/test/MC"):
        pairs([tmp_path], ["gfx1100"])


def test_packing_twice_gives_the_same_bytes():
    assert pack([("00", "a")]) == pack([("00", "a")])
