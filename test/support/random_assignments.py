"""Random chains of assignments through overlapping views, compared with NumPy's memory: `check(seed)`.

A view shows the values of the time when it was taken or last written through. A write through it goes to the tensor
that it is a view of.
"""

from __future__ import annotations

import random

import numpy as np

from ringup.compiler.tensor import Tensor

KINDS = ("float32", "int32", "float64", "int8", "float16")


class Held:
    """A tensor, the values it shows, and their places in the tensor that it is a view of (None: it is no view)."""

    def __init__(self, tensor, values, places=None, viewed=None):
        self.tensor, self.values, self.viewed = tensor, np.array(values), viewed
        self.places = np.arange(self.values.size).reshape(self.values.shape) if places is None else np.array(places)

    def put(self, key, value):
        """Write through the view."""
        memory = (self.viewed or self).values
        at = self.places[key]
        memory.reshape(-1)[at.reshape(-1)] = np.broadcast_to(value, at.shape).reshape(-1)
        if self.viewed:
            self.values = memory.reshape(-1)[self.places.reshape(-1)].reshape(self.places.shape)


class Maker:
    """One chain under construction."""

    def __init__(self, seed):
        self.random, self.numpy = random.Random(seed), np.random.default_rng(seed)
        self.kind = self.random.choice(KINDS)
        self.tensors, self.snaps = [], []
        for _ in range(self.random.randint(1, 2)):
            shape = tuple(self.random.choice((1, 2, 3, 4, 5, 8)) for _ in range(self.random.randint(1, 3)))
            array = self.array(shape)
            made = Tensor(array) if self.random.random() < 0.6 else Tensor(array) * 1
            self.tensors.append(Held(made, array))

    def array(self, shape):
        return self.numpy.integers(-4, 5, shape).astype(self.kind)

    def view(self, one):
        """Take a view of it."""
        values, choose = one.values, self.random
        if not values.ndim:
            return
        axis = choose.randrange(values.ndim)
        order = choose.sample(range(values.ndim), values.ndim)
        key = tuple(slice(start := choose.randint(0, n - 1), choose.randint(start + 1, n)) for n in values.shape)
        at = choose.randrange(values.shape[0])
        step = choose.choice(
            (
                lambda x: x[key],
                lambda x: x[at],
                lambda x: x[:],
                lambda x: x.reshape(values.size),
                lambda x: x.flip(axis) if isinstance(x, Tensor) else np.flip(x, axis),
                lambda x: x.permute(order) if isinstance(x, Tensor) else x.transpose(order),
            )
        )
        made = step(one.tensor)
        if made is not one.tensor:
            self.tensors.append(Held(made, step(values), step(one.places), one.viewed or one))

    def key(self, shape):
        """Return a part: numbers, slices of any step, or a list of places."""
        choose = self.random
        if choose.random() < 0.2:
            return ([choose.randrange(-shape[0], shape[0]) for _ in range(choose.randint(1, 4))],)
        found = []
        for n in shape:
            start = choose.randint(0, n - 1)
            whole, part = slice(None, None, choose.choice((1, 1, -1, 2))), slice(start, choose.randint(start + 1, n))
            found.append(choose.choice((whole, part, choose.randrange(-n, n))))
        return tuple(found)

    def write(self, one):
        """Write new values, a number, the part's own values in reverse, or another tensor's values."""
        if not one.values.ndim:
            return
        key = self.key(one.values.shape)
        part = one.values[key]
        which = self.random.randrange(4)
        if which == 0:
            value = self.array(part.shape)
            tensor = Tensor(value)
        elif which == 1 or not part.ndim:
            tensor = value = 3
        elif which == 2:
            axis = self.random.randrange(part.ndim)
            tensor, value = one.tensor[key].flip(axis) + 1, np.flip(part, axis) + np.array(1, self.kind)
        else:
            other = next((held for held in self.tensors if held.values.shape == part.shape), None)
            if other is None:
                return
            tensor, value = other.tensor * 2, other.values * np.array(2, self.kind)
        # Where a place occurs twice, the last one counts, in NumPy too.
        if isinstance(key[0], list):
            value = np.array(np.broadcast_to(value, part.shape))
        one.tensor[key] = tensor
        one.put(key, value)

    def add(self, one):
        """Add in place."""
        value, tensor = one.values + np.array(1, self.kind), one.tensor
        tensor += 1
        assert tensor is one.tensor
        one.put(..., value)

    def assign(self, one):
        value = self.array(one.values.shape)
        one.tensor.assign(Tensor(value))
        one.put(..., value)

    def snap(self, one):
        """Take a value of it that later assignments must not change, or make another tensor of the same value."""
        if self.random.random() < 0.3:
            self.snaps.append((one.tensor.clone(), np.array(one.values)))
        else:
            self.snaps.append((one.tensor * 3 - 1, one.values * np.array(3, self.kind) - np.array(1, self.kind)))

    def realize(self, one):
        others = [
            held.tensor for held in self.random.sample(self.tensors, self.random.randint(0, 2) % len(self.tensors))
        ]
        one.tensor.realize(*others)

    def read(self, one):
        np.testing.assert_array_equal(one.tensor.numpy(), one.values)

    STEPS = (view, view, view, write, write, write, write, add, assign, snap, realize, read)


def check(seed):
    """Run the chain of that seed and compare all values. Raises AssertionError for what is wrong."""
    maker = Maker(seed)
    with np.errstate(over="ignore"):
        for _ in range(maker.random.randint(3, 16)):
            maker.random.choice(maker.STEPS)(maker, maker.random.choice(maker.tensors[-5:]))
    left = [(one.tensor, one.values) for one in maker.tensors] + maker.snaps
    maker.random.shuffle(left)
    for tensor, values in left:
        np.testing.assert_array_equal(tensor.numpy(), values, err_msg=f"seed {seed}")
