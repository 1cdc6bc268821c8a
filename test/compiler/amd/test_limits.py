"""How many waves fit on a SIMD, compared with clang's report for kernels that use as many registers."""

import re
import subprocess

import pytest

from ringup.compiler.amd.instructions.limits import limits

COUNTS = (24, 96, 97, 120, 121, 144, 145, 168, 169, 192, 193, 216, 217, 240, 241, 256)
KERNEL = """__attribute__((reqd_work_group_size(32, 1, 1))) __kernel void k{count}(void) {{
  __asm__ volatile("v_mov_b32 v{last}, 0" ::: "v{last}"); }}
"""


@pytest.mark.parametrize("target", ["gfx1100", "gfx1151", "gfx1201", "gfx942"])
def test_waves_of_a_simd_are_clangs(tmp_path, target):
    (tmp_path / "k.cl").write_text("".join(KERNEL.format(count=count, last=count - 1) for count in COUNTS))
    argv = [
        "clang-19",
        "-w",
        "-x",
        "cl",
        "-cl-std=CL2.0",
        "-target",
        "amdgcn-amd-amdhsa",
        "-nogpulib",
        "-O1",
        f"-mcpu={target}",
        "-S",
    ]
    done = subprocess.run([*argv, tmp_path / "k.cl", "-o", "-"], capture_output=True, text=True, check=True, timeout=60)
    told = {
        int(count): int(waves)
        for count, waves in re.findall(r"; NumVgprs: (\d+)[\s\S]*?; Occupancy: (\d+)", done.stdout)
    }
    assert set(told) == set(COUNTS)
    wave = 64 if target == "gfx942" else 32
    assert {count: limits(target).occupancy(count, 0, wave, wave) for count in COUNTS} == told
