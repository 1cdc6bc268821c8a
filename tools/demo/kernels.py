"""The kernels of `ringup demo`: their source for LLVM, their inputs, and NumPy's results, equal to the bit.

For NVIDIA's cards `sass_kernels` has the same kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ringup.errors import NotSupported

NVIDIAS = "sm_"  # the beginning of the names of NVIDIA's processors
BLOCK = 256  # items of a group
WIDTH, STEPS = 256, 200  # side and steps of the picture, a square
LEFT, TOP, ACROSS = -2.2, -1.5, 3.0  # the part of the plane
ELEMENTS, FACTOR = 1 << 16, 2.5  # size and factor of saxpy
SIDE = 96  # the side of matmul's matrices
SMALL_WIDTH, SMALL_ELEMENTS, SMALL_SIDE = 64, 1 << 10, 32  # with firmware that moves a dword at a time
SEED = 31
KERNEL = """
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
define amdgpu_kernel void @mandelbrot(ptr addrspace(1) %out, i32 %width, i32 %steps, float %left, float %top, float %pixel) #0 {
entry:
  %item = call i32 @llvm.amdgcn.workitem.id.x()
  %group = call i32 @llvm.amdgcn.workgroup.id.x()
  %base = shl i32 %group, 8
  %index = add i32 %base, %item
  %column = urem i32 %index, %width
  %row = udiv i32 %index, %width
  %column.f = uitofp i32 %column to float
  %row.f = uitofp i32 %row to float
  %dx = fmul float %column.f, %pixel
  %dy = fmul float %row.f, %pixel
  %cx = fadd float %left, %dx
  %cy = fadd float %top, %dy
  br label %loop
loop:
  %x = phi float [ 0.0, %entry ], [ %x.next, %inside ]
  %y = phi float [ 0.0, %entry ], [ %y.next, %inside ]
  %n = phi i32 [ 0, %entry ], [ %n.next, %inside ]
  %xx = fmul float %x, %x
  %yy = fmul float %y, %y
  %size = fadd float %xx, %yy
  %small = fcmp olt float %size, 4.0
  %early = icmp ult i32 %n, %steps
  %more = and i1 %small, %early
  br i1 %more, label %inside, label %done
inside:
  %difference = fsub float %xx, %yy
  %x.next = fadd float %difference, %cx
  %xy = fmul float %x, %y
  %twice = fmul float %xy, 2.0
  %y.next = fadd float %twice, %cy
  %n.next = add i32 %n, 1
  br label %loop
done:
  %place = getelementptr i32, ptr addrspace(1) %out, i32 %index
  store i32 %n, ptr addrspace(1) %place
  ret void
}
attributes #0 = { "amdgpu-flat-work-group-size"="256,256" }
"""
SAXPY = """
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
define amdgpu_kernel void @saxpy(ptr addrspace(1) %out, ptr addrspace(1) %x, ptr addrspace(1) %y, float %factor) #0 {
  %item = call i32 @llvm.amdgcn.workitem.id.x()
  %group = call i32 @llvm.amdgcn.workgroup.id.x()
  %base = shl i32 %group, 8
  %index = add i32 %base, %item
  %x.place = getelementptr float, ptr addrspace(1) %x, i32 %index
  %y.place = getelementptr float, ptr addrspace(1) %y, i32 %index
  %a = load float, ptr addrspace(1) %x.place
  %b = load float, ptr addrspace(1) %y.place
  %product = fmul float %a, %factor
  %sum = fadd float %product, %b
  %place = getelementptr float, ptr addrspace(1) %out, i32 %index
  store float %sum, ptr addrspace(1) %place
  ret void
}
attributes #0 = { "amdgpu-flat-work-group-size"="256,256" }
"""
MATMUL = """
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
define amdgpu_kernel void @matmul(ptr addrspace(1) %out, ptr addrspace(1) %a, ptr addrspace(1) %b, i32 %side) #0 {
entry:
  %item = call i32 @llvm.amdgcn.workitem.id.x()
  %group = call i32 @llvm.amdgcn.workgroup.id.x()
  %base = shl i32 %group, 8
  %index = add i32 %base, %item
  %column = urem i32 %index, %side
  %first = sub i32 %index, %column
  br label %loop
loop:
  %k = phi i32 [ 0, %entry ], [ %k.next, %loop ]
  %sum = phi float [ 0.0, %entry ], [ %sum.next, %loop ]
  %a.index = add i32 %first, %k
  %b.row = mul i32 %k, %side
  %b.index = add i32 %b.row, %column
  %a.place = getelementptr float, ptr addrspace(1) %a, i32 %a.index
  %b.place = getelementptr float, ptr addrspace(1) %b, i32 %b.index
  %x = load float, ptr addrspace(1) %a.place
  %y = load float, ptr addrspace(1) %b.place
  %product = fmul float %x, %y
  %sum.next = fadd float %sum, %product
  %k.next = add i32 %k, 1
  %more = icmp ult i32 %k.next, %side
  br i1 %more, label %loop, label %done
