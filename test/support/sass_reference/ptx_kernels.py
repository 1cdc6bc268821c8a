"""Kernels in PTX, made at random of the statements in `test/compiler/isa/sass/statements.txt`, for ptxas to compile."""

import random
from pathlib import Path

STATEMENTS = Path(__file__).parents[2] / "compiler" / "isa" / "sass" / "statements.txt"
# The type, the number of registers and the type in memory of each pool.
POOLS = {
    "r": ("b32", 24, "b32"),
    "l": ("b64", 12, "b64"),
    "f": ("f32", 20, "f32"),
    "e": ("f64", 8, "f64"),
    "h": ("b16", 10, "b16"),
    "p": ("pred", 6, ""),
}
VALUES = {
    "i": ("1", "-1", "5", "32767", "-70000", "305419896", "255"),
    "f": ("0f3F800000", "0f40490FDB", "0fBF000000", "0f7F800000"),
    "e": ("0d3FF0000000000000", "0d400921FB54442D18", "0d3FE0000000000000"),
}
# They end the kernel's way, so only some threads may take them.
ENDS = ("trap", "brkpt", "exit", "ret")
SETUP = """\
.version 8.8
.target {chip}
.address_size 64
.const .align 16 .b8 consts[1024] = {{1,2,3}};
.global .texref tex0;
.global .surfref surf0;
.visible .entry kernel(.param .u64 buf, .param .u64 other, .param .align 16 .b8 par[512])
{{
.reg .b64 %g, %gen, %loc, %k, %x;
.reg .b32 %s;
.local .align 16 .b8 stack[1024];
.shared .align 128 .b8 sh[4096];
ld.param.u64 %g, [buf];
ld.param.u64 %gen, [other];
cvta.to.global.u64 %g, %g;
mov.u32 %s, sh;
mov.u64 %loc, stack;
mov.u64 %k, consts;
mov.u32 %r0, %tid.x;
mul.wide.u32 %x, %r0, 64;
add.s64 %g, %g, %x;
add.s64 %gen, %gen, %x;
mad.lo.u32 %s, %r0, 16, %s;
and.b64 %x, %x, 255;
add.s64 %loc, %loc, %x;
add.s64 %k, %k, %x;
"""


def statements(chip):
    """Return the statements that a chip (75 for sm_75) has."""
    lines = (line.split(" ", 1) for line in STATEMENTS.read_text().splitlines() if line[0] != "#")
    return [text for first, text in lines if int(first) <= chip]


def kernel(chip, seed, times=2):
    """Return a kernel with every statement `times` times, in random order with random registers."""
    draw = random.Random(seed)
    wanted = statements(chip) * times
    draw.shuffle(wanted)
    lines = [f".reg .{kind} %{pool}<{count}>;" for pool, (kind, count, _) in POOLS.items()]
    head = SETUP.format(chip=f"sm_{chip}")
    at = head.index("{\n") + 2
    head = head[:at] + "\n".join(lines) + "\n" + head[at:]
    body = []
    for pool, (_, count, memory) in POOLS.items():
        for number in range(count):
            load = f"ld.global.{memory} %{pool}{number}, [%g+{1024 + 8 * number}];"
            body.append(load if memory else f"setp.lt.u32 %p{number}, %r{number}, {3 * number + 1};")
    for index, statement in enumerate(wanted):
        guard = f"@%p{draw.randrange(6)} " if statement in ENDS or draw.random() < 0.12 else ""
        body.append(guard + fill(statement, draw) + ";")
        if draw.random() < 0.02:
            body += [
                f"@%p{draw.randrange(6)} bra L{index};",
                fill("ld.global.u32 $r,[%g+@o4]", draw) + ";",
                f"L{index}:",
            ]
    for pool, (_, count, memory) in POOLS.items():
        for number in range(count):
            if memory:
                body.append(f"st.global.{memory} [%g+{8192 + 64 * ord(pool) + 8 * number}], %{pool}{number};")
            else:
                body.append(f"selp.u32 %r0, 1, 2, %p{number};\nst.global.u32 [%g+{4096 + 4 * number}], %r0;")
    return head + "\n".join(body) + "\nret;\n}\n"


def fill(statement, draw):
    """Return a statement with registers and numbers for its marks."""
    found = ""
    at = 0
    while at < len(statement):
        mark, kind = statement[at], statement[at + 1 : at + 2]
        at += 2
        if mark == "$":
            found += f"%{kind}{draw.randrange(POOLS[kind][1])}"
        elif mark == "@" and kind == "o":
            digits = ""
            while at < len(statement) and statement[at].isdigit():
                digits += statement[at]
                at += 1
            found += str(draw.randrange(40) * int(digits or 1))
        elif mark == "@":
            found += draw.choice(VALUES[kind])
        else:
            found += mark
            at -= 1
    return found
