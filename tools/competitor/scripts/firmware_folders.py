"""Firmware of tinygrad's driver from folders, inside its environment."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# the modules that hold the function by its name
HOLDERS = ("amdev", "ip")


def replace_firmware(folders: Sequence[str]) -> None:
    """Let its driver take firmware from `folders`; the first that has a file counts."""

    def fetch(path: str, name: str, sha256: str) -> bytes:
        found = (Path(folder, name) for folder in folders if Path(folder, name).is_file())
        return next(found, Path(folders[-1], name)).read_bytes()

    for name in HOLDERS:
        module: Any = importlib.import_module(f"tinygrad.runtime.support.am.{name}")
        if hasattr(module, "fetch_fw"):
            module.fetch_fw = fetch
