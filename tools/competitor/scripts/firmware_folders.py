"""Firmware of tinygrad's driver from folders, inside its environment."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# by vendor: the modules that hold the function by its name
HOLDERS = {"am": ("amdev", "ip"), "nv": ("ip",)}


def replace_firmware(folders: Sequence[str], vendor: str = "am") -> None:
    """Let its driver for a vendor's cards (`am` or `nv`) take firmware from `folders`. The first that has a file
    counts.

    Its own function asks a cache, then a server, and takes only the files whose digests it has.
    """

    def fetch(path: str, name: str, sha256: str) -> bytes:
        found = (Path(folder, name) for folder in folders if Path(folder, name).is_file())
        return next(found, Path(folders[-1], name)).read_bytes()

    for name in HOLDERS[vendor]:
        module: Any = importlib.import_module(f"tinygrad.runtime.support.{vendor}.{name}")
        if hasattr(module, "fetch_fw"):
            module.fetch_fw = fetch
