"""Random mixes of copies and dispatches over several buffers and queues give NumPy's results, whichever queue waits for
which.
"""

import random

import numpy as np
import pytest

import ringup
from ringup.silicon import card as virtual

OPERATIONS = {"navi31": 2_000, "navi32": 500, "navi33": 500}
TARGETS = {"navi31": "gfx1100", "navi32": "gfx1101", "navi33": "gfx1102"}
# The words of a buffer, and its side as a square.
WORDS, SIDE, BUFFERS = 1024, 32, 6
GROUP = 64
SOURCE = """
#define X __builtin_amdgcn_workitem_id_x()
#define G __builtin_amdgcn_workgroup_id_x()
#define BARRIER { __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup"); __builtin_amdgcn_s_barrier(); \
                  __builtin_amdgcn_fence(__ATOMIC_SEQ_CST, "workgroup"); }
typedef __global uint *U;

__kernel void add(U o, U a, U b) { int i = G * 64 + X; o[i] = a[i] + b[i]; }

__kernel void saxpy(U o, U x, uint a, int n) { int i = G * 64 + X; if (i < n) o[i] += a * x[i]; }

__kernel void transpose(U o, U a) {
  __local uint tile[8][9];
  int x = X & 7, y = X >> 3, gx = (G & 3) * 8, gy = (G >> 2) * 8;
  tile[y][x] = a[(gy + y) * 32 + gx + x];
  BARRIER
  o[(gx + y) * 32 + gy + x] = tile[x][y];
}

__kernel void histogram(U o, U a) { __scoped_atomic_fetch_add(&o[a[G * 64 + X] % 61], 1u, __ATOMIC_RELAXED, __MEMORY_SCOPE_DEVICE); }

__kernel void sums(U o, U a) {
  __local uint part[64];
  part[X] = a[G * 64 + X];
  BARRIER
  for (int n = 32; n; n /= 2) { if (X < n) part[X] += part[X + n]; BARRIER }
  if (X == 0) o[G] = part[0];
}

__kernel void stack(U o, U a, int n) {
  uint kept[24];
  for (int i = 0; i < n; i++) kept[i] = a[(G * 64 + X + i * 7) % 1024];
  uint sum = 0;
  for (int i = 0; i < n; i++) sum = sum * 31 + kept[(i * 5 + X) % n];
  o[G * 64 + X] = sum;
}
"""


