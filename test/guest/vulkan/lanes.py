"""What invocations tell each other: in subgroups, in shared memory, by atomics."""

from __future__ import annotations

import numpy as np
from vulkan.case import Array, Case, N, Shader, draws, equal, some_words

PLAIN = ("groups=16,1,1",)
WAVE = 32


def _all_of(values: Array) -> Array:
    """Return the value of each wave, for all of its lanes."""
    return np.repeat(values, WAVE)


def lanes64() -> Case:
    a = (some_words("lanes64").astype("u8") << np.uint64(32)) ^ some_words("lanes64 low")
    waves = a.reshape(-1, WAVE)
    small = (waves & np.uint64(0xFFFFF)).astype("f8")
    answers = [
        *(_all_of(waves.sum(1, dtype="u8")), np.maximum.accumulate(waves, 1)),
        *(waves[:, np.arange(WAVE) ^ 17] ^ waves[:, 30:31], _all_of(small.min(1)).view("u8")),
    ]
    return Case([a, 4 * N * 8], {1: ("u8", equal(answers))}, PLAIN)


def lanesf() -> Case:
    a = draws("lanesf").integers(-40, 40, N).astype("f4")
    waves, i = a.reshape(-1, WAVE), np.arange(WAVE)

    def clusters(size: int) -> Array:
        return a.reshape(-1, size)

    answers = [
        waves.cumsum(1) + waves.max(1, keepdims=True),
        np.repeat(clusters(4).min(1), 4) + np.repeat(clusters(16).max(1), 16),
        *(_all_of(waves.sum(1)), waves[:, i * 5 % WAVE]),
    ]
    # a zero's sign depends on the order of a sum
    return Case([a, 4 * N * 4], {1: ("f4", lambda answer: equal(answers)(answer + np.float32(0)))}, PLAIN)


def clusters() -> Case:
    a = some_words("clusters")

    def of(size: int, function: np.ufunc) -> Array:
        return np.repeat(function.reduce(a.reshape(-1, size), 1), size)

    quads, waves = a.reshape(-1, 4), a.reshape(-1, WAVE)
    below = np.where(np.arange(WAVE) < 27, np.roll(waves, -5, 1), 0).astype("u4")
    answers = [
        of(2, np.bitwise_xor) + of(16, np.bitwise_or),
        of(8, np.maximum) - of(4, np.bitwise_and),
        *(quads[:, [2, 3, 0, 1]] * np.uint32(3) + quads[:, 1:2], below),
    ]
    return Case([a, 4 * N * 4], {1: ("u4", equal(answers))}, PLAIN)


