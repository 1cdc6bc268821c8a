"""Recursion over deep graphs without Python's call stack: a function yields the calls it needs, and a list holds the
callers that wait.

Python limits the depth of nested calls for the whole process. A kernel may compute a chain of thousands of nodes.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")
Call: TypeAlias = "Generator[Call[T], T, T]"


def run(call: Call[T]) -> T:
    """Run a call and return its result. Each call that it yields is run first, and its result is sent back."""
    waiting: list[Call[T]] = []
    result: T | None = None
    while True:
        try:
            # A generator starts with None.
            inner = call.send(result)  # type: ignore[arg-type]
        except StopIteration as done:
            if not waiting:
                returned: T = done.value
                return returned
            call, result = waiting.pop(), done.value
        else:
            waiting.append(call)
            call, result = inner, None
