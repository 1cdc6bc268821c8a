"""How invocations reach memory: descriptors, addresses, constants, layouts; and how they are dispatched."""

from __future__ import annotations

import numpy as np
from vulkan.case import Array, Case, N, Shader, draws, equal, some_words

PLAIN = ("groups=16,1,1",)


def indexing() -> Case:
    sizes = (70, 80, 96, 128, 200)
    choice = draws("indexing").integers(0, 5, N).astype("u4")
    parts = [some_words(f"part {k}", size) for k, size in enumerate(sizes)]
    i = np.arange(N)
    table = np.stack([part[:64] for part in parts])
    answer = table[choice, i & 63] + np.array(sizes, "u4")[i // 64 % 5]
    judges = {6: ("u4", equal(answer))}
    for k, part in enumerate(parts):
        after = part.copy()
        after[64] += np.uint32((choice == k).sum())
        judges[1 + k] = ("u4", equal(after))
    return Case([choice, *parts, N * 4], judges, PLAIN, arrays={5: 5})


def tree() -> Case:
    keys = draws("tree").integers(0, 2 * N + 4, N).astype("u4")
    answer = np.zeros(N, "u4")
    for i, key in enumerate(keys.tolist()):
        # -1: no node
        at, hops = N // 2 - 1, 0
        while at >= 0 and 2 * at + 1 != key:
            half = ((at + 1) & ~at) // 2
            to = at - half if key < 2 * at + 1 else at + half
            at, hops = -1 if half == 0 or to >= N else to, hops + 1
        answer[i] = 0xFFFF_FF00 | hops if at < 0 else (at * at * 16 + hops) & 0xFFFF_FFFF
    options = (*PLAIN, "steps=2", "push=address:0,step")
    return Case([N * 24, keys, N * 4], {2: ("u4", equal(answer))}, options)


def push128() -> Case:
    constants, i = some_words("push128", 32), np.arange(N)
    answer = constants[i & 31] * (i + 1).astype("u4") + constants[i // 64 & 31]
    push = "push=" + ",".join(f"u32:{word}" for word in constants.tolist())
    return Case([N * 4], {0: ("u4", equal(answer))}, (*PLAIN, push))


def uniforms() -> Case:
    draw, i = draws("uniforms"), np.arange(N)
    columns, rows, small = (draw.integers(-9, 10, (size, size)).astype("f4") for size in (4, 4, 3))
    table = some_words("uniforms", 256).reshape(64, 4)
    # each column of the small matrix takes 16 bytes
    columns_of_small = np.zeros((3, 4), "f4")
    columns_of_small[:, :3] = small.T
    block = np.concatenate([array.ravel().view("u4") for array in (columns.T.copy(), rows, columns_of_small, table)])
    word = table[i * 7 & 63]
    x = (word & np.uint32(15)).astype("f4") - np.float32(7)
    last = np.concatenate([x[:, :3] @ small.T, (word[i, i & 3] & np.uint32(255)).astype("f4")[:, None]], 1)
    answers = [x @ columns.T, x @ rows.T, last.astype("f4")]
    judge = ("f4", lambda answer: equal([array + np.float32(0) for array in answers])(answer + np.float32(0)))
    return Case([block, 3 * N * 16], {1: judge}, PLAIN, uniform=0)


def base() -> Case:
    answer = np.zeros((5, 32, 32), "u4")
    z, y, x = np.mgrid[3:5, 2:4, 1:6]
    groups = (x | y << 8 | z << 16 | 5 << 24).astype("u4")
    answer[3:5, 8:16, 4:24] = groups.repeat(4, 1).repeat(4, 2)
    return Case([answer.nbytes], {0: ("u4", equal(answer))}, ("base=1,2,3", "groups=5,2,2"))


def counts() -> Case:
    degree, steps = 3, 16
    edges = draws("counts").integers(0, N, (N, degree)).astype("u4")
    depth = np.zeros(N, "u4")
    depth[0], front = 1, [0]
    for step in range(steps):
        front = sorted({int(to) for node in front for to in edges[node] if depth[to] == 0})
        depth[front] = step + 2
    first = np.array([1, 1, 1, 0, 1, 0], "u4")
    before = np.zeros(N, "u4")
    before[0] = 1
    options = ("groups=1,1,1", "counts=0", f"steps={steps}", "push=step")
    return Case([first, edges, before, 2 * N * 4], {2: ("u4", equal(depth))}, options)


def specs(kind: int) -> Case:
    x, y, length, shift, groups = 24, 3, 11, 5, 4
    size = x * y
    a, i = some_words("specs", length * 16), np.arange(groups * size)
    line, lane = a >> np.uint32(shift), i % size
    terms = [line[(lane + k) % (length * 16)] for k in range(length)]
    mixed = np.bitwise_xor.reduce([term * np.uint32(k + 1) for k, term in enumerate(terms)])
    sums = np.sum(terms, 0, dtype="u4") if kind == 0 else mixed
    answer = sums + (i.astype("f4") * np.float32(2.5)).astype("u4")
    # 2.5 as its bits
    options = (f"groups={groups},1,1", f"spec=0:{x},1:{y},2:{length},3:{kind},4:{0x4020_0000},5:{shift}")
    return Case([a, i.size * 4], {1: ("u4", equal(answer))}, options)


def many() -> Case:
    z, y, x = np.mgrid[:3, :61, :20].astype("u4")
    answer = x * np.uint32(2654435761) ^ y << np.uint32(8) ^ z
    return Case([answer.nbytes], {0: ("u4", equal(answer))}, ("groups=20,61,3",))


def printing() -> Case:
    a = some_words("printing", 256)
    lines = sorted(f"={x}" for x in a.tolist() if x % 3 == 0)
    size = sum(len(line) + 1 for line in lines)

    def text(answer: Array) -> str:
        said = sorted(answer.tobytes()[:size].decode("latin-1").split("\n")[:-1])
        return "" if said == lines else f"{said[:4]}..., not {lines[:4]}..."

    judges = {1: ("u4", equal(np.array([size], "u4"))), 2: ("u1", text)}
    return Case([a, 4, 16 * a.size], judges, ("groups=8,1,1",))


def scalar() -> Case:
    count = 256
    # A vector or a 64-bit word is aligned as its components are: 4 + 12 + 4 bytes, and 4 of padding.
    entry = np.dtype(
        {
            "names": ["colour", "kind", "place", "low", "high", "wide"],
            "formats": ["3u1", "u1", "3<u4", "<u2", "<u2", "<u8"],
            "offsets": [0, 3, 4, 16, 18, 24],
            "itemsize": 32,
        }
    )
    a = np.frombuffer(draws("scalar").bytes(count * entry.itemsize), entry)
    after = a[::-1].copy()
    after["colour"] = after["colour"][:, [2, 0, 1]]
    after["kind"] += np.uint8(1)
    after["place"] = after["place"][:, [1, 2, 0]] + np.arange(count, dtype="u4")[:, None]
    after["high"] ^= after["low"]
    after["wide"] = after["wide"] * np.uint64(3) + after["kind"]

    def judge(answer: Array) -> str:
        got = answer.view(entry)
        return "; ".join(
            f"{name}: {said}" for name in entry.names or () if (said := equal(after[name])(got[name].ravel()))
        )

    return Case([a.view("u1"), a.nbytes], {1: ("u1", judge)}, ("groups=4,1,1",))


def vectors() -> Case:
    a = some_words("vectors", 4 * N).reshape(-1, 64, 4)
    b = (some_words("vectors b", 2 * N).astype("u8") << np.uint64(32) ^ some_words("low", 2 * N)).reshape(N, 2)
    fours = a[:, ::-1][:, :, [3, 0, 1, 2]] + np.array([1, 2, 3, 4], "u4")
    judges = {2: ("u4", equal(fours)), 3: ("u8", equal(b[::-1].sum(1, dtype="u8")))}
    return Case([a, b, N * 16, N * 8], judges, PLAIN)


def volatile() -> Case:
    groups = 20
    lines = [np.arange(64, dtype="u4")]
    for group in range(1, groups):
        lines.append(np.roll(lines[-1], -1) * np.uint32(3) + np.uint32(group))
    answer = np.concatenate(lines)
    return Case([4, groups * 4, answer.nbytes], {2: ("u4", equal(answer))}, (f"groups={groups},1,1",))


ROWS = (
    Shader("indexing", "an array of descriptors", indexing),
    Shader("tree", "a search tree of device addresses", tree),
    Shader("push128", "128 bytes of push constants", push128),
    Shader("uniforms", "matrices and tables in a uniform buffer", uniforms),
    Shader("base", "workgroups that do not begin at 0", base),
    Shader("counts", "dispatches whose size a shader decides", counts),
    Shader("specs", "specialisation constants that decide sizes", specs, (), {"kind": 0}),
    Shader("many", "workgroups of one invocation", many),
    Shader("printing", "text of variable length", printing),
    Shader("scalar", "structures without padding", scalar),
    Shader("vectors", "loads and stores of 128 bits", vectors),
    Shader("volatile", "messages between workgroups", volatile),
)
