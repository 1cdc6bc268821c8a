"""Fat binaries at the command line: `ringup program`, `disasm` and `run` show the contents and choose from them."""

import json
import struct

import pytest

from ringup.errors import CompileError, DeviceTimeout, WrongTarget

STORE = """
.text
.globl {name}
.p2align 8
.type {name},@function
{name}:
  s_load_b64 s[2:3], s[0:1], 0x0
  v_lshlrev_b32_e32 v1, 2, v0
  v_mov_b32_e32 v2, {value}
  {wait}
  global_store_b32 v1, v2, s[2:3]
  s_endpgm
.L{name}_end:
.size {name}, .L{name}_end-{name}
"""
DESCRIBED = """
.amdhsa_kernel {name}
  .amdhsa_kernarg_size 8
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_next_free_vgpr 3
  .amdhsa_next_free_sgpr 4
  .amdhsa_wavefront_size32 1
.end_amdhsa_kernel
"""
META = """
.amdgpu_metadata
---
amdhsa.version: [1, 2]
amdhsa.kernels:
{kernels}...
.end_amdgpu_metadata
"""
OF_KERNEL = """  - .name: {name}
    .symbol: {name}.kd
    .kernarg_segment_size: 8
    .kernarg_segment_align: 8
    .group_segment_fixed_size: 0
    .private_segment_fixed_size: 0
    .max_flat_workgroup_size: 64
    .wavefront_size: 32
    .sgpr_count: 4
    .vgpr_count: 3
    .args:
      - .offset: 0
        .size: 8
        .value_kind: global_buffer
        .address_space: global
"""
WAITS = {"gfx1100": "s_waitcnt lgkmcnt(0)", "gfx1102": "s_waitcnt lgkmcnt(0)", "gfx1201": "s_wait_kmcnt 0x0"}


