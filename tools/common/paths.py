"""The cache folder, and the options that name header trees and firmware."""

from __future__ import annotations

import argparse
import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ringup.autogen.generate.manifest import MANIFEST, load
from ringup.autogen.generate.sources import Sources
from ringup.errors import HeaderError

LOG = logging.getLogger(__name__)


def cache_folder() -> Path:
    """Return the cache folder: RINGUP_CACHE, else `ringup` below the user's cache."""
    if named := os.environ.get("RINGUP_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ringup"


@contextmanager
def one_at_a_time(folder: Path) -> Iterator[None]:
    """Let one process at a time fill `folder` of the cache; the lock ends with the process, also after kill -9.

    Raises OSError if the cache cannot be written.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as file:
        LOG.debug("waiting for %s", file.name)
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--manifest`, `--cache` and `--tree`."""
    parser.add_argument(
        "--manifest",
        type=Path,
        default=MANIFEST,
        metavar="FILE",
        help="another manifest (default: ringup's own)",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=None,
        metavar="DIR",
        help="folder of downloaded packages (default: RINGUP_CACHE or ~/.cache/ringup)",
    )
    parser.add_argument(
        "--tree",
        action="append",
        default=[],
        metavar="NAME=DIR",
        help="read header package NAME from DIR; may be repeated",
    )


def add_firmware_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--firmware`, a list of paths."""
    parser.add_argument(
        "--firmware",
        type=Path,
        action="append",
        default=[],
        metavar="PATH",
        help="a folder or file that is searched before the system's firmware",
    )


def sources_of(args: argparse.Namespace) -> Sources:
    """Return the header packages that `--manifest`, `--cache` and `--tree` name. Raises `HeaderError` for an unknown
    tree.
    """
    manifest, trees = load(args.manifest), {}
    for text in args.tree:
        name, equals, folder = text.partition("=")
        if not equals or not folder or name not in manifest.packages:
            raise HeaderError(f"--tree {text}: write NAME=DIR with NAME one of {', '.join(manifest.packages)}")
        trees[name] = Path(folder)
    return Sources(manifest, args.cache or cache_folder(), trees)
