"""Small programs: sorts, searches, codes, numbers, pictures."""

from __future__ import annotations

import hashlib
import zlib
from math import gcd as divisor
from math import pi, sqrt
from statistics import NormalDist

import numpy as np
from vulkan.case import Array, Case, N, Shader, draws, equal, near, some_words

PLAIN = ("groups=16,1,1",)


def gcd() -> Case:
    a, b = some_words("gcd"), some_words("gcd b")
    draws("order").shuffle(b)
    answer = []
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        steps, p, q = 0, x, y
        while q:
            p, q, steps = q, p % q, steps + 1
        assert p == divisor(x, y)
        answer.append(p ^ steps << 24)
    return Case([a, b, N * 4], {2: ("u4", equal(np.array(answer, "u8").astype("u4")))}, PLAIN)


def queens() -> Case:
    # the solutions for eight queens
    return Case([4], {0: ("u4", equal(np.array([92], "u4")))}, ("groups=1,1,1",))


def life() -> Case:
    steps = 16
    cells = (draws("life").random((48, 64)) < 0.35).astype("u4")
    halves = [cells, cells]
    for step in range(steps):
        now = halves[step & 1]
        around = sum(np.roll(now, (y, x), (0, 1)) for y in (-1, 0, 1) for x in (-1, 0, 1) if x or y)
        halves[1 - (step & 1)] = ((around == 3) | ((around == 2) & (now == 1))).astype("u4")
    both = np.stack([cells, np.zeros_like(cells)])
    return Case([both], {0: ("u4", equal(halves))}, ("groups=8,6,1", f"steps={steps}", "push=step"))


def fft() -> Case:
    groups = 4
    a = draws("fft").uniform(-1, 1, (groups, 256, 2)).astype("f4")
    wanted = np.fft.fft(a[..., 0].astype("f8") + 1j * a[..., 1])
    judge = near([np.stack([wanted.real, wanted.imag], 2).ravel()], 1e-5, 1e-4)
    return Case([a, a.nbytes], {1: ("f4", judge)}, (f"groups={groups},1,1",))


def crc32() -> Case:
    a = some_words("crc32", 256 * 8).reshape(256, 8)
    answer = np.array([zlib.crc32(row.tobytes()) for row in a], "u4")
    return Case([a, 256 * 4], {1: ("u4", equal(answer))}, ("groups=1,1,1",))


def chacha() -> Case:
    """The key of RFC 8439, 2.3.2, and its nonce: block 1 is the one printed there."""
    key, count = np.frombuffer(bytes(range(32)), "u4"), 128
    state = np.zeros((16, count), "u4")
    state[:4] = np.array([0x6170_7865, 0x3320_646E, 0x7962_2D32, 0x6B20_6574], "u4")[:, None]
    state[4:12], state[12] = key[:, None], np.arange(count)
    state[13:15] = np.array([0x0900_0000, 0x4A00_0000], "u4")[:, None]
    s = state.copy()

    def turn(x: Array, by: int) -> Array:
        return x << np.uint32(by) | x >> np.uint32(32 - by)

    for k in range(20):
        for j in range(4):
            a, b, c, d = ((j + (k & 1) * way) % 4 + 4 * way for way in range(4))
            s[a] += s[b]
            s[d] = turn(s[d] ^ s[a], 16)
            s[c] += s[d]
            s[b] = turn(s[b] ^ s[c], 12)
            s[a] += s[b]
            s[d] = turn(s[d] ^ s[a], 8)
            s[c] += s[d]
            s[b] = turn(s[b] ^ s[c], 7)
    answer = (s + state).T
    # RFC 8439, 2.3.2
    assert answer[1][:4].tolist() == [0xE4E7_F110, 0x1559_3BD1, 0x1FDD_0F50, 0xC471_20A3]
    return Case([key, count * 64], {1: ("u4", equal(answer))}, (f"groups={count // 64},1,1",))


def edits() -> Case:
    groups, length = 12, 32
    draw = draws("edits")
    a, b = (draw.integers(0, 5, (groups, length)).astype("u4") for _ in "ab")
    answer = []
    for x, y in zip(a.tolist(), b.tolist(), strict=True):
        row = list(range(length + 1))
        for i, mine in enumerate(x, 1):
            last, row[0] = row[0], i
            for j, other in enumerate(y, 1):
                last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (mine != other))
        answer.append(row[length])
    return Case([a, b, groups * 4], {2: ("u4", equal(np.array(answer, "u4")))}, (f"groups={groups},1,1",))


