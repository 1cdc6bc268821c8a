"""NVIDIA's facts: one call makes every module of autogen/nv from driver trees and open-gpu-doc, or verifies what it is given."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ringup.autogen.generate.nvidia_manifest import Wanted, load
from ringup.autogen.generate.nvidia_rows import emit_rows, merge, read_back
from ringup.autogen.generate.nvidia_unit import ModuleFacts, module_facts, parse_tree, release_of
from ringup.autogen.releases import release_key
from ringup.errors import HeaderError

COMMITTED = Path(__file__).resolve().parents[1] / "nv"
PROJECT = "NVIDIA open-gpu-kernel-modules"


def generate_nvidia(
    trees: Mapping[str, Path], doc_root: Path | None = None, committed: Path = COMMITTED
) -> dict[str, str | bytes]:
    """Return every module of autogen/nv: path below autogen to text.

    `trees` are roots of driver sources under any labels; each says its release itself. Rows of branches without a tree, and bit ranges without
    their source, come from `committed`, so any subset of the sources gives the same text unless a source contradicts it.
    Raises `HeaderError` for a tree of a release that no row is read from, and for a row that nothing supports.
    """
    wanted = load()
    roots = by_branch(wanted, trees)
    out: dict[str, str | bytes] = {}
    out |= c_modules(wanted, roots, committed)
    return out


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


def c_modules(wanted: Wanted, roots: Mapping[str, Path], committed: Path) -> dict[str, str]:
    """Return the modules read from the C headers of the trees."""
    fresh: dict[str, dict[str, ModuleFacts]] = {}
    for branch, root in roots.items():
        fresh[branch] = module_facts(wanted, root, parse_tree(wanted, root))
    tags = ", ".join(wanted.branches.values())
    out = {}
    for module in wanted.modules:
        path = committed / f"{module.path}.py"
        old = read_back(path.read_text(encoding="utf-8"), path.name) if path.is_file() else None
        rows = merge(module.path, wanted.branches, {branch: facts[module.path] for branch, facts in fresh.items()}, old)
        if not any(rows.structs.values()) and not any(rows.constants.values()):
            raise HeaderError(f"module {module.path}: none of its files or names is in any tree")
        out[f"nv/{module.path}.py"] = emit_rows(module.doc, f"{PROJECT}, one tag a branch:\n{tags}", rows, module.words)
    return out
