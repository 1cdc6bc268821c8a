"""`ringup demo`: a card comes up, runs a Mandelbrot kernel's machine code and gives the picture back, drawn in the terminal."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import ringup
from ringup.tools.paths import add_firmware_argument
from ringup.tools.stages import StageView

WIDTH, HEIGHT, STEPS, BLOCK = 256, 256, 200, 256
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
SHADES = " .,:;=+*#%@"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "demo",
        help="bring a card up, run a kernel on it and draw what it computes",
        description="Bring a card up (a virtual one unless named), compile a kernel for it with LLVM, run it, draw the result.",
    )
    parser.add_argument("--card", default="virtual:navi31", help="which card (default: %(default)s)")
    add_firmware_argument(parser)
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write when what ran, for ui.perfetto.dev")
    parser.add_argument("--json", action="store_true", help="print one object with the figures instead of the picture")


def run(args: argparse.Namespace) -> int:
    import numpy as np  # what only this command needs

    with ringup.open(args.card, firmware=args.firmware, watch=StageView()) as card:
        items = WIDTH * HEIGHT
        with card.profile() as profile:
            program = card.load(compile_for(card.info.target), "mandelbrot")
            out = card.alloc(4 * items, name="picture")
            stream = card.compute.stream()
            stream.dispatch(program, items // BLOCK, BLOCK, [out, WIDTH, STEPS, -2.2, -1.5, 3.0 / WIDTH])
            done = card.compute.submit(stream)
            card.copy.wait_for(done)
            image = card.copy.download_array(out, np.uint32, (HEIGHT, WIDTH))
        kernel = next(span for span in profile.spans() if span.name == "mandelbrot")
        figures = {
            "card": card.name,
            "chip": card.info.chip,
            "found": card.info.found,
            "bring_up_ms": round(sum(stage.took_us for stage in card.stages) / 1000, 1),
            "waves": items // card.info.wave_size,
            "kernel_us": round(profile.duration_us(kernel), 1),
            "inside": int((image == STEPS).sum()),
        }
        if args.trace:
            profile.save(args.trace)
    if args.json:
        print(json.dumps(figures))
        return 0
    print(_drawn(image))
    print(
        f"{figures['card']} came up in {figures['bring_up_ms']:.0f} ms of its time, ran {figures['waves']} waves of machine code in "
        f"{figures['kernel_us']:.0f} us by a compute queue and gave the picture back by a copy queue"
    )
    return 0


def compile_for(target: str) -> bytes:
    """Return the kernel as a code object for a processor such as gfx1100."""
    from llvmlite import binding as llvm  # what only this command needs

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple("amdgcn-amd-amdhsa").create_target_machine(cpu=target, opt=2)
    code: bytes = machine.emit_object(llvm.parse_assembly(KERNEL))
    return code


def _drawn(image: object) -> str:
    """Return the picture: two rows a line in the colours of a terminal that has them, else in shades."""
    import numpy as np

    rows = np.asarray(image)[::4, ::2]
    if not sys.stdout.isatty():
        small = rows[::2]
        return "\n".join(
            "".join(
                SHADES[min(int(n), STEPS) * (len(SHADES) - 1) // STEPS if n == STEPS else int(n) % (len(SHADES) - 1)]
                for n in row
            )
            for row in small[:, ::2]
        )
    lines = []
    for upper, lower in zip(rows[::2], rows[1::2], strict=True):
        cells = zip(upper, lower, strict=True)
        lines.append("".join(f"\x1b[38;5;{_colour(a)};48;5;{_colour(b)}m\u2580" for a, b in cells) + "\x1b[0m")
    return "\n".join(lines)


def _colour(steps: int) -> int:
    """Return a colour of the 256: black inside, else a walk through the cube."""
    if steps >= STEPS:
        return 16
    walk = (17, 18, 19, 20, 21, 27, 33, 39, 45, 51, 87, 123, 159, 195, 231, 230, 229, 228, 227, 226, 220, 214, 208, 202)
    return walk[int(steps) % len(walk)]