class Mix:
    """A card, buffers with their NumPy twins, queues, and the points to wait for before a buffer is read or written."""

    def __init__(self, card, code, rng):
        self.card, self.rng, self.program = card, rng, card.load(code)
        self.computes = [card.compute, card.new_compute_queue(), card.aql, card.new_aql_queue()]
        self.copies = list(card.copies)
        self.buffers = [card.alloc(4 * WORDS, ("vram", "host")[n % 2], name=f"mix {n}") for n in range(BUFFERS)]
        self.twins = [np.zeros(WORDS, np.uint32) for _ in self.buffers]
        self.written = [None] * BUFFERS
        self.read = [[] for _ in self.buffers]
        for n in range(BUFFERS):
            self.copied((), (n,), lambda queue, n=n: queue.fill(self.buffers[n], 0))

    def points(self, reads, writes):
        """Return the points to wait for before the given buffers are read and written."""
        before = [self.written[n] for n in {*reads, *writes} if self.written[n] is not None]
        return before + [point for n in writes for point in self.read[n]]

    def done(self, reads, writes, point):
        for n in reads:
            self.read[n].append(point)
        for n in writes:
            self.written[n], self.read[n] = point, []

    def copied(self, reads, writes, work):
        queue = self.rng.choice(self.copies)
        for point in self.points(reads, writes):
            queue.wait_for(point)
        self.done(reads, writes, work(queue))

    def dispatched(self, name, reads, writes, args, groups=WORDS // GROUP):
        queue = self.rng.choice(self.computes)
        stream = queue.stream()
        for point in self.points(reads, writes):
            stream.wait_for(point)
        stream.dispatch(self.program[name], groups, GROUP, args)
        self.done(reads, writes, queue.submit(stream))

    def pick(self, count):
        return self.rng.sample(range(BUFFERS), count)

    def piece(self, most=4 * WORDS, unit=1):
        size = self.rng.randrange(1, most // unit + 1) * unit
        return self.rng.randrange(0, most - size + 1, unit), size

    def check(self, n):
        queue = self.rng.choice(self.copies)
        for point in self.points((n,), ()):
            queue.wait_for(point)
        got = queue.download_array(self.buffers[n], np.uint32, WORDS)
        assert np.array_equal(got, self.twins[n])


def upload(mix):
    (n,) = mix.pick(1)
    at, size = mix.piece()
    data = mix.rng.randbytes(size)
    mix.copied((), (n,), lambda queue: queue.upload(mix.buffers[n], data, at))
    mix.twins[n].view(np.uint8)[at : at + size] = np.frombuffer(data, np.uint8)


def download(mix):
    mix.check(mix.pick(1)[0])


def copy(mix):
    # Within one buffer the ranges may overlap.
    source, target = mix.pick(2) if mix.rng.random() < 0.6 else mix.pick(1) * 2
    at, size = mix.piece()
    to = mix.rng.randrange(4 * WORDS - size + 1)
    mix.copied(
        (source,),
        (target,),
        lambda queue: queue.copy_buffer(
            mix.buffers[target], mix.buffers[source], size, target_offset=to, source_offset=at
        ),
    )
    mix.twins[target].view(np.uint8)[to : to + size] = mix.twins[source].view(np.uint8)[at : at + size].copy()


def fill(mix):
    (n,) = mix.pick(1)
    at, size = mix.piece(unit=4)
    value = mix.rng.getrandbits(32)
    mix.copied((), (n,), lambda queue: queue.fill(mix.buffers[n], value, at, size))
    mix.twins[n][at // 4 : (at + size) // 4] = value


def rectangle(mix):
    source, target = mix.pick(2)
    width, height = mix.rng.randrange(1, 4 * SIDE + 1), mix.rng.randrange(1, SIDE + 1)
    x, y = mix.rng.randrange(4 * SIDE - width + 1), mix.rng.randrange(SIDE - height + 1)
    to_x, to_y = mix.rng.randrange(4 * SIDE - width + 1), mix.rng.randrange(SIDE - height + 1)
    mix.copied(
        (source,),
        (target,),
        lambda queue: queue.copy_rect(
            mix.buffers[target], 4 * SIDE, mix.buffers[source], 4 * SIDE, width, height,
            target_offset=to_y * 4 * SIDE + to_x, source_offset=y * 4 * SIDE + x,
        ),
    )  # fmt: skip
    planes = [mix.twins[n].view(np.uint8).reshape(SIDE, 4 * SIDE) for n in (source, target)]
    planes[1][to_y : to_y + height, to_x : to_x + width] = planes[0][y : y + height, x : x + width]


def add(mix):
    o, a, b = mix.pick(3)
    mix.dispatched("add", (a, b), (o,), [mix.buffers[n] for n in (o, a, b)])
    np.add(mix.twins[a], mix.twins[b], out=mix.twins[o])


def saxpy(mix):
    o, x = mix.pick(2)
    factor, count = mix.rng.getrandbits(32), mix.rng.randrange(1, WORDS + 1)
    mix.dispatched("saxpy", (x,), (o,), [mix.buffers[o], mix.buffers[x], factor, count])
    mix.twins[o][:count] += np.uint32(factor) * mix.twins[x][:count]


def transpose(mix):
    o, a = mix.pick(2)
    mix.dispatched("transpose", (a,), (o,), [mix.buffers[o], mix.buffers[a]])
    mix.twins[o][:] = mix.twins[a].reshape(SIDE, SIDE).T.reshape(-1)


def histogram(mix):
    o, a = mix.pick(2)
    mix.dispatched("histogram", (a,), (o,), [mix.buffers[o], mix.buffers[a]])
    mix.twins[o][:61] += np.bincount(mix.twins[a] % 61, minlength=61).astype(np.uint32)


def sums(mix):
    o, a = mix.pick(2)
    mix.dispatched("sums", (a,), (o,), [mix.buffers[o], mix.buffers[a]])
    mix.twins[o][: WORDS // GROUP] = mix.twins[a].reshape(-1, GROUP).sum(axis=1, dtype=np.uint32)


def stack(mix):
    o, a = mix.pick(2)
    depth = mix.rng.randrange(1, 25)
    mix.dispatched("stack", (a,), (o,), [mix.buffers[o], mix.buffers[a], depth])
    items, total = np.arange(WORDS), np.zeros(WORDS, np.uint32)
    kept = [mix.twins[a][(items + i * 7) % WORDS] for i in range(depth)]
    for i in range(depth):
        total = total * np.uint32(31) + np.stack(kept)[(i * 5 + items % GROUP) % depth, items]
    mix.twins[o][:] = total


def host_waits(mix):
    points = [point for point in mix.written if point is not None]
    mix.rng.choice(points).wait()


WORK = (
    upload,
    upload,
    download,
    copy,
    copy,
    fill,
    rectangle,
    add,
    saxpy,
    transpose,
    histogram,
    sums,
    stack,
    host_waits,
)


@pytest.mark.parametrize("chip", OPERATIONS)
@pytest.mark.seeds(1)
def test_random_copies_and_dispatches_end_as_numpy_says(chip, opencl, seed):
    radeon = virtual(chip, vram_bytes=1 << 30)
    rng = random.Random(f"{chip} {seed}")
    with ringup.open(radeon.name, transport={"card": radeon}) as card, np.errstate(over="ignore"):
        mix = Mix(card, opencl(SOURCE, TARGETS[chip]), rng)
        for _ in range(OPERATIONS[chip]):
            rng.choice(WORK)(mix)
        for n in range(BUFFERS):
            mix.check(n)
    assert radeon.violations == []
