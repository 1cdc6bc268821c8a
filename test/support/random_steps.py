"""Random steps that change memory, as optimisers take them: `check(seed)`. NumPy does the same, statement by statement.

Some states of one shape are assigned, in whole or in part, from each other at the same places or elsewhere. Sums,
extremes and intermediate values are requested with them, all in one evaluation. So some roots may share a kernel, and
others must not.
"""

from __future__ import annotations

import random

import numpy as np

from ringup.compiler.tensor import Tensor

STEPS = 7


class Steps:
    """States as tensors and as arrays, and the values requested between the steps."""

    def __init__(self, seed):
        self.random, numbers = random.Random(seed), np.random.default_rng(seed)
        self.shape = self.random.choice([(6,), (40,), (3, 8), (9, 33), (5, 1, 16), (2, 3, 4), (70, 130)])
        self.arrays = [numbers.uniform(-2, 2, self.shape).astype(np.float32) for _ in range(3)]
        self.tensors = [Tensor(one) for one in self.arrays]
        self.asked = []
        self.trail = []

    def value(self):
        """Return a value of the full shape: a state, at its places or at others, with arithmetic on it."""
        i, j = self.random.randrange(3), self.random.randrange(3)
        x, a = self.tensors[i], self.arrays[i]
        how = self.random.choice(["plain", "plain", "plain", "flipped", "rolled", "mean", "exponential"])
        axis = self.random.randrange(len(self.shape))
        if how == "flipped":
            x, a = x.flip(axis), np.flip(a, axis)
        elif how == "rolled":
            x, a = x.roll(1, axis), np.roll(a, 1, axis)
        elif how == "mean":
            x, a = x - x.mean(axis, keepdims=True), a - a.mean(axis, keepdims=True, dtype=np.float32)
        elif how == "exponential":
            x, a = (x * 0.25).exp(), np.exp(a * np.float32(0.25))
        self.trail.append(f"{how} {i} {j}")
        y, b = self.tensors[j], self.arrays[j]
        return x * 0.5 + y * 0.25, a * np.float32(0.5) + b * np.float32(0.25)

    def step(self):
        """Assign or request a value."""
        what = self.random.choice(["assign", "assign", "assign", "part", "value", "sum", "greatest"])
        self.trail.append(what)
        (x, a), i = self.value(), self.random.randrange(3)
        axis = self.random.randrange(len(self.shape))
        if what == "assign":
            self.tensors[i].assign(x)
            self.arrays[i] = a
        elif what == "part":
            size = self.shape[0]
            part = slice(self.random.randrange(size), size)
            self.tensors[i][part] = x[part]
            self.arrays[i] = np.concatenate([self.arrays[i][: part.start], a[part]])
        elif what == "value":
            self.asked.append((x, a))
        elif what == "sum":
            self.asked.append((x.sum(axis), a.sum(axis, dtype=np.float32)))
        else:
            self.asked.append((x.amax(axis), a.max(axis)))


def check(seed):
    """Take the steps of that seed on the device, and compare all states and all requested values. Raises AssertionError
    for what is wrong.
    """
    steps = Steps(seed)
    for one in steps.tensors:
        # It has its own memory from here on.
        one.assign(one + 0.0)
    steps.tensors[0].realize(*steps.tensors[1:])
    for _ in range(STEPS):
        steps.step()
    pairs = [*zip(steps.tensors, steps.arrays, strict=True), *steps.asked]
    pairs[0][0].realize(*(tensor for tensor, _ in pairs[1:]))
    for i, (tensor, wanted) in enumerate(pairs):
        bound = 1e-5 * max(1.0, float(np.abs(wanted).max()))
        np.testing.assert_allclose(
            tensor.numpy(), wanted, rtol=0, atol=bound, err_msg=f"value {i} of seed {seed}, {steps.trail}"
        )
