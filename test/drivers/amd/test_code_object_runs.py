"""Code objects run on a virtual card: relocated data, every kind of argument, hidden arguments, dynamic
LDS, a stack.
"""

import struct
import subprocess

import numpy as np
import pytest
from llvmlite import binding as llvm

from ringup.drivers import select
from ringup.errors import DeviceFault, WrongTarget
from ringup.queues.amd import hsa_objects
from ringup.silicon import card
from ringup.silicon.shader import program, workbench
from ringup.silicon.shader.amd.translator.engine import Translator

SOURCE = """
typedef struct { int a; float b; char c[5]; } S;
__constant int lut[4] = {10, 20, 30, 40};
__global int table[4] = {5, 6, 7, 8};
__global int *where = &table[2];

__kernel void pointers(__global int *p, int n) { p[0] = where[0] + lut[n & 3]; p[1] = where[1]; where = &table[0]; }

__kernel void kinds(S s, uchar c, short h, double d, __global long *p, __local int *l, ulong u, __local double *m) {
  __local int fixed[33];
  int x = __builtin_amdgcn_workitem_id_x();
  fixed[x] = c + x;
  l[x] = h;
  m[x] = d * x;
  __builtin_amdgcn_s_barrier();
  if (x == 0 && __builtin_amdgcn_workgroup_id_x() == 1) {
    p[0] = s.a; p[1] = (long)(s.b * 100); p[2] = s.c[4]; p[3] = fixed[31]; p[4] = l[7]; p[5] = (long)m[3]; p[6] = u;
    p[7] = __builtin_amdgcn_workgroup_size_x(); p[8] = (long)l - (long)fixed; p[9] = (long)m - (long)l;
  }
}

__kernel void scribble(__global uint *o) { *o = 0xbf800000; }

__kernel void told(__global uint *o) {
  __constant uint *packet = (__constant uint *)__builtin_amdgcn_dispatch_ptr();
  volatile int spilled[5];
  spilled[o[0] & 3] = 1;
  for (int i = 0; i < 16; i++) o[i] = packet[i];
  o[16] = spilled[1];
}

__attribute__((noinline)) void turn(__private int *p, int n) { for (int i = 0; i < n; i++) p[i] = p[n - 1 - i] + i; }
__kernel void stack(__global int *o, int n) {
  int a[40];
  for (int i = 0; i < n; i++) a[i] = o[i];
  turn(a, n);
  o[0] = a[o[1]];
}
"""
FLAGS = ("-w", "-x", "cl", "-cl-std=CL2.0", "-target", "amdgcn-amd-amdhsa", "-nogpulib", "-O1")


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cl")
    (folder / "source.cl").write_text(SOURCE)

    def compile_for(cpu, version, *flags):
        argv = ["clang-19", *FLAGS, f"-mcpu={cpu}", f"-mcode-object-version={version}", *flags]
        subprocess.run([*argv, folder / "source.cl", "-o", folder / "out"], check=True, timeout=60)
        return (folder / "out").read_bytes()

    return compile_for


@pytest.fixture(scope="module")
def navi31():
    # The scratch of every wave that could run comes from this memory.
    radeon = card("navi31", vram_bytes=2 << 30)
    with select.start(radeon) as started:
        yield started
    assert radeon.violations == []


def run(device, kernel, grid, block, args, **more):
    stream = device.compute.stream()
    stream.dispatch(kernel, grid, block, args, **more)
    device.compute.submit(stream).wait()


@pytest.mark.parametrize(
    ("cpu", "version", "flags"),
    [
        ("gfx1100", 4, ()),
        ("gfx1100", 5, ()),
        ("gfx1100", 6, ()),
        ("gfx11-generic", 6, ()),
        ("gfx1100", 5, ("-mwavefrontsize64",)),
        ("gfx1100", 5, ("-c", "-Xclang", "-emit-obj")),
    ],
)
def test_every_kind_of_object_runs(navi31, build, cpu, version, flags):
    program = navi31.load(build(cpu, version, *flags))
    out = navi31.alloc(4096)
    run(navi31, program["pointers"], 1, 1, [out, 6])
    assert navi31.copy.download_array(out, np.int32, 2).tolist() == [7 + 30, 8]
    # The first run changed the pointer: the data belongs to the program, and the kernel writes it.
    run(navi31, program["pointers"], 1, 1, [out, 0])
    assert navi31.copy.download_array(out, np.int32, 2).tolist() == [5 + 10, 6]
    structure = struct.pack("<if5s3x", -7, 2.5, b"abcd\x7f")
    run(
        navi31, program["kinds"], 2, 32, [structure, 200, -3, 1.5, out, 31 * 4, (1 << 63) + 5, 32 * 8],
        dynamic_lds_bytes=31 * 4 + 32 * 8 + 8,
    )  # fmt: skip
    got = navi31.copy.download_array(out, np.uint64, 10).tolist()
    assert got[0] == (1 << 64) - 7
    assert got[1:8] == [250, 0x7F, 231, (1 << 64) - 3, 4, (1 << 63) + 5, 32]
    # It follows the fixed ints; 132 + 124 is a multiple of 8 already.
    assert got[8:] == [33 * 4, 31 * 4]
    out.free()
    program.free()


