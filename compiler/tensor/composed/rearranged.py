"""Axes by name: `x.rearrange("b (h w) c -> b c h w", h=8)` splits, moves and joins them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING

from ringup.compiler.graph.index import Int, product
from ringup.compiler.tensor.core import number_of

if TYPE_CHECKING:
    from ringup.compiler.tensor.tensor import Tensor

# stands for all axes that are not named
REST = "..."
_TOKENS = re.compile(r"[()]|[^\s()]+")

# the names that one axis is split into or joined from, none for an axis of 1; None: all axes that are not named
Axis = tuple[str, ...] | None


def rearrange(tensor: Tensor, pattern: str, /, **sizes: int) -> Tensor:
    """Return it with its axes split, moved and joined as the pattern says: "b (h w) c -> b c h w" with h=8.

    Names in parentheses are one axis, the last name varying fastest; `sizes` are those that do not follow. "..." is all
    axes that are not named, 1 and () are an axis of one element.
    """
    left, right = _sides(pattern)
    _check(pattern, left, right, sizes)
    rest = tensor.ndim - sum(one is not None for one in left)
    if rest < 0 or (rest and None not in left):
        raise ValueError(f"rearrange {pattern!r} of {list(tensor.shape)}: it has {tensor.ndim} axes")
    others = [f"{REST}{i}" for i in range(rest)]
    given = _with_others(left, others)
    known: dict[str, Int] = {}
    for axis, names in zip(tensor.shape, given, strict=True):
        known.update(_split(pattern, axis, names, sizes))
    wanted = _with_others(right, others)
    order = [name for names in given for name in names]
    apart = tensor.reshape(tuple(known[name] for name in order))
    moved = apart.permute(tuple(order.index(name) for names in wanted for name in names))
    return moved.reshape(tuple(product(known[name] for name in names) for names in wanted))


def _with_others(side: Sequence[Axis], others: Sequence[str]) -> list[list[str]]:
    """Return the names of every axis, with those of the rest in the place of "..."."""
    made: list[list[str]] = []
    for axis in side:
        if axis is None:
            made += [[name] for name in others]
        else:
            made.append([name for part in axis for name in (others if part == REST else (part,))])
    return made


def _sides(pattern: str) -> list[list[Axis]]:
    """Return the axes on both sides of the arrow."""
    sides = pattern.replace("…", REST).split("->")
    if len(sides) != 2:
        raise ValueError(f"rearrange {pattern!r}: two sides with one -> between them")
    return [_axes(pattern, side) for side in sides]


def _axes(pattern: str, side: str) -> list[Axis]:
    made: list[Axis] = []
    inside: list[str] | None = None
    for token in _TOKENS.findall(side):
        if token == "(" and inside is None:
            inside = []
        elif token == ")" and inside is not None:
            made.append(tuple(inside))
            inside = None
        elif token in "()":
            raise ValueError(f"rearrange {pattern!r}: parentheses do not match, or stand in each other")
        elif token not in (REST, "1") and not (token.isidentifier() and token.strip("_") == token):
            raise ValueError(f"rearrange {pattern!r}: {token!r} is no name of an axis")
        elif inside is not None:
            inside += [] if token == "1" else [token]
        else:
            made.append(None if token == REST else () if token == "1" else (token,))
    if inside is not None:
        raise ValueError(f"rearrange {pattern!r}: a parenthesis is not closed")
    return made


def _check(pattern: str, left: Sequence[Axis], right: Sequence[Axis], sizes: Mapping[str, int]) -> None:
    """Raise for a pattern whose two sides do not have the same names, each once."""
    found = [[name for one in side for name in ((REST,) if one is None else one)] for side in (left, right)]
    for names in found:
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"rearrange {pattern!r}: {twice[0]} stands twice on one side")
    alone = set(found[0]) ^ set(found[1])
    if alone:
        raise ValueError(f"rearrange {pattern!r}: {', '.join(sorted(alone))} on one side only")
    if any(one is not None and REST in one for one in left):
        raise ValueError(f"rearrange {pattern!r}: ... in parentheses on the left side")
    unknown = sizes.keys() - set(found[0])
    if unknown:
        raise ValueError(f"rearrange {pattern!r}: {', '.join(sorted(unknown))} is no axis of it")


def _split(pattern: str, axis: Int, names: Sequence[str], sizes: Mapping[str, int]) -> dict[str, Int]:
    """Return the size of every name of one axis."""
    if len(names) == 1 and names[0] not in sizes:
        return {names[0]: axis}
    whole, sought = number_of(axis, "rearrange"), [name for name in names if name not in sizes]
    if len(sought) > 1:
        raise ValueError(f"rearrange {pattern!r}: all but one of {', '.join(sought)} need a size")
    rest = prod(sizes[name] for name in names if name in sizes)
    if whole != rest if not sought else rest <= 0 or whole % rest:
        given = ", ".join(f"{name}={sizes[name]}" for name in names if name in sizes)
        raise ValueError(
            f"rearrange {pattern!r}: an axis of {whole} is not ({' '.join(names)})"
            + (f" with {given}" if given else "")
        )
    return {name: sizes.get(name, whole // max(rest, 1)) for name in names}
