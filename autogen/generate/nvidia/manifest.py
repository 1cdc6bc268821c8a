"""The list of what is wanted from NVIDIA's headers. This module reads wanted_nvidia.toml and checks every key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from fnmatch import translate
from pathlib import Path
from typing import Any

from ringup.autogen.releases import release_key
from ringup.errors import HeaderError

WANTED = Path(__file__).with_name("wanted_nvidia.toml")


@dataclass(frozen=True, slots=True)
class CUnit:
    """How one tree is parsed: folders, macros and headers of its single translation unit."""

    include: tuple[str, ...]
    defines: tuple[str, ...]
    headers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CModule:
    """One fact module of the unit."""

    path: str
    doc: str
    files: tuple[str, ...]
    structs: tuple[str, ...] = ("*",)
    constants: tuple[str, ...] = ("*",)
    words: tuple[str, ...] = ()
    opaque: tuple[str, ...] = ()  # structs treated as bytes: their members are not needed
    text: bool = False  # constants are read from the files as text, ignoring conditions around them
    # Layouts change within a branch: `at` serves only the releases that were read.
    exact: bool = False


@dataclass(frozen=True, slots=True)
class RegisterModule:
    """Registers of all chips in `files`. `names` are globs, `packets` stems of ranges without a place."""

    path: str
    doc: str
    files: tuple[str, ...]
    names: tuple[str, ...] = ("*",)
    constants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MethodModule:
    """Methods of related classes: class id in hex to the headers that describe it, each `doc:` or `tree:` and a
    path.
    """

    path: str
    doc: str
    classes: Mapping[str, tuple[str, ...]]
    packets: tuple[str, ...] = ()
    names: tuple[str, ...] = ("*",)
    counts: Mapping[str, int] = field(default_factory=dict)  # of arrays whose length no header gives


@dataclass(frozen=True, slots=True)
class TextureModule:
    """Formats in memory: `packets` have so many `bits`, `words` have 32."""

    path: str
    bits: int
    headers: tuple[str, ...]
    packets: tuple[str, ...]
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StructModule:
    """Structs of one header of open-gpu-doc."""

    path: str
    doc: str
    header: str
    structs: tuple[str, ...] = ("*",)
    constants: tuple[str, ...] = ("*",)


@dataclass(frozen=True, slots=True)
class Chips:
    """The published registers: folders by chip, nearest first, and memory formats among them that own ranges."""

    root: str
    folders: Mapping[str, tuple[str, ...]]
    packets: tuple[str, ...] = ()
    release: str = ""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The whole list."""

    branches: Mapping[str, str]
    unit: CUnit
    modules: tuple[CModule, ...]
    chips: Chips
    registers: tuple[RegisterModule, ...]
    qmd: tuple[str, ...]
    qmd_bits: Mapping[str, int]  # by major version
    texture: TextureModule
    methods: tuple[MethodModule, ...]
    video: tuple[StructModule, ...]
    doc_read: str = ""
    short: Mapping[str, str] = field(default_factory=dict)


class Globs:
    """Globs compiled to one pattern: it matches a name that some glob matches and no `!glob` excludes."""

    def __init__(self, patterns: Iterable[str]) -> None:
        listed = list(dict.fromkeys(patterns))
        self._takes = _joined(pattern for pattern in listed if not pattern.startswith("!"))
        self._refuses = _joined(pattern[1:] for pattern in listed if pattern.startswith("!"))

    def __call__(self, name: str) -> bool:
        return self._takes(name) is not None and self._refuses(name) is None


def _joined(globs: Iterable[str]) -> Callable[[str], re.Match[str] | None]:
    return re.compile("|".join(translate(glob) for glob in globs) or r"(?!)").match


def _frozen(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_frozen(item) for item in value)
    return {key: _frozen(item) for key, item in value.items()} if isinstance(value, dict) else value


def _row(kind: Any, where: str, row: Any) -> Any:
    if not isinstance(row, dict):
        raise HeaderError(f"wanted_nvidia.toml: {where} is no table")
    known = {item.name for item in fields(kind)}
    if unknown := sorted(set(row) - known):
        raise HeaderError(
            f"wanted_nvidia.toml: {where}: unknown key {unknown[0]}; there are {', '.join(sorted(known))}"
        )
    try:
        return kind(**{key: _frozen(value) for key, value in row.items()})
    except TypeError as error:
        raise HeaderError(f"wanted_nvidia.toml: {where}: {error}") from error


def load(path: Path = WANTED) -> Wanted:
    """Read the list. Raises `HeaderError` for what it does not understand."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise HeaderError(f"reading {path.name}: {error}") from error
    sections = {
        "branches",
        "unit",
        "short",
        "module",
        "chips",
        "registers",
        "qmd",
        "texture",
        "methods",
        "video",
        "doc",
    }
    if unknown := sorted(set(data) - sections):
        raise HeaderError(f"{path.name}: unknown section {unknown[0]}; there are {', '.join(sorted(sections))}")
    short: dict[str, str] = data.get("short", {})
    branches = dict(sorted(data.get("branches", {}).items(), key=lambda item: release_key(item[0])))
    if not branches:
        raise HeaderError(f"{path.name}: no [branches]: which releases are the rows read from?")

    def rows(kind: Any, section: str) -> tuple[Any, ...]:
        return tuple(_row(kind, f"[[{section}]] number {i}", row) for i, row in enumerate(data.get(section, ()), 1))

    modules = []
    for module in rows(CModule, "module"):
        files = tuple(_expand(name, short) for name in module.files)
        modules.append(replace(module, files=files))
    return Wanted(
        branches=branches,
        unit=_row(CUnit, "[unit]", data.get("unit")),
        modules=tuple(modules),
        chips=_row(Chips, "[chips]", data.get("chips")),
        registers=rows(RegisterModule, "registers"),
        qmd=tuple(data.get("qmd", {}).get("headers", ())),
        qmd_bits=dict(data.get("qmd", {}).get("bits", {})),
        texture=_row(TextureModule, "[texture]", data.get("texture")),
        methods=rows(MethodModule, "methods"),
        video=rows(StructModule, "video"),
        doc_read=data.get("doc", {}).get("read", ""),
        short=short,
    )


def _expand(name: str, short: Mapping[str, str]) -> str:
    head, slash, tail = name.partition("/")
    return f"{short[head]}/{tail}" if slash and head in short else name
