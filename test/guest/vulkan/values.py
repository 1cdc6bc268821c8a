"""Numbers of every width: conversions, roundings, vectors of narrow and of wide numbers."""

from __future__ import annotations

import numpy as np
from vulkan.case import Array, Case, N, Shader, draws, equal, near, some_floats, some_words

PLAIN = ("groups=16,1,1",)


def convert() -> Case:
    a, b = some_words("convert"), some_floats("convert", "f4", 30000)
    wide, s = b.astype("f8"), a.view("i4")
    halves = np.stack([(s >> 20).astype("f2"), (a & np.uint32(2047)).astype("f2")], 1).view("u4").ravel()
    upper = (a & np.uint32(0x3FFF_3FFF)).view("f2").reshape(-1, 2)[:, 1]
    short = a.astype("u2").view("i2").astype("i4").view("u4")
    sums = (b * np.float32(65536)).astype("i8").astype("u4")
    answers = [
        *(a.astype("f4").view("u4"), s.astype("f4").view("u4"), b.astype("i4").view("u4"), np.abs(b).astype("u4")),
        *(halves, upper.astype("f4").view("u4"), a.astype("u1").view("i1").astype("i4").view("u4") ^ short << 8),
        ((a >> np.uint32(8) & np.uint32(255)).astype("f4") + (a >> np.uint32(16)).astype("f4")).view("u4"),
        *((a * 0.125).astype("f4").view("u4"), (wide * 1000).astype("i4").view("u4")),
        sums + ((np.abs(wide) * 2.0**40).astype("u8") >> np.uint64(32)).astype("u4"),
        (s.astype("i8") * 3).astype("f4").view("u4"),
    ]
    return Case([a, b, 12 * N * 4], {2: ("u4", equal(answers))}, PLAIN)


def special() -> Case:
    odd = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 0.5, -0.5, 1.5, 2.5, -2.5, 8388607.5, -1e30, 1e-20], "f4")
    draw = draws("special")
    a, b = (np.where(draw.random(N) < 0.7, draw.choice(odd, N), some_floats(name, "f4", 50)) for name in "ab")
    tests = (a < b, a <= b, a > b, a >= b, a == b, a != b)
    kinds = (np.isnan(a), np.isinf(a), np.isnan(b), np.isinf(b))
    chosen = np.where(a < b, a, np.float32(2)).astype("f4").view("u4") ^ (~(a < b)).astype("u4")
    answers = [
        *(sum(test.astype("u4") << np.uint32(k) for k, test in enumerate(part)) for part in (tests, kinds)),
        *(function(a).view("u4") for function in (np.floor, np.ceil, np.trunc, np.rint)),
        *((-np.abs(a)).view("u4"), chosen),
    ]

    def judge(answer: Array) -> str:
        # bits of what is no number may be others
        def plain(array: Array) -> Array:
            parts = array.reshape(8, N).copy()
            parts[2:7][:, np.isnan(a)] = 0
            return parts.ravel()

        return equal(plain(np.concatenate(answers)))(plain(answer))

    return Case([a, b, 8 * N * 4], {2: ("u4", judge)}, PLAIN)


def halves() -> Case:
    draw = draws("halves")
    x, y = (draw.integers(-7, 8, (N, 4)).astype("f2") for _ in "xy")
    i = np.arange(N)
    first = np.stack(
        [(x * y).sum(1), (x[:, :2] * y[:, 2:]).sum(1), x[:, 0] * y[:, 1] - x[:, 1] * y[:, 0], np.maximum(x, y)[:, 3]], 1
    )
    loop = sum(y[(i + k) % N] for k in range(8)) * x[:, ::-1]
    last = np.where(x < y, y, x) - np.clip(x, -2, 3) * np.sign(y)
    answers = [array.astype("f2") for array in (first, loop, last)]
    # a zero's sign depends on the order of a sum
    return Case([x, y, 3 * N * 8], {2: ("f2", near([array.astype("f4").ravel() for array in answers], 0))}, PLAIN)


