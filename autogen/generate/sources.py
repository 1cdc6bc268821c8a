"""Header packages on disk: which exist, and where. This module only looks; `tools/host/fetch.py` fetches them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ringup.autogen.generate.manifest import Manifest, Package
from ringup.errors import HeaderError

STAMP = ".ringup-version"  # next to an unpacked package: the version that was fetched


@dataclass(frozen=True, slots=True)
class Sources:
    """Where header packages are: a cache folder with one folder for each package, and trees given one by one."""

    manifest: Manifest
    cache: Path
    trees: Mapping[str, Path]

    def find(self, label: str) -> Path | None:
        """Return the root of package `label`, None if it is missing. Raises `HeaderError` if a given tree is not a
        folder.
        """
        package = self._package(label)
        if label in self.trees:
            if not self.trees[label].is_dir():
                raise HeaderError(f"header package {label}: {self.trees[label]} is not a folder")
            return self.trees[label]
        stamp = self.cache / label / STAMP
        root = self.cache / label / package.root
        return root if stamp.is_file() and root.is_dir() else None

    def root(self, label: str) -> Path:
        """Return the root of package `label`. Raises a `HeaderError` that says how to get it."""
        found = self.find(label)
        if found is None:
            package = self._package(label)
            how = (
                f"--tree {label}=DIR"
                if package.kind == "tree"
                else f"`ringup headers fetch {label}`, or --tree {label}=DIR"
            )
            raise HeaderError(
                f"header package {label} ({package.name or 'source tree'} {package.read}) is not in {self.cache}: {how}"
            )
        return found

    def version(self, label: str) -> str:
        """Return the version that was fetched; empty for a tree given by path, whose version is unknown."""
        stamp = self.cache / label / STAMP
        return stamp.read_text(encoding="utf-8").strip() if label not in self.trees and stamp.is_file() else ""

    def _package(self, label: str) -> Package:
        try:
            return self.manifest.packages[label]
        except KeyError:
            raise HeaderError(
                f"no header package {label}; the manifest has {', '.join(self.manifest.packages)}"
            ) from None
