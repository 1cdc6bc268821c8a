"""A kernel in C, compiled by clang for the card's own target, and what ringup says of it.

python examples/clang_kernel.py virtual:navi31
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from llvmlite import binding as llvm

import ringup

SOURCE = """
__kernel void saxpy(__global float *y, __global const float *x, float a, unsigned count) {
  unsigned i = __builtin_amdgcn_workgroup_id_x() * 64 + __builtin_amdgcn_workitem_id_x();
  if (i < count) y[i] = a * x[i] + y[i];
}
"""


def compiled(target: str) -> bytes:
    """Return the code object that clang makes of the source.

    For RDNA4 only the front end is clang's: LLVM before 20 leaves out `s_wait_alu`, without which scalars are read too
    early there. A virtual card reports that. llvmlite has LLVM 22. With clang 20 or later this is not needed.
    """
    with tempfile.TemporaryDirectory() as folder:
        source, machine, made = (Path(folder, name) for name in ("saxpy.cl", "saxpy.o", "saxpy.co"))
        source.write_text(SOURCE)
        clang = ["clang-19", "-x", "cl", "-target", "amdgcn-amd-amdhsa", f"-mcpu={target}", "-nogpulib", "-O2"]
        if target.startswith("gfx12"):
            command = [*clang, "-S", "-emit-llvm", str(source), "-o", "-"]
            module = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            machine.write_bytes(object_file(module, target))
            subprocess.run(["ld.lld-19", "-shared", str(machine), "-o", str(made)], check=True)
        else:
            subprocess.run([*clang, str(source), "-o", str(made)], check=True)
        return made.read_bytes()


def object_file(module: str, target: str) -> bytes:
    """Return what LLVM 22 makes of a module."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    gpu = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu=target, opt=2)
    code: bytes = gpu.emit_object(llvm.parse_assembly(module))
    return code


def main(name: str) -> None:
    count = 1000
    x, y = (np.random.default_rng(seed).random(count, np.float32) for seed in (1, 2))
    with ringup.open(name) as card:
        program = card.load(compiled(card.info.target), "saxpy.cl")
        there_x, there_y = card.alloc(x.nbytes, name="x"), card.alloc(y.nbytes, name="y")
        copied = [card.copy.upload(there_x, x), card.copy.upload(there_y, y)]
        stream = card.compute.stream()
        stream.wait_for(copied[-1])  # copies of one queue end in order
        # 16 groups of 64 items; numbers are packed by the types that the kernel declares
        stream.dispatch(program, grid=16, block=64, args=[there_y, there_x, 2.5, count])
        card.compute.submit(stream).wait()
        result = card.copy.download_array(there_y, np.float32, count)
        print(f"{program['saxpy']} on {card.info.chip}: {result[:3]}")
        assert np.allclose(result, 2.5 * x + y, rtol=1e-6)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
