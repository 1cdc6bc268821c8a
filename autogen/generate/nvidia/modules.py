"""NVIDIA's facts: one call makes every module of autogen/nv from driver trees and open-gpu-doc, or verifies them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ringup.autogen.generate.c.clang import parse
from ringup.autogen.generate.emit.facts import Rejected
from ringup.autogen.generate.emit.structs import closure, emit_module
from ringup.autogen.generate.nvidia.bits import (
    Published,
    databases,
    method_module,
    qmd_modules,
    register_module,
    texture_module,
)
from ringup.autogen.generate.nvidia.manifest import Globs, StructModule, Wanted, load
from ringup.autogen.generate.nvidia.rows import emit_rows, merge, read_back
from ringup.autogen.generate.nvidia.unit import ModuleFacts, module_facts, parse_tree, release_of
from ringup.autogen.releases import release_key
from ringup.errors import HeaderError

COMMITTED = Path(__file__).resolve().parents[2] / "nv"
REJECTED = "nv/rejected.tsv"
ROWS_DOC = """Rows are those of the releases READ_FROM (tags), one a branch. What users of the kernel driver send stayed the same within
a branch; GSP's structs and a few rare controls did not: take those only for exactly these releases."""
NO_VALUE = "the body is empty"  # include guards and switches: nothing was rejected
PROJECT = "NVIDIA open-gpu-kernel-modules"
_NV_TYPES = """
typedef unsigned char NvU8; typedef unsigned short NvU16; typedef unsigned int NvU32; typedef unsigned long long NvU64;
typedef signed char NvS8; typedef short NvS16; typedef int NvS32; typedef long long NvS64; typedef unsigned char NvBool;
"""


def read_nvidia(*required: Path, optional: Mapping[str, Path] | None = None) -> dict[str, str | bytes]:
    """Implement a set of the manifest: the required driver trees, then optional ones and open-gpu-doc, by package."""
    given = dict(optional or {})
    doc_root = given.pop("open-gpu-doc", None)
    trees = {str(at): root for at, root in enumerate(required)} | given
    return generate_nvidia(trees, doc_root)


def generate_nvidia(
    trees: Mapping[str, Path], doc_root: Path | None = None, committed: Path = COMMITTED
) -> dict[str, str | bytes]:
    """Return every file of NVIDIA's facts: path below autogen to content.

    `trees` are roots of driver sources under any labels; each states its release itself. Rows of branches without a
    tree, and bit ranges without their source, come from `committed`. So any subset of the sources gives the same text
    unless a source contradicts it. Raises `HeaderError` for a tree of a release from which no row is read, and for a
    row without any source.
    """
    wanted = load()
    roots = by_branch(wanted, trees)
    rejected: list[tuple[str, Rejected]] = []
    out: dict[str, str | bytes] = {}
    out |= c_modules(wanted, roots, committed, rejected)
    out |= bit_modules(wanted, roots, doc_root, committed, rejected)
    if wanted.chips.release in roots and doc_root is not None:
        out[REJECTED] = _rejected_table(rejected)
    else:
        out |= _as_committed(committed, [REJECTED])
    return out


def _rejected_table(rejected: Iterable[tuple[str, Rejected]]) -> str:
    """Return what could not be read in the newest driver tree and the documents, each with its reason."""
    rows = sorted({f"{path}\t{r.name}\t{r.where}\t{r.reason}" for path, r in rejected if r.reason != NO_VALUE})
    return "\n".join(["module\tname\twhere\treason", *rows]) + "\n"


def by_branch(wanted: Wanted, trees: Mapping[str, Path]) -> dict[str, Path]:
    """Return trees by branch, oldest first."""
    found: dict[str, Path] = {}
    for root in trees.values():
        release = release_of(root)
        branch = release.partition(".")[0]
        read = wanted.branches.get(branch)
        if read != release:
            known = ", ".join(wanted.branches.values())
            raise HeaderError(
                f"tree {root.name} is release {release}; rows are read from {known} (wanted_nvidia.toml, [branches])"
            )
        found[branch] = root
    return dict(sorted(found.items(), key=lambda item: release_key(item[0])))