def doubles() -> Case:
    x, b = some_floats("doubles", "f8", 1000), draws("doubles").integers(-(1 << 50), 1 << 50, N)
    whole = np.floor(x)
    exact = [
        *(whole**3 - 7 * whole + 3, b.astype("f8") + b.astype("u4").astype("f8"), np.trunc(x * 1024)),
        np.ceil(x) + np.abs(x) * 2 + np.sign(x),
        np.where(x < 0, np.maximum(x, -1), x.astype("f4").view("u4").astype("f8")),
    ]
    close = near([np.sqrt(np.abs(x)) + np.sqrt(3), 1 / np.sqrt(np.abs(x) + 1) / (x * x + 1)], 2.0**-48)
    return Case([x, b, 5 * N * 8, 2 * N * 8], {2: ("f8", equal(exact)), 3: ("f8", close)}, PLAIN)


def bytes_() -> Case:
    x = draws("bytes").integers(0, 256, (N, 4), "u1")
    y = draws("bytes y").integers(-128, 128, (N, 4), "i1")
    unsigned = [
        x * x[:, [3, 0, 1, 2]] + y.view("u1"),
        np.minimum(x.astype("u4") + x[:, [1, 2, 3, 0]], 255).astype("u1"),
        x >> 3 | x << 5,
    ]
    signed = [
        np.maximum(y, y[:, [1, 0, 3, 2]]) - np.minimum(y, x.view("i1")),
        np.clip(y.astype("i4") * 3, -128, 127).astype("i1"),
        y >> np.array([0, 1, 2, 7], "i1"),
    ]
    judges = {2: ("u1", equal(unsigned)), 3: ("i1", equal(signed))}
    return Case([x, y, 3 * N * 4, 3 * N * 4], judges, PLAIN)


def shorts() -> Case:
    x = draws("shorts").integers(0, 65536, (N, 2), "u2")
    y = draws("shorts y").integers(-32768, 32768, (N, 2), "i2")
    line = x.sum(1, dtype="u2").reshape(-1, 64)
    lane = np.arange(64)
    unsigned = [
        x * x[:, ::-1] + y.view("u2"),
        x // np.uint16(10) + x[:, ::-1] % np.uint16(7),
        np.stack([line[:, lane ^ 1], line[:, ::-1]], 2),
    ]
    signed = [
        (y >> np.tile(lane & 15, N // 64).astype("i2")[:, None]) - y[:, ::-1],
        np.maximum(y, np.int16(-100)) * np.int16(-3),
    ]
    judges = {2: ("u2", equal(unsigned)), 3: ("i2", equal(signed))}
    return Case([x, y, 3 * N * 4, 2 * N * 4], judges, PLAIN)


def generator() -> Case:
    def u8(value: int) -> np.uint64:
        return np.uint64(value)

    a = (some_words("generator").astype("u8") << u8(32)) ^ some_words("generator low")
    state, mixed = a, np.zeros(N, "u8")
    for k in range(12):
        state = state + u8(0x9E37_79B9_7F4A_7C15)
        z = (state ^ state >> u8(30)) * u8(0xBF58_476D_1CE4_E5B9)
        z = (z ^ z >> u8(27)) * u8(0x94D0_49BB_1331_11EB)
        by = k * 5 + 1
        mixed = (mixed << u8(by) | mixed >> u8(64 - by)) ^ z ^ z >> u8(31)
    return Case([a, N * 8], {1: ("u8", equal(mixed))}, PLAIN)


ROWS = (
    Shader("convert", "conversions of all widths", convert),
    Shader("special", "infinities, zeros, what is no number", special),
    Shader("halves", "f16 vectors and loops", halves),
    Shader("doubles", "f64 polynomials, roots, conversions", doubles),
    Shader("bytes", "vectors of 8 bits", bytes_),
    Shader("shorts", "integers of 16 bits", shorts),
    Shader("generator", "64-bit random numbers", generator),
)
