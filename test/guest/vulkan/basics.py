"""The shaders that came first: one for each feature of a shader core."""

from __future__ import annotations

import hashlib
from fractions import Fraction
from typing import Any

import numpy as np
from vulkan.case import COMPUTE, Array, Case, N, Shader, draws, equal, near, some_floats, some_words


def float32(fused: bool = True) -> Case:
    a, b, c = (some_floats(name, "f4", 100) for name in ("a", "b", "c"))
    wide = np.longdouble
    i = np.arange(N)
    exact = [
        *(
            a + b,
            a - b,
            a * b,
            (wide(a) * wide(b) + wide(c)).astype("f4") if fused else a * b + c,
            a * b + c,
            np.minimum(a, b),
            np.maximum(a, -b),
        ),
        *(
            np.floor(a),
            np.ceil(a),
            np.trunc(a),
            np.rint(a),
            np.abs(c),
            np.clip(a, -1, 1).astype("f4"),
            np.where(a < b, a, c),
        ),
        np.ldexp(a, i % 17 - 8),
    ]
    x, y, z = (array.astype("f8") for array in (a, b, c))
    ulp = 2.0**-23
    close = near(
        [x / y, np.sqrt(np.abs(x)), 1 / np.sqrt(np.abs(y)), 1 / z], relative=3 * ulp
    )  # Vulkan: 2.5 ulp at most
    return Case([a, b, c, 15 * N * 4, 4 * N * 4], {3: ("f4", equal(exact)), 4: ("f4", close)}, ("groups=16,1,1",))


def float64(fused: bool = True) -> Case:
    a, b, c = (some_floats(name, "f8", 1e4) for name in ("a", "b", "c"))
    sums = a * b + c
    if fused:
        sums = np.array([float(Fraction(x) * Fraction(y) + Fraction(z)) for x, y, z in zip(a, b, c, strict=True)])
    exact = [
        *(a + b, a * b, sums, np.minimum(a, b), np.floor(a), np.trunc(b), np.rint(c), np.where(a < b, b, c)),
        *((a.astype("f4") * np.float32(0.5)).astype("f8"), np.trunc(b) + np.trunc(np.abs(c))),
    ]
    close = near([a / b, np.sqrt(np.abs(a)), 1 / np.sqrt(np.abs(c))], relative=4 * 2.0**-52)
    return Case([a, b, c, 10 * N * 8, 3 * N * 8], {3: ("f8", equal(exact)), 4: ("f8", close)}, ("groups=16,1,1",))


def float16(fused: bool = True) -> Case:
    a, b, c = (some_floats(name, "f2", 40) for name in ("a", "b", "c"))
    turned = [array.reshape(-1, 2)[:, ::-1].ravel() for array in (a, b, c)]
    x, y, z = (array.astype("f8") for array in (a, b, c))
    exact = [
        *(
            a + b,
            a - turned[1],
            a * b,
            (x * y + z).astype("f2") if fused else a * b + c,
            np.minimum(a, b),
            np.maximum(a, -turned[2]),
            np.floor(a),
        ),
        *((x * 0.5 + 1).astype("f2"), np.abs(c), np.trunc(a * np.float16(8)).astype("f2")),
    ]
    return Case([a, b, c, 10 * N * 2], {3: ("f2", equal(exact))}, ("groups=8,1,1",))