def bundle(members):
    """Return an uncompressed bundle of (target, code object) pairs."""
    table, body = struct.pack("<Q", len(members)), b""
    for target, data in members:
        name = f"hipv4-amdgcn-amd-amdhsa--{target}".encode()
        table += struct.pack("<QQQ", 4096 + len(body), len(data), len(name)) + name
        body += data.ljust(-(-len(data) // 4096) * 4096, b"\0")
    return (b"__CLANG_OFFLOAD_BUNDLE__" + table).ljust(4096, b"\0") + body


@pytest.fixture
def fat(ask, tmp_path):
    """`fat` holds two sources, each for three processors. The first has `seven` and `sevens`, the second `eight`."""
    sources = []
    for names in (("seven", "sevens"), ("eight",)):
        members = []
        for target, wait in WAITS.items():
            text = f'.amdgcn_target "amdgcn-amd-amdhsa--{target}"' + "".join(
                STORE.format(name=name, value=8 if name == "eight" else 7, wait=wait) for name in names
            )
            text += "".join(DESCRIBED.format(name=name) for name in names)
            text += META.format(kernels="".join(OF_KERNEL.format(name=name) for name in names))
            (tmp_path / "one.s").write_text(text)
            assert ask("asm", "one.s")[0] == 0
            members.append((target, (tmp_path / "one.co").read_bytes()))
        sources.append(bundle(members))
    (tmp_path / "fat").write_bytes(b"".join(sources))
    return tmp_path / "fat"


def test_it_is_told_what_a_file_holds(ask, fat):
    listed = ask("program", fat)[1].splitlines()
    assert ask("disasm", fat, "--list")[1].splitlines() == listed == ask("program", fat, "--list")[1].splitlines()
    rows = json.loads(ask("disasm", fat, "--list", "--json")[1])
    assert [row["target"] for row in rows] == [*WAITS, *WAITS]
    assert [(row["object"], row["source"], row["kernels"]) for row in rows[2:4]] == [(2, 0, 2), (3, 1, 1)]
    assert [line.split()[:3] for line in listed[2:4]] == [["2", "gfx1201", "source"], ["3", "gfx1100", "source"]]


@pytest.mark.parametrize(("words", "target", "kernels"), [
    (["--object", "0"], "gfx1100", ["seven", "sevens"]), (["--target", "gfx1201", "--kernel", "eig"], "gfx1201", ["eight"]),
    (["--object", "1", "--kernel", "seven"], "gfx1102", ["seven"]),
])  # fmt: skip
def test_one_object_is_disassembled(ask, fat, words, target, kernels):
    found = json.loads(ask("disasm", fat, *words, "--json")[1])
    assert (found["target"], list(found["kernels"])) == (target, kernels)
    assert [row["label"] for row in found["code"] if row.get("label") in ("seven", "sevens", "eight")] == kernels


def test_the_text_of_one_kernel_is_its_code_alone(ask, fat, tmp_path):
    text = ask("disasm", fat, "--target", "gfx1102", "--kernel", "sevens", "--plain")[1]
    (tmp_path / "alone.s").write_text(text)
    assert text.splitlines()[0] == "sevens:"
    assert ask("asm", "alone.s", "--raw", "--target", "gfx1102")[0] == 0
    code = (tmp_path / "alone.bin").read_bytes()
    assert (len(code), code in fat.read_bytes()) == (32, True)


def test_a_whole_object_goes_back_to_the_same_text(ask, fat, tmp_path):
    text = ask("disasm", fat, "--object", "5", "--plain")[1]
    (tmp_path / "again.s").write_text(text)
    assert ask("asm", "again.s")[0] == 0
    assert ask("disasm", "again.co", "--plain")[1] == text


def test_the_program_for_a_chip_is_shown(ask, fat):
    text = ask("program", fat, "--chip", "navi31", "--kernel", "eight")[1]
    assert text.splitlines()[0].split() == ["target", "gfx1100"]
    assert "0x0000   8 global_buffer global" in text
    found = json.loads(ask("program", fat, "--chip", "gfx1201", "--kernel", "sevens", "--json")[1])
    assert [kernel["name"] for kernel in found["kernels"]] == ["sevens"]


@pytest.mark.parametrize(("words", "status", "message"), [
    (["disasm"], CompileError, "has 6 such code objects, for gfx1100, gfx1102, gfx1201: choose one by its processor, a kernel or --object"),
    (["disasm", "--target", "gfx1100"], CompileError, "has 2 such code objects, for gfx1100: choose"),
    (["disasm", "--target", "gfx942"], CompileError, "has code for gfx1100, gfx1102, gfx1201, none for gfx942"),
    (["disasm", "--object", "6"], CompileError, "has 6 code objects, numbered from 0: there is no number 6"),
    (["disasm", "--object", "0", "--kernel", "eight"], CompileError, "has no kernel eight; it has seven, sevens"),
    (["disasm", "--target", "gfx1100", "--kernel", "even"], CompileError, "has 2 kernels with 'even' in their names: seven, sevens"),
    (["program", "--chip", "gfx906"], WrongTarget, "none of it runs on gfx906"),
    (["program", "--chip", "gfx1100"], CompileError, "holds 2 code objects for gfx1100, one of each source; name a kernel"),
])  # fmt: skip
def test_what_is_not_one_object_is_said(ask, fat, words, status, message):
    found, out, err = ask(words[0], fat, *words[1:])
    assert (found, out) == (status.exit_code, "")
    assert message in err


def test_one_object_has_nothing_to_list(ask, fat, tmp_path):
    for command in ("disasm", "program"):
        assert "one.co is one code object; --list is for files with several" in ask(command, "one.co", "--list")[2]


def test_a_kernel_of_it_runs_by_a_part_of_its_name(ask, fat):
    found = json.loads(ask("run", "virtual:navi31", fat, "eigh", "--block", "4", "--arg", "show:16:u32", "--json")[1])
    assert (found["kernel"], found["results"][0]["values"]) == ("eight", [8] * 4)
    found = json.loads(ask("run", "virtual:navi31", fat, "seven", "--block", "2", "--arg", "show:16:u32", "--json")[1])
    assert found["results"][0]["values"] == [7, 7, 0, 0]
    for words, message in (
        ([], "fat has 3 kernels, name one: seven, sevens, eight"),
        (["even"], "fat has 2 kernels with 'even' in their names: seven, sevens"),
        (["nine"], "fat has no kernel nine; it has seven, sevens, eight"),
    ):
        status, _, err = ask("run", "virtual:navi31", fat, *words)
        assert (status, message in err) == (2, True)


def test_what_a_virtual_card_saw_go_wrong_is_reported(ask, fat, tmp_path):
    text = ask("disasm", fat, "--object", "3", "--plain")[1]
    (tmp_path / "hasty.s").write_text(text.replace("s_waitcnt lgkmcnt(0)", "s_nop 0"))
    assert ask("asm", "hasty.s")[0] == 0
    status, _, err = ask("run", "virtual:navi31", "hasty.co", "--arg", "zero:256", "--timeout", "1")
    assert status == DeviceTimeout.exit_code
    assert "what the virtual card saw, and a real one does not tell: " in err
    assert "s2 is still being loaded; wait on lgkmcnt" in err
