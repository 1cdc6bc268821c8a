"""Constants by driver release: RPC numbers, command numbers and limits that a branch changed. Structs have `at` for the same.

Written by hand; reads the BRANCHES, SINCE and ROWS of a generated module of this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

from ringup.autogen.releases import branch_in, release_key
from ringup.errors import NotSupported


def constant(module: ModuleType, name: str, release: str) -> int:
    """Return what `name` of `module` is worth in driver `release` ("580.142").

    Raises `AttributeError` for a name that no branch has, and `NotSupported` when that release lacks it or nothing is known about the release.
    A bit range is the pair (hi, lo).
    """
    value: int | None = getattr(module, name)
    branch = branch_in(module, release)
    since: Mapping[str, str] = getattr(module, "SINCE", {})
    rows: Mapping[str, Mapping[str, int | None]] = getattr(module, "ROWS", {})
    later = [first for first in since if release_key(first) > release_key(branch)]
    if any(name in since[first].split() for first in later):
        value = None
    else:
        for start, row in rows.items():
            if release_key(start) <= release_key(branch):
                value = row.get(name, value)
    if value is None:
        raise NotSupported(f"driver release {release} has no {name}")
    return value
