"""Sizes of up to three dimensions, as a kernel's grid and block have them."""

from __future__ import annotations

from operator import index

Triple = tuple[int, int, int]
AXES = "xyz"


def triple(values: int | tuple[int, ...], what: str) -> Triple:
    """Return one to three counts as three; missing ones are 1. Raises an error that begins with `what`: a `TypeError`
    for anything but whole numbers, a `ValueError` for more than three.
    """
    try:
        given = tuple(map(index, values if isinstance(values, (tuple, list)) else (values,)))
    except TypeError:
        raise TypeError(f"{what} is one to three whole numbers, not {values!r}") from None
    if not 1 <= len(given) <= 3:
        raise ValueError(f"{what} has one to three dimensions, not {len(given)}")
    x, y, z = (*given, 1, 1)[:3]
    return x, y, z
