"""The manifest: which facts are wanted, from which headers. This module reads manifest.toml and checks every key."""

from __future__ import annotations

import keyword
import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, get_args

from ringup.errors import HeaderError

LIMIT_BYTES = 4 << 20  # limit of a manifest's size; ours has a hundredth of it
MANIFEST = Path(__file__).with_name("manifest.toml")
Kind = Literal["deb", "deb-source", "deb-root", "wheel", "tree"]
Language = Literal["c", "objective-c"]
READERS = re.compile(r"ringup\.autogen\.generate(\.[a-z][a-z0-9_]*)+:(generate|read)_[a-z0-9_]+", re.ASCII)
_CHOICES = {"Kind": get_args(Kind), "Language": get_args(Language)}
_LABEL = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Package:
    """A header package: how to get it, and the version from which the committed facts were read."""

    label: str
    kind: Kind
    read: str
    terms: str
    name: str = ""  # the package name in the distribution or the registry
    # "deb-root": the package and all its dependencies are unpacked into one root; each of `programs` in its `folder`
    # must run there.
    programs: tuple[str, ...] = ()
    folder: str = ""
    suites: tuple[str, ...] = ()
    # the tar inside a binary package; empty if its files themselves are taken
    inside: str = ""
    root: str = ""  # the folder that the tar unpacks to
    take: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CModule:
    """One module read with libclang.

    Globs select structs and constants; `stubs` are includes replaced by empty files. `types` names preludes of
    `run.py`: "stdint", "kernel", "uapi".
    """

    module: str
    doc: str
    package: str
    headers: tuple[str, ...]
    include: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    stubs: tuple[str, ...] = ()
    defines: tuple[str, ...] = ()
    prelude: str = ""
    structs: tuple[str, ...] = ()
    constants: tuple[str, ...] = ()
    helpers: tuple[str, ...] = ()  # function-like macros that place bits, emitted as (high, low)
    macros_only: bool = False
    language: Language = "c"


@dataclass(frozen=True, slots=True)
class SetOfModules:
    """Modules that have their own reader: `reader` is `module:function`, called with the packages' roots."""

    name: str
    reader: str
    packages: tuple[str, ...]
    wanted: str
    optional: tuple[str, ...] = ()  # packages that add or verify rows if they are available


@dataclass(frozen=True, slots=True)
class Manifest:
    """The whole list."""

    packages: Mapping[str, Package]
    modules: tuple[CModule, ...]
    sets: tuple[SetOfModules, ...]


def load(path: Path = MANIFEST) -> Manifest:
    """Read a manifest. Raises `HeaderError` for an unknown key, a missing one, a wrong type or an undescribed
    package.
    """
    try:
        with path.open("rb") as file:
            text = file.read(LIMIT_BYTES + 1)
        if len(text) > LIMIT_BYTES:
            raise HeaderError(f"reading the manifest {path}: it has more than {LIMIT_BYTES} bytes; no manifest does")
        data = tomllib.loads(text.decode())
    except OSError as error:
        raise HeaderError(f"reading the manifest {path}: {error.strerror}; --manifest wants a file") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise HeaderError(f"reading the manifest {path}: {error}") from error
    if unknown := sorted(set(data) - {"package", "set", "c"}):
        raise HeaderError(f"{path.name}: unknown section {unknown[0]}; there are package, set and c")
    described = data.get("package", {})
    if not isinstance(described, dict):
        raise HeaderError(f"{path.name}: package must be tables [package.NAME], not {described!r}")
    packages = {label: _row(Package, f"package.{label}", row, label=label) for label, row in described.items()}
    modules = tuple(_row(CModule, f"[[c]] number {i}", row) for i, row in _tables(data, "c", path))
    sets = tuple(_row(SetOfModules, f"[[set]] number {i}", row) for i, row in _tables(data, "set", path))
    _check_names(packages, modules, sets)
    uses = [(m.module, label) for m in modules for label in packages_of(m)]
    for where, label in uses + [(s.name, label) for s in sets for label in (*s.packages, *s.optional)]:
        if label not in packages:
            raise HeaderError(f"{path.name}: {where} wants package {label}, which no [package.{label}] describes")
    return Manifest(packages, modules, sets)


def packages_of(module: CModule) -> tuple[str, ...]:
    """Return the packages that a C module is read from: its own, and the kernel's if it takes types from there."""
    return tuple(dict.fromkeys((module.package, *(["linux"] if "uapi" in module.types else []))))


def _tables(data: Mapping[str, Any], section: str, path: Path) -> list[tuple[int, Any]]:
    rows = data.get(section, [])
    if not isinstance(rows, list):
        raise HeaderError(f"{path.name}: {section} must be tables [[{section}]], not {rows!r}")
    return list(enumerate(rows, 1))


def _check_names(packages: Mapping[str, Package], modules: tuple[CModule, ...], sets: tuple[SetOfModules, ...]) -> None:
    """Refuse duplicate names, and names that are not a valid file name, import or line of text."""
    for label in packages:
        if not _LABEL.fullmatch(label):
            raise HeaderError(f"manifest: package {label!r}: want letters, digits, dots and dashes")
    for m in modules:
        parts = m.module.split("/")
        if not all(part.isidentifier() and part.isascii() and not keyword.iskeyword(part) for part in parts):
            raise HeaderError(f"manifest: module {m.module!r}: want Python names joined by /, such as amd/mqd")
        for text in (m.doc, *m.headers):
            if not text.isprintable() or set(text) & set('"\\'):
                raise HeaderError(f"manifest: {m.module}: {text!r} must be one line without quotes and backslashes")
    for s in sets:
        if not READERS.fullmatch(s.reader):
            raise HeaderError(
                f"manifest: set {s.name}: {s.reader!r} is no reader; want ringup.autogen.generate.MODULE:generate_NAME or :read_NAME"
            )
    names = Counter([m.module for m in modules] + [s.name for s in sets])
    if twice := [name for name, count in names.items() if count > 1]:
        raise HeaderError(f"manifest: {twice[0]} is there {names[twice[0]]} times")


def _row(kind: type[Any], where: str, row: Any, **given: str) -> Any:
    """Build a dataclass from a table of the file; lists become tuples. `given` are values that are not in the table."""
    if not isinstance(row, dict):
        raise HeaderError(f"manifest: {where} must be a table, not {row!r}")
    known = {field.name: str(field.type) for field in fields(kind) if field.name not in given}
    for key, value in row.items():
        if key not in known:
            raise HeaderError(f"manifest: {where} has an unknown key {key}; known: {', '.join(known)}")
        if choices := _CHOICES.get(known[key]):
            if value not in choices:
                raise HeaderError(f"manifest: {where}: {key} must be one of {', '.join(choices)}, not {value!r}")
            continue
        wanted: type = {"str": str, "bool": bool, "tuple[str, ...]": list}[known[key]]
        if not isinstance(value, wanted) or (
            isinstance(value, list) and not all(isinstance(part, str) for part in value)
        ):
            raise HeaderError(f"manifest: {where}: {key} must be {known[key]}, not {value!r}")
    try:
        return kind(**given, **{key: tuple(value) if isinstance(value, list) else value for key, value in row.items()})
    except TypeError as error:
        raise HeaderError(f"manifest: {where}: {error}") from None
