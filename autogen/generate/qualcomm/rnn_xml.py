"""Load the Adreno register XML files as plain nodes.

They are untrusted input: no document type, no entities, and everything is bounded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn
from xml.parsers import expat

from ringup.errors import HeaderError

# The largest file of Linux 6.12 and Mesa 25.0 has 312 kB.
MAX_FILE_BYTES = 8 << 20
MAX_FILES = 64
MAX_NODES = 200_000
MAX_DEPTH = 24
MAX_ATTRIBUTE_CHARS = 4096
MAX_NUMBER = 0xFFFF_FFFF
NAMESPACE = "http://nouveau.freedesktop.org/"


@dataclass(slots=True)
class Node:
    """One element. `where` is a file name and line without folders."""

    tag: str
    attributes: dict[str, str]
    where: str
    children: list[Node] = field(default_factory=list)

    def text(self, name: str) -> str:
        """Return a required attribute."""
        value = self.attributes.get(name, "").strip()
        if not value:
            self.refuse(f"<{self.tag}> without {name}=")
        return value

    def number(self, name: str, default: int | None = None) -> int:
        """Return a number attribute, decimal or `0x`, at most 32 bits; with `default` None it is required."""
        text = self.attributes.get(name)
        if text is None and default is not None:
            return default
        try:
            value = int(self.text(name), 0)
        except ValueError:
            self.refuse(f"{name}={text!r} of <{self.tag}> is no number")
        if not 0 <= value <= MAX_NUMBER:
            self.refuse(f"{name}={text} of <{self.tag}> is not within 32 bits")
        return value

    def each(self, *tags: str) -> Iterator[Node]:
        """Yield the children with one of `tags`."""
        return (child for child in self.children if child.tag in tags)

    def refuse(self, reason: str) -> NoReturn:
        """Raise a `HeaderError` with this element's place."""
        raise HeaderError(f"{self.where}: {reason}")


class _Builder:
    """Handles expat's events; `root` is the finished tree."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.nodes = 0
        self.stack = [Node("", {}, name)]
        self.parser = expat.ParserCreate(namespace_separator=" ")
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.StartDoctypeDeclHandler = self._doctype
        self.parser.EntityDeclHandler = self._entity
        self.parser.ExternalEntityRefHandler = self._external

    @property
    def _where(self) -> str:
        return f"{self.name}:{self.parser.CurrentLineNumber}"

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self.nodes += 1
        if self.nodes > MAX_NODES or len(self.stack) > MAX_DEPTH:
            raise HeaderError(f"{self._where}: more than {MAX_NODES} elements or {MAX_DEPTH} levels; no register file")
        space, _, local = tag.rpartition(" ")
        if space != NAMESPACE:
            raise HeaderError(f"{self._where}: <{local}> is not of {NAMESPACE}: not a register file")
        if any(len(value) > MAX_ATTRIBUTE_CHARS for value in attributes.values()):
            raise HeaderError(f"{self._where}: an attribute of <{local}> has over {MAX_ATTRIBUTE_CHARS} characters")
        node = Node(local, attributes, self._where)
        self.stack[-1].children.append(node)
        self.stack.append(node)

    def _end(self, _tag: str) -> None:
        self.stack.pop()

    def _doctype(self, *_: object) -> NoReturn:
        raise HeaderError(f"{self._where}: a document type is refused; register files have none")

    def _entity(self, *_: object) -> NoReturn:
        raise HeaderError(f"{self._where}: an entity is refused; register files have none")

    def _external(self, *_: object) -> NoReturn:
        raise HeaderError(f"{self._where}: an external entity is refused; register files have none")


def parse(text: bytes, name: str) -> Node:
    """Return the root element of one file; error messages give `name`."""
    if len(text) > MAX_FILE_BYTES:
        raise HeaderError(f"{name}: {len(text)} bytes, a register file has at most {MAX_FILE_BYTES}")
    builder = _Builder(name)
    try:
        builder.parser.Parse(text, True)
    except expat.ExpatError as error:
        raise HeaderError(f"{name}:{error.lineno}: not well-formed XML: {expat.ErrorString(error.code)}") from error
    root = builder.stack[0].children[0]
    if root.tag != "database":
        raise HeaderError(f"{root.where}: the root is <{root.tag}>, not <database>")
    return root


def load(root: Path, name: str) -> list[Node]:
    """Load `root/name` and its imports, imported files first, each once.

    Imports are paths below `root`; others are refused.
    """
    order: dict[str, Node | None] = {}
    _load(root, name, name, order)
    return [node for node in order.values() if node is not None]


def _load(root: Path, name: str, wanted_by: str, order: dict[str, Node | None]) -> None:
    if name in order:
        return
    if len(order) >= MAX_FILES:
        raise HeaderError(f"{wanted_by}: more than {MAX_FILES} imported files")
    path = root / name
    if not path.resolve().is_relative_to(root.resolve()):
        raise HeaderError(f"{wanted_by}: import of {name!r}, which leads out of the register folder")
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise HeaderError(f"{name}: {size} bytes, a register file has at most {MAX_FILE_BYTES}")
        tree = parse(path.read_bytes(), path.name)
    except OSError as error:
        raise HeaderError(
            f"{wanted_by} wants register file {name}, and {root.name}/ gives: {error.strerror}; unpack the source package"
        ) from error
    order[name] = None
    for child in tree.each("import"):
        _load(root, child.text("file"), tree.where.partition(":")[0], order)
    # so that the dict has imported files first
    del order[name]
    order[name] = tree
