"""One parsed tree of NVIDIA's open kernel modules: what each wanted module finds in it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ringup.autogen.generate.c.clang import parse
from ringup.autogen.generate.c.tokens import Unreadable
from ringup.autogen.generate.emit.facts import BitRange, Constant, Member, Rejected, StructFacts, TypeRef, Unit
from ringup.autogen.generate.emit.structs import closure
from ringup.autogen.generate.nvidia.manifest import CModule, Globs, Wanted
from ringup.autogen.generate.nvidia.ranges import Evaluator, read_defines
from ringup.errors import HeaderError

BYTE_AND_MASK = "a byte number and a mask"  # the macro reader's reason for `0:0x10`
_BYTE_AND_MASK = re.compile(r"\(?\s*(\d+)\s*:\s*(0[xX][0-9a-fA-F]+)\s*\)?")
_VERSION = re.compile(r"^NVIDIA_VERSION\s*=\s*([0-9.]+)\s*$", re.MULTILINE)


@dataclass
class ModuleFacts:
    """What one module finds in one release.

    They are structs (inner ones before outer ones) and constants, in the headers' order.
    """

    structs: dict[str, StructFacts] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)
    rejected: list[Rejected] = field(default_factory=list)


def release_of(root: Path) -> str:
    """Return the release that a tree states in version.mk."""
    try:
        found = _VERSION.search((root / "version.mk").read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        raise HeaderError(
            f"{root.name} is no tree of NVIDIA's open kernel modules: version.mk: {error.strerror}"
        ) from error
    if found is None:
        raise HeaderError(f"{root.name}/version.mk names no NVIDIA_VERSION")
    return found[1]


def _found(root: Path, names: Iterable[str], *, optional: bool = False) -> list[Path]:
    paths: list[Path] = []
    for name in names:
        may_lack = optional or name.startswith("?")
        matched = sorted(root.glob(name.lstrip("?")))
        if not matched and not may_lack:
            raise HeaderError(f"{root.name} lacks {name}; is the tree unpacked whole?")
        paths += [path for path in matched if path.is_file() and path not in paths]
    return paths


def parse_tree(wanted: Wanted, root: Path, modules: Sequence[CModule] | None = None) -> Unit:
    """Parse the one translation unit of a tree; keep only facts that `modules` (default: all) may use."""
    chosen = [module for module in (wanted.modules if modules is None else modules) if not module.text]
    files = _found(root, (name for module in chosen for name in module.files), optional=True)
    struct_globs = [pattern for module in chosen for pattern in module.structs if not pattern.startswith("!")]
    constant_globs = [pattern for module in chosen for pattern in module.constants if not pattern.startswith("!")]
    # A folder that a module uses almost entirely replaces its files: each further place slows every search.
    places = dict.fromkeys(path.parent if path.parent.parent.name == "ctrl" else path for path in files)
    return parse(
        _found(root, wanted.unit.headers),
        include=[root / folder for folder in wanted.unit.include],
        defines=wanted.unit.defines,
        from_files=list(places),
        want_structs=Globs(struct_globs),
        want_constants=Globs(constant_globs),
    )


def module_facts(wanted: Wanted, root: Path, unit: Unit) -> dict[str, ModuleFacts]:
    """Sort the facts of a tree into the modules that want them, by their file and names."""
    structs_in: dict[str, list[StructFacts]] = {}
    for facts in unit.structs.values():
        structs_in.setdefault(facts.where.partition(":")[0], []).append(facts)
    constants_in: dict[str, list[Constant]] = {}
    for constant in unit.constants.values():
        constants_in.setdefault(constant.where.partition(":")[0], []).append(constant)
    rejected_in: dict[str, list[Rejected]] = {}
    for rejected in unit.rejected:
        rejected_in.setdefault(rejected.where.partition(":")[0], []).append(rejected)
    out: dict[str, ModuleFacts] = {}
    for module in wanted.modules:
        found = out[module.path] = ModuleFacts()
        if module.text:
            found.constants = _from_text(module, _found(root, module.files), found.rejected)
            continue
        names: list[str] = []
        chooses_struct, chooses_constant = Globs(module.structs), Globs(module.constants)
        for file in dict.fromkeys(path.name for path in _found(root, module.files, optional=True)):
            names += [facts.name for facts in structs_in.get(file, ()) if chooses_struct(facts.name)]
            found.constants |= {c.name: c for c in constants_in.get(file, ()) if chooses_constant(c.name)}
            found.rejected += [
                r for r in rejected_in.get(file, ()) if chooses_struct(r.name) or chooses_constant(r.name)
            ]
        _add_masks(found, _found(root, module.files, optional=True))
        known = replace(unit, structs=_opaque(unit, module.opaque)) if module.opaque else unit
        found.structs = {facts.name: facts for facts in closure(known, names)}
    return out


def _add_masks(found: ModuleFacts, paths: Sequence[Path]) -> None:
    """Move capability bits, `byte:mask`, from the rejections to the constants.

    They are pairs like a bit range, with the byte index of their tables. Such a pair is not a range of bits, so it does
    not become a field of a word.
    """
    pairs = {r.name for r in found.rejected if r.reason.startswith(BYTE_AND_MASK)}
    if not pairs:
        return
    for define in (define for path in paths for define in read_defines(path)):
        match = _BYTE_AND_MASK.fullmatch(define.body) if define.name in pairs else None
        if match:
            pair = BitRange(int(match[1], 0), int(match[2], 0))
            found.constants[define.name] = Constant(define.name, pair, define.where)
    found.rejected = [r for r in found.rejected if r.name not in found.constants]


def _opaque(unit: Unit, names: Sequence[str]) -> dict[str, StructFacts]:
    """Return all structs; the members of the named types become bytes."""
    out = {}
    for facts in unit.structs.values():
        if any(member.type.base in names for member in facts.members):
            facts = replace(facts, members=tuple(_as_bytes(member, unit, names) for member in facts.members))
        out[facts.name] = facts
    return out


def _as_bytes(member: Member, unit: Unit, names: Sequence[str]) -> Member:
    if member.type.base not in names:
        return member
    dims = member.type.dims
    # a flexible array remains one, of bytes
    if dims != (None,):
        dims = (*dims, unit.structs[member.type.base].size_bytes)
    return replace(member, type=TypeRef("u8", dims))


def _from_text(module: CModule, paths: Sequence[Path], rejected: list[Rejected]) -> dict[str, Constant]:
    """Return constants of headers that define nothing if another header was included before."""
    chooses = Globs(module.constants)
    defines = {define.name: define for path in paths for define in read_defines(path)}
    evaluate = Evaluator(defines)
    out = {}
    for define in defines.values():
        if define.params or not define.body or not chooses(define.name):
            continue
        try:
            out[define.name] = Constant(define.name, evaluate(define), define.where)
        except Unreadable as error:
            rejected.append(Rejected(define.name, define.where, str(error)))
    return out
