"""Shader cores that the model does not have: a card works up to its first dispatch."""

from __future__ import annotations

from ringup.errors import Unmodelled
from ringup.silicon.shader.common.state import Dispatch, Events, Memory, Run


class NoCores:
    """An engine that runs no program. Implements `state.Engine`."""

    runs: tuple[str, ...] = ()

    def __init__(self, target: str) -> None:
        self.target = target

    def start(self, dispatch: Dispatch, memory: Memory, events: Events, *, strict: bool = True) -> Run:
        """Refuse a dispatch."""
        raise Unmodelled(f"a program for {self.target}: the model has no such cores")
