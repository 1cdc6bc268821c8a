"""Random programs over all constructs of the tensor language, which are compiled and not computed: `check(seed, chip)`.

A program is a chain of steps. Each step takes values that exist and adds others: memory, constants, random numbers and
views of them, with axes of one or no element and with sizes known only at run time. It asks for some of the values, for
gradients of first and second order, and for assignments and optimiser steps. What the language refuses with a message
is left out; every failure after that is a fault of the compiler.
"""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
from language.constructs import COMPLEX, FLOATS, GROUPS, KINDS, REFUSED, differentiated, most

from ringup.compiler.compile import compile_graph
from ringup.compiler.graph import nodes
from ringup.compiler.graph.index import bounds
from ringup.compiler.graph.nodes import ELEMENTWISE, MOVEMENT, Op
from ringup.compiler.kernel.choose import lower
from ringup.compiler.schedule.order import plan
from ringup.compiler.schedule.signature import of_kernel
from ringup.compiler.target import target
from ringup.compiler.tensor import Size, Tensor, device
from ringup.compiler.tensor.order import open_sizes

# of programs, those with complex numbers
COMPLEX_SHARE = 0.15
LEAVES = ("memory",) * 8 + ("view",) * 4 + ("constant",) * 3 + ("steps", "repeated", "repeated", "random", "normal")
SIZES = (1, 1, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 33, 64)
# The limit of elements of a value, so that a naive evaluation would be possible.
MAX_ELEMENTS = 1 << 18
# Bytes that a value takes at least in an arena.
ALIGN = 256
# An arena may have a quarter more than an evaluation operation by operation needs, and some pieces that are small.
ARENA_FACTOR, ARENA_FREE = 1.25, 4096


class Compiling:
    """An evaluator that compiles what it is asked for, checks the size of the arena, and returns zeros. Without `code`
    it stops at machine IR, which takes half the time.
    """

    def __init__(self, chip, *, code=True):
        self.chip, self.code, self.graphs = chip, code, 0

    def evaluate(self, roots, sizes):
        arena_bytes = compile_graph(roots, self.chip).arena_bytes if self.code else self._lowered(roots)
        self.graphs += 1
        limit = ARENA_FACTOR * naive_bytes(roots) + ARENA_FREE
        assert arena_bytes <= limit, f"an arena of {arena_bytes} bytes, more than {limit}"
        return [bytes(bounds(one.size)[1] * one.dtype.size_bytes) for one in roots]

    def _lowered(self, roots):
        planned, traits = plan(roots), target(self.chip).traits
        for kernel in planned.kernels:
            signature, inputs = of_kernel(kernel)
            if (signature, self.chip) not in KNOWN:
                lower(replace(kernel, inputs=inputs), "k", traits)
                KNOWN.add((signature, self.chip))
        return planned.arena_bytes


# The kernels that have been lowered already.
KNOWN = set()


def naive_bytes(roots):
    """Return the greatest memory at one time of an evaluation operation by operation, in which a contraction is one
    operation, and movement is none.
    """
    every = nodes.ordered(roots)
    users = {}
    for node in every:
        for source in dict.fromkeys(node.sources):
            users.setdefault(source, []).append(node)
    # The memory that a node shows, and the place of its last use.
    shown, last, size = {}, {}, {}
    for place, node in enumerate(every):
        if node.op in MOVEMENT and node.op is not Op.PAD:
            shown[node] = shown[node.sources[0]]
        else:
            shown[node] = (node,)
        if node.op is Op.MUL and _is_term(node, users):
            shown[node] = tuple(one for source in node.sources for one in shown[source])
        for source in node.sources:
            for one in shown[source]:
                last[one] = place
        held = node.op in ELEMENTWISE or node.op in (
            Op.REDUCE, Op.SCAN, Op.SORT, Op.GATHER, Op.SCATTER, Op.CAT, Op.PAD, Op.CONTIGUOUS,
        )  # fmt: skip
        if shown[node] == (node,) and held:
            size[node] = max(ALIGN, bounds(node.size)[1] * max(4, node.dtype.size_bytes))
            # It is sorted by 64-bit keys, and the values are moved twice.
            if node.op is Op.SCATTER:
                size[node] += 32 * sum(bounds(one.size)[1] for one in node.sources)
    for one in roots:
        for each in shown[one]:
            last[each] = len(every)
    ending = {}
    for node in size:
        ending.setdefault(last.get(node, 0), []).append(node)
    now = most = 0
    for place, node in enumerate(every):
        now += size.get(node, 0)
        most = max(most, now)
        now -= sum(size[one] for one in ending.get(place, ()))
    return most


def _is_term(node, users):
    above = users.get(node, [])
    while len(above) == 1 and above[0].op in MOVEMENT:
        above = users.get(above[0], [])
    return len(above) == 1 and above[0].op is Op.REDUCE