done:
  %place = getelementptr float, ptr addrspace(1) %out, i32 %index
  store float %sum.next, ptr addrspace(1) %place
  ret void
}
attributes #0 = { "amdgpu-flat-work-group-size"="256,256" }
"""


@dataclass(frozen=True, slots=True)
class Task:
    """One kernel with its data: inputs, scalars after the addresses, and the expected output, element by element."""

    name: str
    about: str
    source: str
    inputs: tuple[Any, ...]
    scalars: tuple[Any, ...]
    expected: Any

    @property
    def groups(self) -> int:
        """The number of groups of `BLOCK` items, with one item for each element."""
        return int(self.expected.size) // BLOCK


def tasks(*, small: bool = False) -> list[Task]:
    """Return the tasks, the same each time."""
    import numpy as np  # what only this command needs

    width, elements, side = (SMALL_WIDTH, SMALL_ELEMENTS, SMALL_SIDE) if small else (WIDTH, ELEMENTS, SIDE)
    values = np.random.default_rng(SEED)

    def some(*shape: int) -> Any:
        return values.standard_normal(shape, np.float32)

    x, y, a, b = some(elements), some(elements), some(side, side), some(side, side)
    total = np.zeros((side, side), np.float32)
    # in the order of the kernel's loop: a sum of floats depends on it
    for k in range(side):
        total += a[:, k, None] * b[k]
    place = (width, STEPS, LEFT, TOP, ACROSS / width)
    return [
        Task("saxpy", f"{elements} floats", SAXPY, (x, y), (FACTOR,), x * np.float32(FACTOR) + y),
        Task("matmul", f"{side} x {side} floats", MATMUL, (a, b), (side,), total),
        Task("mandelbrot", f"{width} x {width} pixels", KERNEL, (), place, _mandelbrot(width)),
    ]


def _mandelbrot(width: int) -> Any:
    """Return the steps that each pixel takes, computed as the kernel does, operation by operation."""
    import numpy as np

    along = np.arange(width, dtype=np.float32) * np.float32(ACROSS / width)
    cx, cy = np.float32(LEFT) + along, np.float32(TOP) + along[:, None]
    x = np.zeros((width, width), np.float32)
    y, steps, alive = x.copy(), np.zeros(x.shape, np.uint32), np.ones(x.shape, bool)
    for _ in range(STEPS):
        alive &= x * x + y * y < 4
        steps += alive
        x, y = np.where(alive, x * x - y * y + cx, x), np.where(alive, x * y * np.float32(2) + cy, y)
    return steps


def compile_for(target: str, source: str = KERNEL) -> bytes:
    """Return a kernel as a code object for a processor such as gfx1100."""
    from llvmlite import binding as llvm  # what only this command needs

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu=target, opt=2)
    code: bytes = machine.emit_object(llvm.parse_assembly(source))
    return code


def _code(target: str, task: Task) -> bytes:
    """Return a task's kernel for a card's processor. Raises `NotSupported` for one that the demo has no kernels for."""
    if not target.startswith(NVIDIAS):
        return compile_for(target, task.source)
    # only what NVIDIA's cards need
    from ringup.tools.demo import sass_kernels

    if target not in sass_kernels.TARGETS:
        known = ", ".join(sass_kernels.TARGETS)
        raise NotSupported(f"the demo's kernels are written for {known}, not for {target}: try virtual:ga102@nvidia")
    return sass_kernels.compile_for(target, task.name)


class Prepared:
    """A task in a card's memory: its program, inputs and output buffer."""

    def __init__(self, card: Any, task: Task) -> None:
        self._card, self._task = card, task
        self._program = card.load(_code(card.info.target, task), task.name)
        self._out = card.alloc(task.expected.nbytes, name=f"{task.name}: result")
        self._inputs = [card.alloc(array.nbytes, name=f"{task.name}: input") for array in task.inputs]
        for buffer, array in zip(self._inputs, task.inputs, strict=True):
            card.copy.upload(buffer, array).wait()

    def stream(self, out: Any = None) -> Any:
        """Return a stream with one dispatch. `out`: another buffer or address for the result."""
        stream = self._card.compute.stream()
        target = self._out if out is None else out
        stream.dispatch(self._program, self._task.groups, BLOCK, [target, *self._inputs, *self._task.scalars])
        return stream

    def run(self) -> Any:
        """Dispatch once; return the output as an array like the expected one."""
        expected, copy = self._task.expected, self._card.copy
        copy.wait_for(self._card.compute.submit(self.stream()))
        return copy.download_array(self._out, expected.dtype, expected.shape)

    def is_right(self, result: Any) -> bool:
        """Whether a result is NumPy's to the bit."""
        return bool((result == self._task.expected).all())