def paths() -> Case:
    size = 40
    draw = draws("paths")
    ways = np.where(draw.random((size, size)) < 0.1, draw.integers(1, 1000, (size, size)), 1 << 24).astype("u4")
    np.fill_diagonal(ways, 0)
    answer = ways.copy()
    for k in range(size):
        answer = np.minimum(answer, answer[:, k : k + 1] + answer[k : k + 1])
    return Case([ways], {0: ("u4", equal(answer))}, ("groups=5,5,1", f"steps={size}", "push=step"))


def radix() -> Case:
    a = some_words("radix").reshape(4, 256)
    return Case([a, a.nbytes], {1: ("u4", equal(np.sort(a, 1)))}, ("groups=4,1,1",))


def bignum() -> Case:
    count = 256
    a, b = some_words("bignum", count * 8), some_words("bignum b", count * 8)
    products = b"".join(
        (int.from_bytes(x.tobytes(), "little") * int.from_bytes(y.tobytes(), "little")).to_bytes(64, "little")
        for x, y in zip(a.reshape(-1, 8), b.reshape(-1, 8), strict=True)
    )
    return Case([a, b, count * 64], {2: ("u4", equal(np.frombuffer(products, "u4")))}, (f"groups={count // 64},1,1",))


def power() -> Case:
    prime, count = (1 << 61) - 1, 256
    a = draws("power").integers(0, prime, count, dtype="u8")
    answer = np.array([pow(x, i + 3, prime) for i, x in enumerate(a.tolist())], "u8")
    return Case([a, count * 8], {1: ("u8", equal(answer))}, (f"groups={count // 64},1,1",))