class Maker:
    """One program under construction. `trail` records the steps."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.values, self.weights, self.trail, self.sizes = [], [], [], {}
        self.has_sizes = self.random.random() < 0.15
        # of programs with complex numbers; the others are the same with and without it
        self.complex = random.Random(f"complex {seed}")
        self.is_complex = self.complex.random() < COMPLEX_SHARE

    def choice(self, *options):
        return self.random.choice(options)

    def number(self, low, high):
        return self.random.randint(low, high)

    def side(self):
        """Return the size of an axis."""
        if self.random.random() < 0.02:
            return 0
        if self.has_sizes and self.random.random() < 0.2:
            most = self.choice(1, 4, 9, 40)
            name = f"n{most}"
            if most > 1:
                self.sizes[name] = self.number(1, most)
                return Size(name, 1, most)
        return self.random.choice(SIZES)

    def shape(self, rank=None):
        return tuple(self.side() for _ in range(self.choice(0, 1, 1, 2, 2, 2, 3, 3, 4) if rank is None else rank))

    def leaf(self, shape=None, kind=None):
        """Return a value without sources: in memory, as a view of memory, constant, or random."""
        shape = self.shape() if shape is None else tuple(shape)
        kind = kind or self.random.choice(KINDS)
        if self.is_complex and kind in ("float32", "float64") and self.complex.random() < 0.7:
            kind = "complex64" if kind == "float32" else "complex128"
        how = self.random.choice(LEAVES)
        plain = [most(size) for size in shape]
        if np.prod(plain, dtype=float) > MAX_ELEMENTS:
            raise ValueError("too large")
        is_plain = all(isinstance(size, int) for size in shape)
        if how == "constant":
            return Tensor.full(shape, self.choice(0, 1, 1, 2), dtype=kind)
        if how == "random":
            return Tensor.rand(*shape).cast(kind)
        if how == "normal" and kind in FLOATS:
            return self.choice(Tensor.randn, Tensor.uniform, Tensor.normal)(*shape, dtype=kind)
        if how == "steps" and is_plain and shape:
            return Tensor.arange(int(np.prod(shape))).reshape(shape).cast(kind)
        if how == "repeated":
            return self.memory([self.choice(1, size) for size in plain], kind, shape).expand(shape)
        if how == "view":
            return self.view(plain, kind, shape)
        return self.memory(plain, kind, shape)

    def memory(self, plain, kind, shape):
        """Return memory, cut to sizes that are known at run time."""
        made = Tensor(np.zeros(plain, kind if kind.startswith("complex") else "float32"), dtype=kind)
        if made.dtype.is_inexact:
            self.weights.append(made)
        if all(isinstance(size, int) for size in shape):
            return made
        return made.shrink([(0, size) if most(size) == had else None for size, had in zip(shape, plain, strict=True)])

    def view(self, plain, kind, shape):
        """Return a part of wider memory, with its axes in another order or direction."""
        axes = self.random.sample(range(len(plain)), len(plain))
        wide = [(self.number(0, 1), self.number(0, 2)) for _ in plain]
        whole = [size + before + after for size, (before, after) in zip(plain, wide, strict=True)]
        made = self.memory([whole[i] for i in axes], kind, [whole[i] for i in axes])
        made = made.permute(*np.argsort(axes).tolist()) if axes else made
        made = made.shrink([(before, before + size) for size, (before, _) in zip(shape, wide, strict=True)])
        return made.flip(self.number(0, len(plain) - 1)) if plain and self.choice(False, False, True) else made

    def like(self, x, kind=None):
        """Return a value that can be combined with another one by broadcasting."""
        shape = list(x.shape)
        for i in range(len(shape)):
            if self.random.random() < 0.25:
                shape[i] = 1
        shape = shape[self.number(0, len(shape)) :] if self.random.random() < 0.2 else shape
        if self.values and self.random.random() < 0.4:
            other = self.random.choice(self.values)
            if other.shape == x.shape:
                return other
        return self.leaf(shape, kind or x.dtype.name)

    def axis(self, x):
        return self.number(-x.ndim, x.ndim - 1)

    def places(self, shape, size):
        """Return places along an axis of that size."""
        made = self.leaf(shape, self.choice("int32", "int32", "int64", "uint8"))
        return made if self.choice(True, False) else (made % max(1, most(size)))

    def step(self):
        """Take one more step, which the language may refuse."""
        x = self.random.choice(self.values[-4:])
        group = self.random.choice(GROUPS)
        if self.is_complex and self.complex.random() < 0.3:
            group = COMPLEX
        name = self.random.choice(list(group))
        made = group[name](self, x)
        for one in made if isinstance(made, (tuple, list)) else [made]:
            if isinstance(one, Tensor) and np.prod([most(size) for size in one.shape], dtype=float) <= MAX_ELEMENTS:
                self.values.append(one)
        self.trail.append(name)


def random_program(seed):
    """Return the values that the program of that seed asks for, the sizes to give, and its steps."""
    m = Maker(seed)
    wanted = m.number(1, 14)
    for _ in range(wanted * 3):
        if len(m.trail) >= wanted:
            break
        try:
            if not m.values:
                m.values.append(m.leaf())
            m.step()
        except REFUSED:
            continue
    if m.values and m.random.random() < 0.35:
        try:
            m.values += differentiated(m, m.values[-1])
            m.trail.append("gradient")
        except REFUSED:
            pass
    asked = m.values[-1:] + m.random.sample(m.values, min(len(m.values), m.choice(0, 0, 1, 3)))
    return asked, m.sizes, m.trail


def check(seed, chip, *, code=True):
    """Compile the program of that seed. Raises whatever the compiler raises; return how many graphs it compiled."""
    asked, sizes, trail = random_program(seed)
    if not asked:
        return 0
    compiling = Compiling(chip, code=code)
    with device(compiling):
        try:
            asked[0].realize(*asked[1:], sizes={name: size for name, size in sizes.items() if name in _open(asked)})
        except Exception as error:
            error.add_note(f"seed {seed} for {chip}: {' | '.join(trail)}")
            raise
    return compiling.graphs


def _open(asked):
    return {name for node in nodes.ordered([one.node for one in asked]) for name in open_sizes(node)}
