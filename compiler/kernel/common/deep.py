"""Recursion as deep as a graph is: a function yields the calls it would make, and a list keeps those that wait.

Python bounds how deep calls nest, for the whole process. A kernel may compute a chain of thousands of nodes.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Call: TypeAlias = "Generator[Call[T], T, T]"


def run(call: Call[T]) -> T:
    """Return what a call returns. Where it yields another one, it is sent what that one returns."""
    waiting: list[Call[T]] = []
    result: T | None = None
    while True:
        try:
            # a call that begins is sent None
            inner = call.send(result)  # type: ignore[arg-type]
        except StopIteration as done:
            if not waiting:
                returned: T = done.value
                return returned
            call, result = waiting.pop(), done.value
        else:
            waiting.append(call)
            call, result = inner, None