def partial() -> Case:
    groups, size = 5, 105
    a = some_words("partial", groups * size).reshape(groups, size)
    lane = np.arange(size)
    wave = lane // WAVE
    places = lane % 7 + 16 * (lane // 7 % 5) + 256 * (lane // 35)
    sums = np.stack([a[:, wave == k].sum(1, dtype="u4") for k in range(4)], 1)[:, wave]
    counts = np.bincount(wave)[wave] + 64 * (wave < 3)
    answers = [
        *(np.tile(places.astype("u4"), groups), sums, np.tile(counts.astype("u4"), groups)),
        a[:, ::-1] ^ (wave ^ 4 << 8).astype("u4"),
    ]
    return Case([a, 4 * a.nbytes], {1: ("u4", equal(answers))}, (f"groups={groups},1,1",))


def diverge() -> Case:
    a = some_words("diverge")
    answer = np.zeros_like(a)
    for at in range(0, N, WAVE):
        x = a[at : at + WAVE]
        y = np.zeros(WAVE, "u4")
        odd = x & 1 == 1
        third = odd & (x % 3 == 0)
        y[third] = x[third].sum(dtype="u4") + np.uint32(third.sum())
        other = odd & ~third
        if other.any():
            y[other] = x[other].min() ^ np.uint32(sum(1 << int(k) for k in np.flatnonzero(other & (x > 1000))))
        y[odd] += np.uint32(1)
        for kind in range(4):
            some = ~odd & ((x >> 1 & 3) == kind)
            if kind < 2 and some.any():
                y[some] = x[some].max() if kind == 0 else np.bitwise_or.reduce(x[some])
        rest = ~odd & ((x >> 1 & 3) > 1)
        low = x[rest] & np.uint32(0xFFFF)
        y[rest] = low.cumsum(dtype="u4") - low
        y[~odd] += np.uint32((x == 0).any()) << np.uint32(31)
        answer[at : at + WAVE] = y
    return Case([a, N * 4], {1: ("u4", equal(answer))}, PLAIN)


def compact() -> Case:
    a = some_words("compact")
    odd = np.sort(a[a & 1 == 1])

    def judge(answer: Array) -> str:
        kept = np.concatenate([answer[:1], np.sort(answer[1 : 1 + odd.size]), answer[1 + odd.size :]])
        return equal([np.array([odd.size], "u4"), odd, np.zeros(N - odd.size, "u4")])(kept)

    return Case([a, (1 + N) * 4], {1: ("u4", judge)}, ("groups=8,1,1",))


def scan() -> Case:
    a = some_words("scan")
    return Case([a, N * 4], {1: ("u4", equal(a.reshape(-1, 256).cumsum(1, dtype="u4")))}, ("groups=4,1,1",))


def histogram() -> Case:
    a = some_words("histogram", 2048)
    bins = np.bincount(a.view("u1"), minlength=256).astype("u4")
    return Case([a, 256 * 4], {1: ("u4", equal(bins))}, ("groups=8,1,1",))


def atomic32() -> Case:
    a = some_words("atomic32")
    before = np.array([0, 0xFFFF_FFFF, 0, 0xFFFF_FFFF, 0, 0, 0, 0], "u4")
    words = [
        *(a.sum(dtype="u4"), a.min(), a.max(), np.bitwise_and.reduce(a | np.uint32(15))),
        *(np.bitwise_or.reduce(a & np.uint32(0xF0F0)), np.bitwise_xor.reduce(a)),
        np.uint32(0),
        (a & np.uint32(7)).sum(dtype="u4"),
    ]
    expected = np.array(words, "u4")

    def judge(answer: Array) -> str:
        # the last one in the chain of exchanges is whoever came last
        return equal(expected)(np.where(np.arange(8) == 6, 0, answer).astype("u4"))

    def old(answer: Array) -> str:
        tickets = np.sort(answer[:N].reshape(-1, 64), 1)
        if (tickets != np.arange(0, 192, 3)).any():
            return "a workgroup's tickets are not 0, 3, ..., 189"
        chain = np.sort(answer[N:])
        missing = set(range(N + 1)) - set(chain.tolist())
        return "" if len(missing) == 1 and 0 not in missing else f"the exchanges do not make a chain: {missing}"

    return Case([a, before, 2 * N * 4], {1: ("u4", judge), 2: ("u4", old)}, PLAIN)


def atomic64() -> Case:
    a = (some_words("atomic64").astype("u8") << np.uint64(32)) ^ some_words("atomic64 low")
    top = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
    before = np.array([0, top, top, 0, 0, 0, 0], "u8")
    words = [
        *(a.sum(dtype="u8"), a.min(), np.bitwise_and.reduce(a | np.uint64(0xFF_0000_0000))),
        *(np.bitwise_or.reduce(a & np.uint64(0xFFFF_0000_FFFF)), np.bitwise_xor.reduce(a), a.max()),
        (a >> np.uint64(40)).sum(dtype="u8"),
    ]
    return Case([a, before], {1: ("u8", equal(np.array(words, "u8")))}, PLAIN)


def atomicf() -> Case:
    a = draws("atomicf").integers(-100, 100, N).astype("f4")
    sums = a.reshape(-1, 8).sum(0)

    def judge(answer: Array) -> str:
        if answer[8] not in a:
            return f"{answer[8]} is none of the exchanged values"
        return equal([sums, np.array([N], "f4")])(np.delete(answer, 8) + np.float32(0))

    def old(answer: Array) -> str:
        return equal(np.arange(N).astype("f4"))(np.sort(answer))

    return Case([a, 10 * 4, N * 4], {1: ("f4", judge), 2: ("f4", old)}, PLAIN)


def stack() -> Case:
    heads: list[int] = []

    def head(answer: Array) -> str:
        heads[:] = [int(answer[0])]
        return ""

    def links(answer: Array) -> str:
        seen, at = set(), heads[0]
        while at and at not in seen:
            seen.add(at)
            at = int(answer[at - 1])
        return "" if seen == set(range(1, N + 1)) else f"the list has {len(seen)} of {N}"

    return Case([4, N * 4], {0: ("u4", head), 1: ("u4", links)}, PLAIN)


def hashing() -> Case:
    pool = np.unique(some_words("hashing", 700))
    a = draws("hashing").choice(pool[pool != 0], N)
    mixed: dict[int, list[int]] = {}
    for i, key in enumerate(a.tolist()):
        entry = mixed.setdefault(key, [0, 0])
        entry[0] += 1
        entry[1] ^= i
    tables: list[Array] = []

    def table(answer: Array) -> str:
        tables[:] = [answer.reshape(-1, 2)]
        return ""

    def keys(answer: Array) -> str:
        found = {key: tables[0][k].tolist() for k, key in enumerate(answer.tolist()) if key}
        return "" if found == mixed else f"{len(found)} keys, not {len(mixed)}, or other counts"

    return Case([a, 1024 * 8, 1024 * 4], {1: ("u4", table), 2: ("u4", keys)}, PLAIN)


def lock() -> Case:
    groups = 60
    answer = np.array([0, groups, groups * groups], "u4")
    return Case([12], {0: ("u4", equal(answer))}, (f"groups={groups},1,1",))


def clock() -> Case:
    a = some_words("clock")
    x = a
    for _ in range(20):
        x = x * np.uint32(1664525) + np.uint32(1013904223)

    def took(answer: Array) -> str:
        return "" if ((answer > 0) & (answer < 1 << 40)).all() else f"{answer.min()} to {answer.max()} cycles"

    return Case([a, N * 8], {0: ("u4", equal(x)), 1: ("u8", took)}, PLAIN)


def barriers() -> Case:
    a = some_words("barriers", 2048)
    line, lane = a.reshape(2, 1024), np.arange(1024)
    for k in range(24):
        line = line[:, (lane + 37 * k) % 1024] * np.uint32(5) + (lane ^ k).astype("u4")
    return Case([a, a.nbytes], {1: ("u4", equal(line))}, ("groups=2,1,1",))


def shared48() -> Case:
    count = 12288
    a = some_words("shared48", 2 * count)
    both, k = a.reshape(2, count), np.arange(count)
    return Case([a, a.nbytes], {1: ("u4", equal(both[:, k * 5 % count] + both[:, ::-1]))}, ("groups=2,1,1",))


FULL = ("wave=32",)
ROWS = (
    Shader("lanes64", "subgroup operations on 64 bits", lanes64, FULL),
    Shader("lanesf", "subgroup operations on floats", lanesf, FULL),
    Shader("clusters", "clusters of lanes and quads", clusters, FULL),
    Shader("partial", "a subgroup that is partly empty", partial),
    Shader("diverge", "subgroup operations in branches", diverge, FULL),
    Shader("compact", "stream compaction", compact),
    Shader("scan", "a prefix sum in shared memory", scan),
    Shader("histogram", "bins in shared memory", histogram),
    Shader("atomic32", "atomics of 32 bits and their old values", atomic32),
    Shader("atomic64", "atomics of 64 bits", atomic64),
    Shader("atomicf", "atomics on floats", atomicf),
    Shader("stack", "a linked stack by compare and swap", stack),
    Shader("hashing", "a hash table", hashing),
    Shader("lock", "a lock", lock),
    Shader("clock", "the core's clock", clock),
    Shader("barriers", "24 barriers of 1024 invocations", barriers),
    Shader("shared48", "48 KiB of shared memory", shared48),
)
