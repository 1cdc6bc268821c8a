"""What the rows of the Vulkan shaders are made of: inputs, answers, and the functions that compare them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
# Takes an answer, and returns what is wrong with it, or an empty string.
Judge = Callable[[Array], str]
N = 1024  # invocations of the plain rows
COMPUTE = "queue=compute"


@dataclass(frozen=True)
class Image:
    """What makes an image of a buffer's bytes, as `dispatch` takes it. `sampling`: None for a storage image, else what
    its sampler does.
    """

    view: int
    format: int
    size: tuple[int, int, int]
    layers: int = 1
    levels: int = 1
    swizzle: str = "0000"
    sampling: Sequence[int] | None = None

    @property
    def options(self) -> list[str]:
        """The options behind those of the buffer."""
        about = (int(self.sampling is not None), self.view, self.format, *self.size, self.layers, self.levels)
        found = ["image=" + ",".join(map(str, about)) + f",{int(self.swizzle)}"]
        return found if self.sampling is None else [*found, "sampler=" + ",".join(map(str, self.sampling))]


@dataclass(frozen=True)
class Case:
    """The inputs of a shader, by binding: an array, or a number of zero bytes; and the functions that check its
    outputs. If some are one binding (`arrays`), all are numbered in their order instead.
    """

    buffers: Sequence[Array | int]
    judges: Mapping[int, tuple[str, Judge]]  # by binding: the elements' type, the function that checks them
    options: Sequence[str] = ()
    uniform: int | None = None  # the binding of a uniform buffer
    # by the last buffer of an array of descriptors: how many buffers it has, which are one binding
    arrays: Mapping[int, int] = field(default_factory=dict)
    # by binding: the image that has a buffer's bytes, or the options that make it a texel buffer
    images: Mapping[int, Image | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Shader:
    """A row: a shader's file, how it is run, and what makes its case."""

    file: str
    about: str
    make: Callable[..., Case]
    options: tuple[str, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)
    # A number among the compiler's statistics that must not be 0: the feature that the row tests.
    uses: str = ""
    # What distinguishes it from other rows with the same options.
    variant: str = ""

    @property
    def name(self) -> str:
        """The row in a few words."""
        return " ".join((self.file, *self.options, *([self.variant] if self.variant else ())))


def equal(expected: Any) -> Judge:
    """Check for equal elements. Floats must have the same bits, except that any NaN equals any other."""

    def judge(answer: Array) -> str:
        wanted = (
            np.concatenate([np.ravel(part) for part in expected]) if isinstance(expected, list) else np.ravel(expected)
        )
        if answer.shape != wanted.shape or answer.dtype != wanted.dtype:
            return f"{answer.size} elements of {answer.dtype}, not {wanted.size} of {wanted.dtype}"
        bits = np.dtype(f"u{answer.dtype.itemsize}")
        same = (answer.view(bits) == wanted.view(bits)) | ((answer != answer) & (wanted != wanted))
        return _first(~same, answer, wanted)

    return judge


def near(expected: list[Array], relative: float, absolute: float = 0.0) -> Judge:
    """Check the distance to a result computed in a wider type."""

    def judge(answer: Array) -> str:
        wanted = np.concatenate(expected)
        if answer.shape != wanted.shape:
            return f"{answer.size} elements, not {wanted.size}"
        allowed = np.abs(wanted) * relative + absolute
        return _first(~(np.abs(answer.astype(wanted.dtype) - wanted) <= allowed), answer, wanted)

    return judge


def _first(wrong: Array, answer: Array, wanted: Array) -> str:
    if not wrong.any():
        return ""
    i = int(np.argmax(wrong))
    return f"{int(wrong.sum())} of {answer.size} elements are wrong, the first at {i}: {answer[i]!r}, not {wanted[i]!r}"


def draws(name: str) -> np.random.Generator:
    """Return a generator that depends on a name only."""
    return np.random.default_rng(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little"))


def some_words(name: str, count: int = N) -> Array:
    """Return 32-bit numbers of all magnitudes, including the edge values."""
    random = draws(name)
    words = random.integers(0, 1 << 32, count, dtype=np.uint32) >> random.integers(0, 32, count, dtype=np.uint32)
    edges = (0, 1, 2, 0x7FFF_FFFF, 0x8000_0000, 0x8000_0001, 0xFFFF_FFFE, 0xFFFF_FFFF)
    words[: len(edges)] = edges
    words[-len(edges) :] = edges[::-1]
    return words


def some_floats(name: str, kind: str, reach: float) -> Array:
    """Return numbers of either sign between 1/64 and `reach`."""
    random = draws(name)
    values: Array = random.uniform(1 / 64, reach, N) * random.choice((-1.0, 1.0), N)
    return values.astype(kind)
