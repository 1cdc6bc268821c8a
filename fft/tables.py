"""Factors of transforms: how a length is taken apart, and roots of unity, rounded once from f64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"
# a step of a transform has at most so many inputs, unless they are a prime
MAX_RADIX = 64
# primes above are not transformed directly
MAX_PRIME = 128
# tables that a process keeps
MAX_KEPT = 64


def primes(length: int) -> list[int]:
    """Return the prime factors in rising order."""
    found, divisor = [], 2
    while divisor * divisor <= length:
        while length % divisor == 0:
            found.append(divisor)
            length //= divisor
        divisor += 1
    return [*found, length] if length > 1 else found


@lru_cache(MAX_KEPT)
def radices(length: int) -> tuple[int, ...]:
    """Return factors of a length, each at most MAX_RADIX or a prime: as few as there can be, and near each other."""
    factors = primes(length)
    if not factors:
        return (1,)
    for count in range(1, len(factors) + 1):
        best = _grouped(factors, count)
        if best is not None:
            return best
    return tuple(factors)


def _grouped(factors: Sequence[int], count: int) -> tuple[int, ...] | None:
    """Return the factors multiplied to so many radices, the greatest factors first and each to the least radix; None
    where a radix becomes too great.
    """
    groups = [1] * count
    for factor in reversed(factors):
        place = groups.index(min(groups))
        if groups[place] > 1 and groups[place] * factor > MAX_RADIX:
            return None
        groups[place] *= factor
    return tuple(sorted(groups, reverse=True))


def is_direct(length: int) -> bool:
    """Return whether a length has small prime factors alone."""
    return max(primes(length), default=1) <= MAX_PRIME


def good_length(least: int) -> int:
    """Return a power of 2 that is at least so long."""
    return 1 << (least - 1).bit_length()


def turned(numerators: Array, length: int) -> Array:
    """Return exp(2 pi i r / length) of whole r in complex128, from angles of an eighth of a turn at most."""
    places = numerators % length
    quarters = (8 * places + length) // (2 * length)
    angles = (4 * places - quarters * length) * (math.pi / 2 / length)
    found: Array = (np.cos(angles) + 1j * np.sin(angles)) * np.array([1, 1j, -1, -1j])[quarters % 4]
    return found


@lru_cache(MAX_KEPT)
def matrix(length: int, sign: int, scale: float) -> tuple[Array, Array]:
    """Return what the real and the imaginary part of each input add to both parts of each output: (outputs, 2,
    inputs) each.
    """
    numbers = np.arange(length)
    made = turned(sign * np.outer(numbers, numbers), length) * scale
    return np.stack([made.real, made.imag], 1), np.stack([-made.imag, made.real], 1)


@lru_cache(MAX_KEPT)
def twiddles(radix: int, rest: int, sign: int) -> Array:
    """Return the factors between two steps, (radix, rest)."""
    return turned(sign * np.outer(np.arange(radix), np.arange(rest)), radix * rest)


@lru_cache(MAX_KEPT)
def chirp(length: int, sign: int) -> Array:
    """Return exp(pi i sign j^2 / length) for each j."""
    numbers = np.arange(length)
    return turned(sign * (numbers * numbers % (2 * length)), 2 * length)


@lru_cache(MAX_KEPT)
def filtered(length: int, padded: int, sign: int) -> Array:
    """Return the transform of the filter by which a chirp turns a transform into a convolution."""
    around = np.zeros(padded, np.complex128)
    factors = chirp(length, -sign)
    around[:length] = factors
    around[padded - length + 1 :] = factors[:0:-1]
    return np.fft.fft(around)
