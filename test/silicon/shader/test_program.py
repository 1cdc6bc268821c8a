"""Code objects: the content of a descriptor and its metadata, and damaged files."""

import subprocess

import pytest

from ringup.errors import GuestError
from ringup.silicon.shader.program import load, unpack

SOURCE = """
__kernel void add(__global int *a, __global const int *b, int n) {
  __local int tile[32];
  tile[n & 31] = b[0];
  __builtin_amdgcn_s_barrier();
  a[__builtin_amdgcn_workitem_id_x()] += tile[b[1] & 31];
}
"""


@pytest.fixture(scope="module")
def elf(tmp_path_factory):
    folder = tmp_path_factory.mktemp("program")
    (folder / "add.cl").write_text(SOURCE)
    flags = ("-x", "cl", "-cl-std=CL2.0", "-target", "amdgcn-amd-amdhsa", "-mcpu=gfx1100", "-nogpulib", "-O1")
    subprocess.run(["clang-19", *flags, str(folder / "add.cl"), "-o", str(folder / "add.elf")], check=True, timeout=60)
    return (folder / "add.elf").read_bytes()


def test_a_kernel_is_described(elf):
    program = load(elf)
    kernel = program.kernels["add"]
    assert (program.target, kernel.wave_size, kernel.lds_bytes, kernel.scratch_bytes) == ("gfx1100", 32, 128, 0)
    assert kernel.wants("kernarg_segment_ptr")
    explicit = [
        (one.kind, one.offset, one.size_bytes) for one in kernel.arguments if not one.kind.startswith("hidden_")
    ]
    assert explicit == [("global_buffer", 0, 8), ("global_buffer", 8, 8), ("by_value", 16, 4)]
    assert kernel.entry_address % 256 == 0


@pytest.mark.parametrize("keep", [0, 16, 63, 200, 1000, 2000])
def test_a_code_object_cut_short_is_one_error(elf, keep):
    with pytest.raises(GuestError, match="code object"):
        load(elf[:keep])


def test_another_machine_is_refused(elf):
    with pytest.raises(GuestError, match="no 64-bit AMDGPU ELF"):
        load(elf[:18] + b"\x3e\x00" + elf[20:])  # EM_X86_64


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("82a16101a16293c0c2c3", {"a": 1, "b": [None, False, True]}),
        ("cd0118", 280),
        ("ff", -1),
        ("d1fffe", -2),
        ("cb3ff8000000000000", 1.5),
        ("d90568656c6c6f", "hello"),
    ],
)
# Bytes from the MessagePack specification.
def test_messagepack_values(data, value):
    assert unpack(bytes.fromhex(data)) == (value, len(data) // 2)