def c_modules(
    wanted: Wanted, roots: Mapping[str, Path], committed: Path, rejected: list[tuple[str, Rejected]]
) -> dict[str, str]:
    """Return the modules read from the C headers of the trees."""
    fresh: dict[str, dict[str, ModuleFacts]] = {}
    for branch, root in roots.items():
        fresh[branch] = module_facts(wanted, root, parse_tree(wanted, root))
        if branch == wanted.chips.release:
            rejected += [(f"nv/{path}", r) for path, facts in fresh[branch].items() for r in facts.rejected]
    out = {}
    for module in wanted.modules:
        path = committed / f"{module.path}.py"
        old = read_back(path.read_text(encoding="utf-8"), path.name) if path.is_file() else None
        rows = merge(module.path, wanted.branches, {branch: facts[module.path] for branch, facts in fresh.items()}, old)
        if not any(rows.structs.values()) and not any(rows.constants.values()):
            raise HeaderError(f"module {module.path}: none of its files or names is in any tree")
        doc = f"{module.doc}\n\n{ROWS_DOC}"
        out[f"nv/{module.path}.py"] = emit_rows(doc, PROJECT, rows, module.words, wanted.branches, exact=module.exact)
    return out


def bit_modules(
    wanted: Wanted,
    roots: Mapping[str, Path],
    doc_root: Path | None,
    committed: Path,
    rejected: list[tuple[str, Rejected]],
) -> dict[str, str | bytes]:
    """Return the modules and databases of bit ranges; those without an available source are the committed ones."""
    out: dict[str, str | bytes] = {}
    tree = roots.get(wanted.chips.release)
    driver = f"{PROJECT} {wanted.branches[wanted.chips.release]}"
    documents = f"NVIDIA open-gpu-doc {wanted.doc_read}"
    if tree is not None:
        published = Published(wanted.chips, tree)
        for registers in wanted.registers:
            out[f"nv/{registers.path}.py"] = register_module(registers, published, driver, rejected)
        rejected += [("regs/nv", r) for chip in wanted.chips.folders for r in published.rejected(chip)]
        out |= databases(published, driver)
    else:
        out |= _as_committed(committed, [f"nv/{registers.path}.py" for registers in wanted.registers])
        out |= _as_committed(
            committed, [f"regs/{kind}/{chip}.bin" for chip in wanted.chips.folders for kind in ("nv", "chips")]
        )
    for methods in wanted.methods:
        needs = {header.partition(":")[0] for headers in methods.classes.values() for header in headers}
        places = {"doc": doc_root, "tree": tree}
        at_hand = {name: root for name, root in places.items() if name in needs and root is not None}
        path = f"nv/{methods.path}.py"
        source = " and ".join({"doc": documents, "tree": driver}[name] for name in sorted(needs))
        out |= (
            {path: method_module(methods, at_hand, source, rejected)}
            if len(at_hand) == len(needs)
            else _as_committed(committed, [path])
        )
    if doc_root is not None:
        out |= qmd_modules(wanted, doc_root, documents, rejected)
        out[f"nv/{wanted.texture.path}.py"] = texture_module(wanted, doc_root, documents, rejected)
        for video in wanted.video:
            out[f"nv/{video.path}.py"] = video_module(video, doc_root, documents, rejected)
    else:
        out |= _as_committed(committed, [f"nv/{path.name}" for path in sorted(committed.glob("qmdv*.py"))])
        out |= _as_committed(
            committed, [f"nv/{path}.py" for path in (wanted.texture.path, *(video.path for video in wanted.video))]
        )
    return out


def video_module(video: StructModule, doc_root: Path, source: str, rejected: list[tuple[str, Rejected]]) -> str:
    """Return the structs and constants of one header of open-gpu-doc."""
    structs, constants = Globs(video.structs), Globs(video.constants)
    header = doc_root / video.header
    unit = parse([header], prelude=_NV_TYPES, from_files=[header], want_structs=structs, want_constants=constants)
    found = closure(unit, unit.structs)
    rejected += [(f"nv/{video.path}", r) for r in unit.rejected]
    return emit_module(video.doc, source, found, list(unit.constants.values()))


def _as_committed(committed: Path, paths: Iterable[str]) -> dict[str, str | bytes]:
    out: dict[str, str | bytes] = {}
    for path in paths:
        file = committed.parent / path
        try:
            out[path] = file.read_bytes() if path.endswith(".bin") else file.read_text(encoding="utf-8")
        except OSError as error:
            raise HeaderError(
                f"autogen/{path}: its source is not given and it is not committed: {error.strerror}"
            ) from error
    return out