def morton() -> Case:
    a = some_words("morton")
    spread = sum((a >> np.uint32(k) & np.uint32(1)) << np.uint32(2 * k if k < 16 else 2 * k - 31) for k in range(32))
    apart = sum((a >> np.uint32(k) & np.uint32(1)) << np.uint32(k // 2 + 16 * (k & 1)) for k in range(32))
    return Case([a, 2 * N * 4], {1: ("u4", equal([spread, apart]))}, PLAIN)


def quick() -> Case:
    a = some_words("quick", 128 * 24).reshape(128, 24)
    return Case([a], {0: ("u4", equal(np.sort(a, 1)))}, ("groups=4,1,1",))


def convolution() -> Case:
    width, height = 70, 45
    a = draws("convolution").integers(0, 256, (height, width), "u1")
    p = np.pad(a.astype("i4"), 1, mode="edge")
    x = sum(w * (p[1 + k : height + 1 + k, 2:] - p[1 + k : height + 1 + k, :-2]) for k, w in ((-1, 1), (0, 2), (1, 1)))
    y = sum(w * (p[2:, 1 + k : width + 1 + k] - p[:-2, 1 + k : width + 1 + k]) for k, w in ((-1, 1), (0, 2), (1, 1)))
    answer = np.minimum((np.abs(x) + np.abs(y)) // 4, 255).astype("u1")
    options = (f"groups={-(-width // 16)},{-(-height // 16)},1", f"push=u32:{width},u32:{height}")
    pad = -a.size % 4
    judge = ("u1", lambda got: equal(answer)(got[: a.size]))
    return Case([np.pad(a.ravel(), (0, pad)), a.size + pad], {1: judge}, options)


def nearest() -> Case:
    draw = draws("nearest")
    a, points = draw.integers(-900, 900, (N, 2)).astype("i4"), np.zeros((24, 4), "i4")
    points[:, :2] = draw.integers(-900, 900, (24, 2))
    far = ((a[:, None] - points[None, :, :2]) ** 2).sum(2)
    chosen, best = far.argmin(1), far.min(1)
    sums = np.zeros((24, 4), "i4")
    np.add.at(sums, chosen, np.concatenate([a, np.ones((N, 1), "i4"), np.zeros((N, 1), "i4")], 1))
    np.maximum.at(sums[:, 3], chosen, best)
    return Case([a, points, sums.nbytes], {2: ("i4", equal(sums))}, PLAIN, uniform=1)


def quantised() -> Case:
    rows, blocks = 48, 8
    draw = draws("quantised")
    block = np.dtype([("scale", "f2"), ("quants", "u1", 16)])
    a = np.zeros((rows, blocks), block)
    a["scale"], a["quants"] = draw.uniform(0.01, 0.1, a.shape), draw.integers(0, 256, (*a.shape, 16))
    b = draw.uniform(-1, 1, blocks * 32).astype("f4")
    numbers = np.concatenate([a["quants"] & 15, a["quants"] >> 4], 2).astype("f8") - 8
    answer = (numbers * a["scale"].astype("f8")[..., None]).reshape(rows, -1) @ b.astype("f8")
    return Case([a.view("u1"), b, rows * 4], {2: ("f4", near([answer], 1e-4, 1e-4))}, (f"groups={rows},1,1",))


def options() -> Case:
    draw = draws("options")
    ranges = ((20, 100), (20, 100), (0.2, 3), (0.1, 0.6))
    a = np.stack([draw.uniform(low, high, N) for low, high in ranges], 1).astype("f4")
    normal, rate, answers = NormalDist().cdf, 0.02, []
    for price, strike, years, spread in a.astype("f8").tolist():
        d1 = (np.log(price / strike) + (rate + spread * spread / 2) * years) / (spread * sqrt(years))
        later = strike * np.exp(-rate * years)
        call = price * normal(d1) - later * normal(d1 - spread * sqrt(years))
        answers += [call, call + later - price]
    return Case([a, N * 8], {1: ("f4", near([np.array(answers)], 1e-4, 1e-3))}, PLAIN)


def md5() -> Case:
    messages = draws("md5").integers(0, 256, (128, 20), "u1")
    sines = (np.abs(np.sin(np.arange(1, 65, dtype="f8"))) * 2.0**32).astype("u4")
    digests = b"".join(hashlib.md5(message.tobytes()).digest() for message in messages)
    return Case([messages, sines, 128 * 16], {2: ("u1", equal(np.frombuffer(digests, "u1")))}, ("groups=2,1,1",))


def cosines() -> Case:
    groups = 6
    a = draws("cosines").uniform(-1, 1, (groups, 8, 8)).astype("f4")
    k = np.arange(8)
    matrix = np.cos((2 * k[None] + 1) * k[:, None] * pi / 16)
    answer = matrix @ a.astype("f8") @ matrix.T
    return Case([a, a.nbytes], {1: ("f4", near([answer.ravel()], 1e-5, 1e-4))}, (f"groups={groups},1,1",))


def primes() -> Case:
    limit = 4096
    whole = np.array([n > 1 and all(n % p for p in range(2, int(sqrt(n)) + 1)) for n in range(limit)])
    answer = np.packbits(whole, bitorder="little").view("u4")
    return Case([limit // 8], {0: ("u4", equal(answer))}, ("groups=1,1,1",))


ROWS = (
    Shader("gcd", "Euclid's algorithm", gcd),
    Shader("queens", "a search with a stack", queens),
    Shader("life", "16 generations, each a dispatch", life),
    Shader("fft", "Fourier transforms", fft),
    Shader("crc32", "a checksum by a table", crc32),
    Shader("chacha", "a stream cipher", chacha),
    Shader("edits", "edit distances along diagonals", edits),
    Shader("paths", "shortest paths in 40 dispatches", paths),
    Shader("radix", "a radix sort by ballots", radix),
    Shader("bignum", "products of 256 bits", bignum),
    Shader("power", "powers modulo a prime", power),
    Shader("morton", "interleaved bits", morton),
    Shader("quick", "quicksort of private arrays", quick),
    Shader("convolution", "a filtered picture", convolution),
    Shader("nearest", "nearest points and sums", nearest),
    Shader("quantised", "a matrix of 4-bit numbers", quantised),
    Shader("options", "prices of options", options),
    Shader("md5", "MD5", md5),
    Shader("cosines", "cosine transforms", cosines),
    Shader("primes", "a sieve in shared memory", primes),
)