def test_private_arrays_and_calls_use_scratch_memory(navi31, build):
    program = navi31.load(build("gfx1100", 5))
    out = navi31.alloc(4096)
    values = np.arange(40, dtype=np.int32) * 3
    navi31.copy.upload(out, values).wait()
    run(navi31, program["stack"], 1, 1, [out, 40])
    turned = values.tolist()
    for i in range(40):
        turned[i] = turned[39 - i] + i
    assert navi31.copy.download_array(out, np.int32, 1).tolist() == [turned[3]]


RECURSION = """
target triple = "amdgcn-amd-amdhsa"
define i32 @fib(i32 %n) #0 {
  %small = icmp slt i32 %n, 2
  br i1 %small, label %done, label %deeper
deeper:
  %a = sub i32 %n, 1
  %x = call i32 @fib(i32 %a)
  %b = sub i32 %n, 2
  %y = call i32 @fib(i32 %b)
  %sum = add i32 %x, %y
  ret i32 %sum
done:
  ret i32 %n
}
define amdgpu_kernel void @deep(ptr addrspace(1) %o, i32 %n) #1 {
  %x = call i32 @fib(i32 %n)
  store i32 %x, ptr addrspace(1) %o
  ret void
}
attributes #0 = { noinline "amdgpu-no-queue-ptr" "amdgpu-no-dispatch-id" }
attributes #1 = { "amdgpu-flat-work-group-size"="1,64" "amdgpu-no-queue-ptr" "amdgpu-no-dispatch-id" }
"""


def test_a_stack_of_unknown_depth_has_room(navi31):
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu="gfx1100", opt=1)
    program = navi31.load(machine.emit_object(llvm.parse_assembly(RECURSION)))
    assert program.only().kernel.dynamic_stack
    out = navi31.alloc(4096)
    run(navi31, program, 1, 1, [out, 12])
    assert navi31.copy.download_array(out, np.int32, 1).tolist() == [144]


def test_another_chips_program_is_not_loaded(navi31, build):
    with pytest.raises(WrongTarget, match="built for gfx1201, this chip is a gfx1100: compile it for gfx1100"):
        navi31.load(build("gfx1201", 5))


def test_a_kernel_gets_the_same_values_from_workbench_and_driver(navi31, build):
    """The dispatch packet and the queue's object. Only the addresses of the kernel and of its arguments differ."""
    elf = build("gfx1100", 5)
    out = navi31.alloc(256, visible=True)
    out.view[:] = bytes(256)
    run(navi31, navi31.load(elf)["told"], (2, 3), (4, 2), [out], dynamic_lds_bytes=48)
    by_card, by_itself = np.frombuffer(bytes(out.view), np.uint32)[:16].copy(), np.zeros(64, np.uint32)
    code = program.load(elf)
    sizes = {"groups": (2, 3, 1), "group_size": (4, 2, 1), "dynamic_lds_bytes": 48}
    workbench.run(Translator(), code, "told", [by_itself], **sizes)
    assert by_card[7] == 48  # group_segment_size
    assert by_card[6] > 0  # private_segment_size
    addresses = [8, 9, 10, 11]
    assert np.array_equal(np.delete(by_card, addresses), np.delete(by_itself[:16], addresses))
    assert by_itself[8:10].view(np.uint64)[0] == workbench.CODE + code.kernels["told"].descriptor_address
    assert by_itself[10:12].view(np.uint64)[0] == workbench.KERNARG
    assert workbench.queue_object(1, 2).tobytes() == hsa_objects.queue_object(hsa_objects.Apertures(1, 2))


@pytest.mark.parametrize("where", ["code", "constants"])
def test_a_program_cannot_be_overwritten_on_the_card(build, where):
    """A store to the program is a fault that names it, and the program keeps its contents. Its variables can be
    written, as `pointers` above does.
    """
    with select.start(card("navi31", vram_bytes=256 << 20)) as device:
        loaded = device.load(build("gfx1100", 5))
        stream = device.compute.stream()
        target = loaded["scribble"].entry_va if where == "code" else loaded.base_va
        stream.dispatch(loaded["scribble"], 1, 1, [target])
        with pytest.raises(DeviceFault, match=r"TCP wrote page .*program"):
            device.compute.submit(stream).wait()
