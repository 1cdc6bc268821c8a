"""A client of the resource manager: its objects by handle, and the calls on them.

Source: NVIDIA open-gpu-kernel-modules, nvos.h; cl0080.h, cl2080.h.
"""

from __future__ import annotations

import itertools
from contextlib import suppress
from typing import Any, Protocol

from ringup.autogen.structs import Struct, memory
from ringup.errors import RingupError

# handles that a client chooses itself. Any number is good that the client has not used
FIRST_HANDLE = 0x5200_0000


class Door(Protocol):
    """What carries calls to the resource manager. Bytes are the C structs of the release `layouts`."""

    @property
    def layouts(self) -> str:
        """The release whose layouts it takes."""
        ...

    def alloc(
        self, client: int, parent: int, handle: int, class_id: int, params: bytes = ..., doing: str = ...
    ) -> bytes:
        """Make an object; return its parameters as they are afterwards."""
        ...

    def control(self, client: int, handle: int, command: int, params: bytes = ..., doing: str = ...) -> bytes:
        """Send an object a control; return its parameters as they are afterwards."""
        ...

    def free(self, client: int, parent: int, handle: int) -> None:
        """Free an object and all below it."""
        ...


class RmClient:
    """One client, `root`, and the handles of its objects."""

    def __init__(self, door: Door, root: int) -> None:
        self.door, self.root = door, root
        self._handles = itertools.count(FIRST_HANDLE)
        self._parents: dict[int, int] = {}

    def make(self, layout: type[Struct], **values: Any) -> Any:
        """Return a struct of the door's release."""
        return layout.at(self.door.layouts)(**values)

    def make_root(self, class_id: int, params: Any) -> None:
        """Make the client itself, where the door does not come with one."""
        self.door.alloc(self.root, 0, self.root, class_id, bytes(memory(params)), "making a client")

    def new_handle(self, parent: int) -> int:
        """Return a handle for an object below `parent` that the caller makes itself."""
        handle = next(self._handles)
        self._parents[handle] = parent
        return handle

    def alloc(self, parent: int, class_id: int, params: Any = None, doing: str = "") -> int:
        """Make an object and return its handle. `params`: a struct, which the answer replaces."""
        handle = next(self._handles)
        body = b"" if params is None else bytes(memory(params))
        try:
            answer = self.door.alloc(self.root, parent, handle, class_id, body, doing)
        except RingupError:
            raise
        # interrupted, perhaps when the object was there already: nobody else knows its handle
        except BaseException:
            with suppress(RingupError):
                self.door.free(self.root, parent, handle)
            raise
        self._parents[handle] = parent
        if params is not None:
            memory(params)[:] = answer
        return handle

    def control(self, handle: int, command: int, params: Any = None, doing: str = "") -> Any:
        """Send an object a control with a struct, which the answer replaces; return the struct."""
        body = b"" if params is None else bytes(memory(params))
        answer = self.door.control(self.root, handle, command, body, doing)
        if params is not None:
            memory(params)[:] = answer
        return params

    def ask(self, handle: int, command: int, layout: type[Struct], doing: str = "", **values: Any) -> Any:
        """Send a control whose parameters are made here; return them."""
        return self.control(handle, command, self.make(layout, **values), doing)

    def free(self, handle: int) -> None:
        """Free an object and all below it. Where that is refused or interrupted, it may be tried again."""
        self.door.free(self.root, self._parents.get(handle, self.root), handle)
        self._parents.pop(handle, None)