def integer64() -> Case:
    a, b = ((some_words(f"low {name}").astype("u8") << np.uint64(32)) ^ some_words(f"high {name}") for name in "ab")
    b >>= draws("shift").integers(0, 60, N, dtype=np.uint64)
    b[b == 0] = 3
    s, t, i = a.view("i8"), b.view("i8"), np.arange(N, dtype=np.uint64)
    by = i & np.uint64(63)
    quotient = np.array(
        [abs(int(x)) // abs(int(y)) * (1 if (x < 0) == (y < 0) else -1) for x, y in zip(s, t, strict=True)]
    )
    low = np.uint64(0xFFFF_FFFF)
    si, ti = ((array & low).astype("u4").view("i4").astype("i8") for array in (a, b))
    flags = (a < b).astype("u8") + (s < t).astype("u8") * np.uint64(2) + (a == b).astype("u8") * np.uint64(4)
    exact = [
        *(a + b, a - b, a * b, a // b, a % b, quotient.astype("i8").view("u8"), a << by, a >> by),
        *((s >> by.astype("i8")).view("u8"), a ^ b, np.minimum(s, t).view("u8"), (a & b) | (~a & i)),
        *((a & low) * (b & low), (si * ti).view("u8"), flags),
    ]
    return Case([a, b, 15 * N * 8], {2: ("u8", equal(exact))}, ("groups=16,1,1",))


def division() -> Case:
    a, b = some_words("dividend"), some_words("divisor")
    draws("order").shuffle(b)
    b[(b == 0) | ((a == 0x8000_0000) & (b == 0xFFFF_FFFF))] = 5
    s, t = a.view("i4").astype("i8"), b.view("i4").astype("i8")

    def signed(x: Array, y: Any) -> Array:  # rounds towards zero
        return np.asarray((np.abs(x) // np.abs(y) * np.sign(x) * np.sign(y)).astype("i4").view("u4"))

    remainder = (s - signed(s, t).view("i4") * t).astype("i4").view("u4")
    group = np.arange(N, dtype=np.uint32) // np.uint32(64) + np.uint32(3)
    exact = [a // b, a % b, signed(s, t), remainder, a // 7, a % 10, a // 641, signed(s, -7), signed(s, 16), a // group]
    return Case([a, b, 10 * N * 4], {2: ("u4", equal(exact))}, ("groups=16,1,1",))


def bits() -> Case:
    a, b = some_words("bits a"), some_words("bits b")
    draws("order").shuffle(b)
    offset, width = b & np.uint32(15), (b >> np.uint32(4) & np.uint32(15)) + np.uint32(1)
    length = np.vectorize(int.bit_length, otypes=["i4"])
    msb = (length(a.astype(object)) - 1).view("u4")
    signed_msb = (length(np.where(a >> np.uint32(31), ~a, a).astype(object)) - 1).view("u4")
    lsb = (length((a & -a.view("i4").view("u4")).astype(object)) - 1).view("u4")
    mask = ((np.uint64(1) << width.astype("u8")) - np.uint64(1)).astype("u4")
    field_ = a >> offset & mask
    sign = field_ >> (width - np.uint32(1)) & np.uint32(1)
    shift = b & np.uint32(31)
    halves = np.stack([(a >> np.uint32(21)).astype("f2"), -(b >> np.uint32(21)).astype("f2")], 1).view("u4").ravel()
    exact = [
        *(np.bitwise_count(a).astype("u4"), msb, signed_msb, lsb),
        np.array([int(f"{x:032b}"[::-1], 2) for x in a.tolist()], "u4"),
        *(field_, np.where(sign != 0, field_ | ~mask, field_), (a & ~(mask << offset)) | ((b & mask) << offset)),
        *((a + b) ^ (a - b), (a.astype("u8") + b >> np.uint64(32)).astype("u4") + 2 * (a < b).astype("u4")),
        *(a << shift | a >> (32 - shift & np.uint32(31)), (a.view("i4") >> shift.view("i4")).view("u4"), halves, a),
        (a & b) + (a ^ b) - (a | ~b),
    ]
    return Case([a, b, 15 * N * 4], {2: ("u4", equal(exact))}, ("groups=16,1,1",))


def functions() -> Case:
    a = some_floats("functions", "f4", 3.9)
    x = a.astype("f8")
    positive = np.abs(x)
    answers = [
        *(np.sin(x), np.cos(x), np.exp2(x), np.exp(x), np.log2(positive), np.log(positive), positive**1.75),
        *(np.arctan(x), np.tanh(x), np.arctan2(x, 0.75), np.arcsin(x / 4)),
    ]
    # The last four are made of others and of polynomials.
    allowed = [2.0**-20] * 7 + [
        2.0**-18,
        2.0**-16,
        2.0**-18,
        2.0**-10,
    ]  # relative and absolute

    def judge(answer: Array) -> str:
        parts = answer.reshape(len(answers), N)
        wrong = (
            near([wanted], limit, limit)(part) for part, wanted, limit in zip(parts, answers, allowed, strict=True)
        )
        return "; ".join(f"function {k}: {words}" for k, words in enumerate(wrong) if words)

    return Case([a, len(answers) * N * 4], {1: ("f4", judge)}, ("groups=16,1,1",))


def reduction() -> Case:
    groups = 24
    a = some_words("reduction", groups * 512)
    of_group = a.reshape(groups, 512).sum(1, dtype="u4")
    answer = [of_group.sum(keepdims=True, dtype="u4"), of_group]
    return Case([a, (groups + 1) * 4], {1: ("u4", equal(answer))}, (f"groups={groups},1,1",))


def transpose() -> Case:
    rows, columns = 48, 80
    a = np.arange(rows * columns, dtype=np.uint64) * np.uint64(0x9E37_79B9_7F4A_7C15)
    answer = equal(a.reshape(rows, columns).T)
    return Case([a, rows * columns * 8], {1: ("u8", answer)}, (f"groups={columns // 16},{rows // 16},1",))


def lookback() -> Case:
    groups = 40
    a = some_words("lookback", groups * 128)
    answer = equal(np.cumsum(a, dtype="u4"))
    return Case([a, groups * 128 * 4, (groups + 2) * 4], {1: ("u4", answer)}, (f"groups={groups},1,1",))


def subgroup(wave: int) -> Case:
    a = some_words(f"subgroup {wave}")
    a[3 * wave : 4 * wave] = 77  # a wave of equal values
    waves = a.reshape(-1, wave)
    lane = np.arange(wave)
    odd = (waves & 1).astype("u8")
    ballot = (odd << lane.astype("u8")).sum(1, dtype="u8")[:, None]
    highest = np.vectorize(int.bit_length, otypes=["i4"])(ballot.astype(object)) - 1

    def all_of(values: Array) -> Array:
        return np.broadcast_to(np.asarray(values, "u4").reshape(-1, 1), waves.shape)

    third = waves % 3 == 0
    thirds = np.where(third, waves, 0).sum(1, keepdims=True, dtype="u4") + (third.cumsum(1) == 1).astype("u4")
    quads = waves.reshape(-1, 4)
    quad = quads[:, [1, 0, 3, 2]] + 3 * quads[:, [3, 2, 1, 0]] + 5 * quads[:, [2, 2, 2, 2]]
    up = np.where(lane >= 3, np.roll(waves, 3, 1), 0).astype("u4")
    equal_all = (waves == waves[:, :1]).all(1)
    votes = (waves % 61 == 0).any(1).astype("u4") + 2 + 4 * equal_all.astype("u4")
    inclusive = waves.cumsum(1, dtype="u4")
    answers = [
        *(np.broadcast_to(wave * 256 + lane, waves.shape).astype("u4"), all_of(ballot & np.uint64(0xFFFF_FFFF))),
        all_of(ballot >> np.uint64(32)),
        (odd.cumsum(1) - odd).astype("u4") + all_of(highest.view("u4") * np.uint32(256)),
        *(all_of(waves.sum(1, dtype="u4")), inclusive, inclusive - waves, all_of(waves.min(1) ^ waves.max(1))),
        all_of(np.bitwise_and.reduce(waves | np.uint32(0xFFF0), 1) ^ np.bitwise_xor.reduce(waves, 1)),
        *(np.maximum.accumulate(waves.view("i4"), 1).view("u4"), waves[:, ::-1], waves[:, lane ^ 5], up),
        *(all_of(waves[:, 9] + waves[:, 0]), quad),
        np.repeat(waves.reshape(-1, 8).sum(1, dtype="u4"), 8),
        *(
            all_of(votes),
            np.where(third, thirds, 0).astype("u4"),
            all_of(np.multiply.reduce(waves | np.uint32(1), 1, dtype="u4")),
        ),
        all_of((waves & np.uint32(1023)).sum(1).astype("f4").view("u4")),
    ]
    return Case([a, len(answers) * N * 4], {1: ("u4", equal(answers))}, ("groups=8,1,1",))


def atomics() -> Case:
    groups = 12
    a = some_words("atomics", groups * 128)
    top = np.uint32(0xFFFF_FFFF)
    before = np.array([0, top, 0, top, 0, 0, 0, 0, 0x7FFF_FFFF, 0x8000_0000, 0, 0], "u4")
    wide, s = a.astype("u8"), a.view("i4")
    words = [
        *(
            a.sum(dtype="u4"),
            a.min(),
            a.max(),
            np.bitwise_and.reduce(a | np.uint32(0xFF)),
            np.bitwise_or.reduce(a & np.uint32(0xFF00FF)),
        ),
        *(
            np.bitwise_xor.reduce(a),
            np.uint32(a.size),
            (a & np.uint32(15)).sum(dtype="u4"),
            s.min().view("u4"),
            s.max().view("u4"),
        ),
        *((a & np.uint32(7)).sum().astype("f4").view("u4"), np.uint32(0)),
    ]
    wides = [
        *(
            (wide << np.uint64(20)).sum(dtype="u8"),
            (wide * wide).max(),
            np.bitwise_or.reduce(np.uint64(1) << (wide & np.uint64(63))),
        ),
        np.uint64(a.size * 0x1_0000_0001),
    ]

    def tickets(answer: Array) -> str:
        return equal(np.arange(a.size, dtype="u4"))(np.sort(answer))

    judges = {
        1: ("u4", equal(np.array(words, "u4"))),
        2: ("u8", equal(np.array(wides, "u8"))),
        3: ("u4", tickets),
        4: ("u4", equal(np.bincount(a & np.uint32(63), minlength=64).astype("u4"))),
    }
    return Case([a, before, 4 * 8, a.size * 4, 64 * 4], judges, (f"groups={groups},1,1",))


def grid(x: int, y: int, z: int) -> Case:
    size = np.array([z * 2, y * 8, x * 4])
    linear = np.arange(size.prod(), dtype=np.uint32)
    table = np.bincount(linear * np.uint32(2654435761) >> np.uint32(22), weights=linear, minlength=1024)
    last = linear.reshape(size)[1::2, 7::8, 3::4] ^ np.uint32(0x5A5A_5A5A)
    judges = {0: ("u4", equal(table.astype("u8").astype("u4"))), 1: ("u4", equal(last))}
    return Case([1024 * 4, x * y * z * 4], judges, (f"groups={x},{y},{z}",))


def chase() -> Case:
    order = draws("chase").permutation(N).astype("u4")
    at, answer, hops = np.arange(N), np.zeros(N, "u4"), 40
    for hop in range(hops + 7):
        going = hop < hops + (np.arange(N) & 7)
        answer = np.where(going, answer * np.uint32(31) + order[at] * np.uint32(2654435761), answer)
        at = order[at]
    options = ("groups=16,1,1", "steps=2", f"push=address:0,step,u32:{hops}")
    return Case([N * 16, order, N * 4], {2: ("u4", equal(answer))}, options)


def constants() -> Case:
    size, groups, rounds, base = 96, 7, 5, 0xFFFF_FF00
    n, table = size * groups, some_words("table", 64)
    i = np.arange(n, dtype=np.uint32)
    x = i + np.uint32(base)
    for _ in range(rounds):
        x = x * np.uint32(1664525) + table[(x >> np.uint32(4) & np.uint32(15)) * 4 + (x & np.uint32(3))]
    wide, far = 0x0123_4567_89AB_CDEF, list(range(100, 108))
    answers = [
        *(
            x[::-1],
            (i.astype("f4") * np.float32(1.375)).astype("u4"),
            (np.uint64(wide) >> (i & np.uint32(31)).astype("u8")).astype("u4"),
        ),
        *((i * 1000.0625).astype("u4"), np.array(far, "u4")[i // np.uint32(size)] + np.uint32(size)),
    ]
    push = f"push=u32:{base},f32:1.375,u64:{wide},f64:1000.0625," + ",".join(f"u32:{word}" for word in far)
    options = (f"groups={groups},1,1", f"spec=0:{size},1:{rounds},2:1", push)
    return Case([table, 5 * n * 4], {1: ("u4", equal(answers))}, options, uniform=0)


def small() -> Case:
    random = draws("small")
    a, b, quads = (
        random.integers(0, 256, N, "u1"),
        random.integers(-32768, 32768, N, "i2"),
        random.integers(0, 256, (N, 4), "u1"),
    )
    i = np.arange(N)
    mirrored = a.reshape(-1, 64)[:, ::-1].ravel()
    wide, signed = b.astype("i4"), a.view("i1")
    quotient = (b.view("u2") // (a.astype("u2") + np.uint16(1))).view("i2")
    halves = [
        *(
            (b * np.int16(3) + signed).astype("i2"),
            np.clip(wide * 2, -32768, 32767).astype("i2"),
            b >> (i & 15).astype("i2"),
        ),
        np.maximum(b, a.astype("i2")) ^ quotient,
    ]
    added = np.stack([np.full(N, 1, "u1"), np.full(N, 2, "u1"), np.full(N, 3, "u1"), a], 1)
    judges = {
        2: ("u1", equal([np.minimum(a.astype("i4") + mirrored, 255).astype("u1"), a * np.uint8(7) - i.astype("u1")])),
        3: ("i2", equal(halves)),
        4: ("i4", equal(signed.astype("i4") * wide)),
        5: ("u1", equal(quads[:, ::-1] + added)),
    }
    return Case([a, b, 2 * N, 8 * N, 4 * N, quads], judges, ("groups=16,1,1",))


def collatz() -> Case:
    def steps(x: int) -> int:
        count = 0
        while x != 1:
            x = 3 * x + 1 if x & 1 else x >> 1
            count += 1
        return count

    answer = np.array([steps(i + 1) for i in range(N)], "u4")
    return Case([N * 4], {0: ("u4", equal(answer))}, ("groups=16,1,1",))


def _interpret(program: list[int], i: int) -> int:
    """Do what `machine.comp` does for one invocation."""
    word32 = 0xFFFF_FFFF
    acc, other, fuel, pc = i, ~i & word32, 200, 0
    while pc < len(program):
        op, operand = program[pc] & 15, program[pc] >> 8
        if fuel == 0:
            return acc ^ 0xDEAD
        fuel -= 1
        pc += 1
        if op == 0:
            acc += operand
        elif op == 1:
            acc *= operand | 1
        elif op == 2:
            acc ^= acc >> (operand & 31)
        elif op == 3:
            acc, other = other, acc
        elif op == 4:
            for k in range(operand & 7, 0, -1):
                if acc & 3 == 3:
                    break
                acc = (acc + other + k if acc & 1 else acc * 5 + 1) & word32
        elif op == 5:
            if acc > other:
                return acc - other
        elif op == 6:
            pc = operand % len(program) if acc & 1 else pc
        elif op in (7, 8):
            acc = (int(f"{acc:032b}"[::-1], 2) if op == 7 else acc) - other
        else:
            other = (other * 3 + op) & word32
        acc &= word32
    return (acc + other) & word32


def machine() -> Case:
    count, length = 512, 24
    programs = some_words("machine", count * length).reshape(count, length)
    answer = np.array([_interpret(program, i) for i, program in enumerate(programs.tolist())], "u4")
    return Case([programs, count * 4], {1: ("u4", equal(answer))}, (f"groups={count // 64},1,1", f"spec=0:{length}"))


def matmul() -> Case:
    M, N_, K = 64, 96, 80
    random = draws("matmul")
    a, b = random.integers(-50, 50, (M, K)).astype("f4"), random.integers(-50, 50, (K, N_)).astype("f4")
    options = (f"groups={N_ // 16},{M // 16},1", f"spec=0:{K}")
    return Case([a, b, M * N_ * 4], {2: ("f4", equal(a @ b))}, options)


def matrix16(wave: int, shape: tuple[int, int, int] = (16, 16, 16)) -> Case:
    M, N_, K = 32, 48, 64
    random = draws("matrix16")
    a, b = random.integers(-30, 30, (M, K)).astype("f2"), random.integers(-30, 30, (K, N_)).astype("f2")
    c = random.integers(-1000, 1000, (M, N_)).astype("f4")
    # Whole numbers: no order of the sum causes rounding.
    answer = (a.astype("i8") @ b.astype("i8") + c.astype("i8")).astype("f4")
    rows, columns, depth = shape
    options = (f"groups={N_ // columns},{M // rows},1", f"spec=0:{wave},1:{K},2:{rows},3:{columns},4:{depth}")
    return Case([a, b, c], {2: ("f4", equal(answer))}, options)


def matrix8(wave: int, shape: tuple[int, int, int] = (16, 16, 16)) -> Case:
    M, N_, K = 48, 32, 64
    random = draws("matrix8")
    a, b = random.integers(-128, 128, (M, K), "i1"), random.integers(-128, 128, (N_, K), "i1")
    answer = a.astype("i4") @ b.astype("i4").T
    rows, columns, depth = shape
    options = (f"groups={N_ // columns},{M // rows},1", f"spec=0:{wave},1:{K},2:{rows},3:{columns},4:{depth}")
    return Case([a, b, M * N_ * 4], {2: ("i4", equal(answer))}, options)


def dot() -> Case:
    a, b = some_words("dot a"), some_words("dot b")
    draws("order").shuffle(b)
    u, v = (array.view("u1").reshape(N, 4).astype("i8") for array in (a, b))
    s, t = (array.view("i1").reshape(N, 4).astype("i8") for array in (a, b))
    unsigned, signed = (u * v).sum(1), (s * t).sum(1)
    answers = [
        *(
            unsigned.astype("u4"),
            signed.astype("i4").view("u4"),
            np.minimum(unsigned + 0xFFFF_8000, 0xFFFF_FFFF).astype("u4"),
        ),
        np.minimum(signed + 0x7FFF_F000, 0x7FFF_FFFF).astype("i4").view("u4"),
    ]
    return Case([a, b, 4 * N * 4], {2: ("u4", equal(answers))}, ("groups=16,1,1",))


def sha256() -> Case:
    count = 256
    messages = draws("sha256").integers(0, 256, (count, 52), "u1")
    digests = b"".join(hashlib.sha256(message.tobytes()).digest() for message in messages)
    return Case(
        [messages, count * 32], {1: ("u1", equal(np.frombuffer(digests, "u1")))}, (f"groups={count // 64},1,1",)
    )


def mandelbrot() -> Case:
    width, height, most = 96, 64, 200
    left, top, pitch = np.float32(-2.0), np.float32(-1.0), np.float32(1 / 32)
    cx = np.arange(width).astype("f4")[None, :] * pitch + left + np.zeros((height, 1), "f4")
    cy = np.arange(height).astype("f4")[:, None] * pitch + top + np.zeros((1, width), "f4")
    x, y, count, inside = np.zeros_like(cx), np.zeros_like(cy), np.zeros(cx.shape, "u4"), np.ones(cx.shape, bool)
    for _ in range(most):
        xx, yy, xy = x * x, y * y, x * y
        inside &= ~(xx + yy > 4)
        x, y = np.where(inside, xx - yy + cx, x), np.where(inside, xy + xy + cy, y)
        count += inside
    push = f"push=f32:{left},f32:{top},f32:{pitch},u32:{most}"
    return Case([width * height * 4], {0: ("u4", equal(count))}, (f"groups={width // 8},{height // 8},1", push))


def bitonic() -> Case:
    stages = 12
    a = some_words("bitonic", 1 << stages).view("i4")
    options = (f"groups={(1 << stages) // 256},1,1", f"steps={stages * (stages + 1) // 2}", "push=step")
    return Case([a], {0: ("i4", equal(np.sort(a)))}, options)


def nbody() -> Case:
    count, steps, dt = 256, 4, 1 / 64
    random = draws("nbody")
    places = random.uniform(-1, 1, (count, 4)).astype("f4")
    places[:, 3] = random.uniform(0.01, 0.1, count)
    speeds = random.uniform(-0.5, 0.5, (count, 4)).astype("f4")
    at, speed, mass = places[:, :3].astype("f8"), speeds[:, :3].astype("f8"), places[:, 3].astype("f8")
    halves = [at, at]
    for step in range(steps):
        way = at[None] - at[:, None]
        strength = mass / ((way**2).sum(2) + 0.01) ** 1.5
        speed = speed + (way * strength[:, :, None]).sum(1) * dt
        at = at + speed * dt
        halves[1 - step % 2] = at
    wanted = np.concatenate([np.concatenate([half, mass[:, None]], 1) for half in halves])
    options = (f"groups={count // 64},1,1", f"steps={steps}", f"push=step,f32:{dt}")
    both = np.concatenate([places, np.zeros_like(places)])
    return Case([both, speeds], {0: ("f4", near([wanted.ravel()], 1e-5, 1e-5))}, options)


def scratch() -> Case:
    count, length = 128, 80
    a = some_words("scratch", count * length).reshape(count, length)
    return Case([a, a.nbytes], {1: ("u4", equal(np.sort(a, 1)))}, (f"groups={count // 64},1,1", f"spec=0:{length}"))


def pressure() -> Case:
    count, n = 240, 2048
    a, i = some_words("pressure", n), np.arange(n)
    v = [a[(i + k * 97) % n] * np.uint32(2 * k + 1) for k in range(count)]
    for _ in range(2):
        for k in range(count):
            v[k] = v[k] + (v[(k * 7 + 3) % count] ^ a)
    answer = np.zeros(n, "u4")
    for k in range(count):
        answer = answer * np.uint32(31) + v[k]
    return Case([a, n * 4], {1: ("u4", equal(answer))}, (f"groups={n // 1024},1,1",))


ROWS = (
    Shader("float32", "f32 arithmetic", float32),
    Shader("float64", "f64 arithmetic", float64, (COMPUTE,)),
    Shader("float16", "packed f16 arithmetic", float16),
    Shader("integer64", "64-bit integers", integer64, (COMPUTE,)),
    Shader("division", "integer division", division),
    Shader("bits", "bit operations", bits, (COMPUTE,)),
    Shader("functions", "transcendental functions", functions),
    Shader("reduction", "a tree in shared memory", reduction, (COMPUTE,)),
    Shader("transpose", "tiles in shared memory", transpose),
    Shader("lookback", "workgroups that wait for each other", lookback, (COMPUTE,)),
    Shader("subgroup", "what lanes tell each other", subgroup, ("wave=32",), {"wave": 32}),
    Shader("subgroup", "the same in waves of 64", subgroup, ("wave=64", COMPUTE), {"wave": 64}),
    Shader("atomics", "atomics on memory and on shared memory", atomics),
    Shader("grid", "half a million invocations in three dimensions", grid, (), {"x": 37, "y": 19, "z": 11}),
    Shader("grid", "a grid that the device reads from memory", grid, ("indirect=1",), {"x": 5, "y": 7, "z": 3}),
    Shader("grid", "the same on a compute queue", grid, ("indirect=1", COMPUTE), {"x": 3, "y": 2, "z": 9}),
    Shader("chase", "a linked list by device addresses", chase),
    Shader("constants", "specialisation, push constants, a uniform buffer", constants, (COMPUTE,)),
    Shader("small", "elements of 8 and 16 bits", small),
    Shader("collatz", "loops that end apart", collatz, (COMPUTE,)),
    Shader("machine", "control flow that parts in every way", machine),
    Shader("matmul", "a matrix product by tiles", matmul, (COMPUTE,)),
    Shader("matrix16", "matrix instructions, f16", matrix16, ("wave=32",), {"wave": 32}),
    Shader("matrix16", "matrix instructions, f16, waves of 64", matrix16, ("wave=64", COMPUTE), {"wave": 64}),
    Shader("matrix8", "matrix instructions, i8", matrix8, ("wave=32", COMPUTE), {"wave": 32}),
    Shader("dot", "dot products of bytes", dot),
    Shader("sha256", "SHA-256", sha256, (COMPUTE,)),
    Shader("mandelbrot", "the Mandelbrot set", mandelbrot),
    Shader("bitonic", "a sort in 78 dispatches", bitonic),
    Shader("nbody", "bodies that pull each other", nbody, (COMPUTE,)),
    Shader("scratch", "a heap sort in scratch memory", scratch, uses="Scratch size"),
    Shader("pressure", "registers spilled to scratch memory", pressure, (COMPUTE,), uses="Spilled VGPRs"),
)
