"""The kernel as a transport sees it: files below a root, and calls on open nodes. Tests give a root of their own and
answer the calls.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ringup.autogen.structs import memory
from ringup.drivers.transport.linux.mapping import map_node
from ringup.errors import CardBusy, DeviceLost, NotSupported, OutOfMemory, PermissionNeeded, RingupError, TransportError

Ioctl = Callable[[int, int, Any], int]
Store = Callable[[Path, str], None]
# What to do about a refusal; a function of the errno where that decides.
Remedy = str | Callable[[int | None], str]
# the class of error for an errno of the kernel
REASONS: dict[int, type[RingupError]] = {
    errno.EPERM: PermissionNeeded,
    errno.EACCES: PermissionNeeded,
    errno.EBUSY: CardBusy,
    errno.ENOMEM: OutOfMemory,
    errno.ENODEV: DeviceLost,
    errno.ENXIO: DeviceLost,
    errno.ENOTTY: NotSupported,
    errno.EOPNOTSUPP: NotSupported,
    errno.ENOSYS: NotSupported,
}


def explained(error: OSError, doing: str, remedy: Remedy = "") -> RingupError:
    """Return the `RingupError` for a refusal by the kernel; the caller raises it."""
    reason = REASONS.get(error.errno or 0, TransportError)
    todo = remedy if isinstance(remedy, str) else remedy(error.errno)
    return reason(f"{doing}: {error.strerror or error}" + (f"; {todo}" if todo else ""))


def store(path: Path, text: str) -> None:
    """Write a control file in one call, as sysfs needs it. It is never created."""
    node = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(node, text.encode())
    finally:
        os.close(node)


class Kernel:
    """Where /sys, /proc, /dev and /run lie, and how nodes are called.

    Reading a fact never raises: absent or refused facts are empty. Writing and opening raise a `RingupError` that names
    the file.
    """

    def __init__(self, root: Path = Path("/"), ioctl: Ioctl = fcntl.ioctl, store: Store = store) -> None:
        """`ioctl` calls a node, `store` writes a control file; tests replace them."""
        self.root, self._ioctl, self._store = root, ioctl, store

    def path(self, *parts: str) -> Path:
        """Return a path below the root."""
        return self.root.joinpath(*(part.lstrip("/") for part in parts))

    def shown(self, path: Path) -> str:
        """Return a path as the user knows it, without the root of a test."""
        return f"/{path.relative_to(self.root)}" if path.is_relative_to(self.root) else str(path)

    def text(self, path: Path) -> str:
        """Return a file's words without blanks around them; empty when it cannot be read."""
        try:
            return path.read_bytes().decode(errors="replace").strip()
        except OSError:
            return ""

    def number(self, path: Path, otherwise: int = 0) -> int:
        """Return a file's number, decimal or 0x; `otherwise` when there is none."""
        try:
            return int(self.text(path), 0)
        except ValueError:
            return otherwise

    def link(self, path: Path) -> str:
        """Return the last part of what a link points to, such as a driver's name; empty when there is no link."""
        try:
            return Path(os.readlink(path)).name
        except OSError:
            return ""

    def names(self, path: Path) -> list[str]:
        """List a folder in order; nothing when it is absent."""
        try:
            return sorted(os.listdir(path))
        except OSError:
            return []

    def write(self, path: Path, text: str, doing: str) -> None:
        """Write a control file. A refusal raises a `RingupError` that begins with `doing`."""
        try:
            self._store(path, text)
        except OSError as error:
            raise explained(error, f"{doing}: writing {text.strip()!r} to {self.shown(path)}") from error

    def open(self, path: Path, doing: str, flags: int = os.O_RDWR, remedy: Remedy = "") -> int:
        """Open a node and return its descriptor, which the caller closes."""
        try:
            return os.open(path, flags | os.O_CLOEXEC)
        except OSError as error:
            raise explained(error, f"{doing}: opening {self.shown(path)}", remedy) from error

    def map(
        self, node: int, size_bytes: int, doing: str, remedy: str = "", *, start: int = 0, writable: bool = True
    ) -> mmap.mmap:
        """Map bytes of a node into this process and none of its children; the caller closes the mapping."""
        try:
            if writable:
                mapping = map_node(node, size_bytes, start)
            else:
                mapping = mmap.mmap(node, size_bytes, mmap.MAP_SHARED, mmap.PROT_READ, offset=start)
            mapping.madvise(mmap.MADV_DONTFORK)
        except OSError as error:
            raise explained(error, doing, remedy) from error
        return mapping

    def call(self, node: int, request: int, argument: Any = 0) -> int:
        """Call a node with an integer, a `bytearray` or a generated struct, which is changed in place. Raises
        `OSError`.
        """
        plain = isinstance(argument, int | bytearray)
        return self._ioctl(node, request, argument if plain else memory(argument))

    def ask(self, node: int, request: int, argument: Any, doing: str, remedy: Remedy = "") -> int:
        """Call a node. A refusal raises a `RingupError` that begins with `doing`."""
        try:
            return self.call(node, request, argument)
        except OSError as error:
            raise explained(error, doing, remedy) from error


class Nodes:
    """Nodes held open for one purpose, `doing`."""

    def __init__(self, kernel: Kernel, doing: str, remedy: Remedy = "") -> None:
        self._kernel, self._doing, self._remedy = kernel, doing, remedy
        self._held: list[int] = []

    def open(self, path: Path, flags: int = os.O_RDWR) -> int:
        """Open a node, hold it and return its descriptor."""
        return self.hold(self._kernel.open(path, self._doing, flags, self._remedy))

    def hold(self, node: int) -> int:
        """Take an open node over."""
        self._held.append(node)
        return node

    def close(self) -> None:
        """Close them, the newest first. Twice is harmless."""
        while self._held:
            os.close(self._held.pop())
