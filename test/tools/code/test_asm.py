"""`ringup asm` and `ringup disasm`: round trips, one-line errors that name their place, and damaged input."""

import json
import random

import pytest

from ringup.queues.amd.objects import code_object

KERNEL = """
.text
.globl fill
.p2align 8
fill:
  s_load_b64 s[2:3], s[0:1], 0x0
  v_lshlrev_b32_e32 v1, 2, v0
  s_waitcnt lgkmcnt(0)
  s_cbranch_execz .Lend
  global_store_b32 v1, v0, s[2:3]
.Lend:
  s_endpgm
.amdhsa_kernel fill
  .amdhsa_kernarg_size 8
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_next_free_vgpr 2
  .amdhsa_next_free_sgpr 4
.end_amdhsa_kernel
"""


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "fill.s"
    path.write_text(KERNEL)
    return path


def test_a_kernel_goes_there_and_back(ask, source, tmp_path):
    assert ask("asm", source)[:2] == (0, "fill.co: 2024 bytes for gfx1100, 32 of code; fill\n")
    image = (tmp_path / "fill.co").read_bytes()
    assert list(code_object.parse(image).kernels) == ["fill"]
    status, text, _ = ask("disasm", "fill.co", "--plain")
    assert (status, "  s_cbranch_execz .L1c\n" in text, ".amdhsa_kernarg_size 8" in text) == (0, True, True)
    (tmp_path / "again.s").write_text(text)
    assert ask("asm", "again.s")[0] == 0
    assert ask("disasm", "again.co", "--plain")[1] == text


def test_json_holds_every_instruction(ask, source):
    ask("asm", source)
    found = json.loads(ask("disasm", "fill.co", "--json")[1])
    assert (found["target"], found["wave size"], found["kernels"]["fill"]["kernarg_size"]) == ("gfx1100", 32, 8)
    assert [row["text"] for row in found["code"]][:2] == [
        "s_load_b64 s[2:3], s[0:1], null",
        "v_lshlrev_b32_e32 v1, 2, v0",
    ]
    assert bytes.fromhex("".join(row["bytes"] for row in found["code"]))[:4] == bytes.fromhex("800004f4")


def test_bare_code_of_another_processor(ask, tmp_path):
    (tmp_path / "w.s").write_text("s_wait_loadcnt 0x0\ns_endpgm\n")
    assert ask("asm", "w.s", "--raw", "--target", "gfx1201")[:2] == (
        0,
        "w.bin: 8 bytes for gfx1201, 8 of code; no kernel\n",
    )
    assert ask("disasm", "w.bin", "--raw", "--target", "gfx1201", "--plain")[1] == "  s_wait_loadcnt 0x0\n  s_endpgm\n"


def test_an_error_shows_its_place(ask, tmp_path):
    (tmp_path / "bad.s").write_text("s_nop 0\n  v_ad_f32 v0, v1, v2\n")
    status, out, err = ask("asm", "bad.s")
    assert (status != 0, out) == (True, "")
    assert err.startswith("ringup asm: AssemblyError: bad.s:2:3: gfx1100 has no v_ad_f32; did you mean v_add_f32")
    assert not (tmp_path / "bad.co").exists()


@pytest.mark.parametrize(("words", "message"), [
    (("asm", "none.s"), "none.s cannot be read"), (("disasm", "none.co"), "none.co cannot be read"),
    (("disasm", "junk"), "junk is neither an ELF file nor a fat binary; --raw reads it as bare machine code"),
])  # fmt: skip
def test_what_cannot_be_read_is_said(ask, tmp_path, words, message):
    (tmp_path / "junk").write_bytes(b"junk")
    status, _, err = ask(*words)
    assert status != 0
    assert message in err


@pytest.mark.parametrize("target", ["gfx1100", "gfx1151", "gfx1201", "gfx942", "gfx950"])
def test_garbage_is_shown_and_assembles_to_itself(ask, tmp_path, target):
    garbage = random.Random(target).randbytes(4001)
    (tmp_path / "g.bin").write_bytes(garbage)
    status, text, err = ask("disasm", "g.bin", "--raw", "--target", target)
    assert (status, err) == (0, "")
    (tmp_path / "g.s").write_text(text)
    assert ask("asm", "g.s", "--raw", "--target", target, "-o", "back.bin")[0] == 0
    assert (tmp_path / "back.bin").read_bytes() == garbage
