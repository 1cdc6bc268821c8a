"""`ringup asm`, `disasm` and `program` with code for NVIDIA's cards."""

import json

import pytest

# The status of a CompileError.
COMPILE_ERROR = 32
KERNEL = """\
.target sm_86
.kernel add_one
.registers 8
.parameter 8
  [B------:R-:W0:Y:S02] S2R R0, SR_TID.X
  [B0-----:R-:W-:Y:S05] @P0 BRA L20
L20:
  [B------:R-:W-:-:S05] EXIT
"""


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "add.s"
    path.write_text(KERNEL)
    return path


def test_a_kernel_goes_into_a_cubin_and_back(ask, source):
    assert ask("asm", source)[:2] == (0, "add.cubin: 1496 bytes for sm_86, 48 of code; add_one\n")
    status, text, _ = ask("disasm", "add.cubin", "--plain")
    assert (status, text.replace("\n\n", "\n")) == (0, KERNEL)
    found = json.loads(ask("program", "add.cubin", "--json")[1])
    assert (found["target"], found["cubin"]) == ("sm_86", "of CUDA 12")
    assert (found["kernels"][0]["registers"], found["kernels"][0]["each"]) == (8, ["0x0000   8"])
    assert ask("asm", source, "--cuda", "13")[0] == 0
    assert "of CUDA 13" in ask("program", "add.cubin")[1]


def test_bare_code_is_read_with_a_target(ask, source):
    assert ask("asm", source, "--raw")[0] == 0
    found = json.loads(ask("disasm", "add.bin", "--raw", "--target", "sm_86", "--json")[1])
    rows = found["kernels"]["code"]
    assert [row["text"] for row in rows] == ["S2R R0, SR_TID.X", "@P0 BRA 0x20", "EXIT"]
    assert (rows[0]["control"]["stall"], rows[1]["control"]["wait"]) == (2, 1)


def test_errors_are_one_line_each_and_name_their_place(ask, source):
    source.write_text(KERNEL.replace("EXIT", "EXITT"))
    status, _, error = ask("asm", source)
    assert (status, "add.s:8: sm_86 has no EXITT" in error) == (COMPILE_ERROR, True)
    source.write_text(KERNEL)
    ask("asm", source)
    status, _, error = ask("disasm", "add.cubin", "--target", "sm_75")
    assert (status, "add.cubin is for sm_86, not sm_75" in error) == (COMPILE_ERROR, True)
    status, _, error = ask("disasm", "add.cubin", "--kernel", "other")
    assert (status, "add.cubin has 0 kernels 'other'; it has add_one" in error) == (COMPILE_ERROR, True)
