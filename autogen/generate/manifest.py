"""The manifest: which facts are wanted, from which headers. Reads manifest.toml and checks every key."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ringup.errors import HeaderError

MANIFEST = Path(__file__).with_name("manifest.toml")


@dataclass(frozen=True, slots=True)
class Package:
    """A header package: how it is had and which version the committed facts were read from."""

    label: str
    kind: str  # "deb", "deb-source", "deb-root" or "tree"
    read: str
    terms: str
    name: str = ""  # the distribution's package name
    also: tuple[str, ...] = ()  # "deb-root": further packages unpacked into the same root
    suites: tuple[str, ...] = ()
    inside: str = ""  # the tar inside a binary package
    root: str = ""  # the folder the tar unpacks to
    take: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Every distribution package this takes."""
        return (self.name, *self.also)


@dataclass(frozen=True, slots=True)
class CModule:
    """One module read with libclang. Globs choose structs and constants; `stubs` are includes served as empty files.

    `types` names preludes of `run.py`: "stdint", "kernel", "uapi".
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


@dataclass(frozen=True, slots=True)
class SetOfModules:
    """Modules that a reader of their own makes; `reader` is `module:function`, called with the packages' roots."""

    name: str
    reader: str
    packages: tuple[str, ...]
    wanted: str
    optional: tuple[str, ...] = ()  # packages that add or verify rows where they are at hand


@dataclass(frozen=True, slots=True)
class Manifest:
    """The whole list."""

    packages: Mapping[str, Package]
    modules: tuple[CModule, ...]
    sets: tuple[SetOfModules, ...]


def load(path: Path = MANIFEST) -> Manifest:
    """Read a manifest. Raises `HeaderError` for an unknown key, a missing one, a wrong type or a package nobody describes."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise HeaderError(f"reading the manifest {path.name}: {error}") from error
    if unknown := sorted(set(data) - {"package", "set", "c"}):
        raise HeaderError(f"{path.name}: unknown section {unknown[0]}; there are package, set and c")
    packages = {
        label: _row(Package, f"package.{label}", {"label": label, **row})
        for label, row in data.get("package", {}).items()
    }
    modules = tuple(_row(CModule, f"[[c]] number {i}", row) for i, row in enumerate(data.get("c", ()), 1))
    sets = tuple(_row(SetOfModules, f"[[set]] number {i}", row) for i, row in enumerate(data.get("set", ()), 1))
    uses = [(m.module, label) for m in modules for label in packages_of(m)]
    for where, label in uses + [(s.name, label) for s in sets for label in (*s.packages, *s.optional)]:
        if label not in packages:
            raise HeaderError(f"{path.name}: {where} wants package {label}, which no [package.{label}] describes")
    return Manifest(packages, modules, sets)


def packages_of(module: CModule) -> tuple[str, ...]:
    """Return the packages a C module is read from: its own, and the kernel's where it takes types from there."""
    return tuple(dict.fromkeys((module.package, *(["linux"] if "uapi" in module.types else []))))


def _row(kind: type[Any], where: str, row: Mapping[str, Any]) -> Any:
    """Build a dataclass from a table of the file, lists becoming tuples."""
    known = {field.name: str(field.type) for field in fields(kind)}
    for key, value in row.items():
        if key not in known:
            raise HeaderError(f"manifest: {where} has an unknown key {key}; known: {', '.join(known)}")
        wanted: type = {"str": str, "bool": bool, "tuple[str, ...]": list}[known[key]]
        if not isinstance(value, wanted) or (
            isinstance(value, list) and not all(isinstance(part, str) for part in value)
        ):
            raise HeaderError(f"manifest: {where}: {key} must be {known[key]}, not {value!r}")
    try:
        return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in row.items()})
    except TypeError as error:
        raise HeaderError(f"manifest: {where}: {error}") from None
