"""Select a layout by driver release: a base row plus the differences of later branches, applied in order."""

from __future__ import annotations

import sys
import types
from types import ModuleType

from ringup.autogen.structs import Struct, near
from ringup.errors import NotSupported

# structs by release that are kept; a driver needs a few dozen
MADE_LIMIT = 4096


def release_key(release: str) -> tuple[int, ...]:
    """Return the sort key of a release: "580.65.06" is (580, 65, 6). Raises `ValueError` for other than numbers and
    dots.
    """
    if not isinstance(release, str) or not all(part.isascii() and part.isdigit() for part in release.split(".")):
        raise ValueError(f"a driver release is a text like 580.65.06, not {release!r}")
    return tuple(int(part) for part in release.split("."))


def branch_of(release: str, branches: tuple[str, ...]) -> str:
    """Return the branch of `branches` (oldest first) that applies to `release`: its own, or the newest one before it.

    Raises `NotSupported` before the first branch and after the last: unknown layouts are not guessed.
    """
    major = release_key(release)[0]
    known = [branch for branch in branches if release_key(branch)[0] <= major]
    if not known or major > release_key(branches[-1])[0]:
        raise NotSupported(
            f"driver release {release}: layouts are known for {branches[0]} to {branches[-1]}; "
            'generate the facts of a newer one from its source tree (CONTRIBUTING, "a driver release")'
        )
    return known[-1]


def branch_in(module: ModuleType, release: str) -> str:
    """Return the branch whose row of `module` applies to `release`.

    If layouts change within a branch (the module has EXACT), only the releases that were read are supported; another
    raises `NotSupported`.
    """
    branch = branch_of(release, module.BRANCHES)
    if getattr(module, "EXACT", False) and release not in module.READ_FROM:
        raise NotSupported(
            f"driver release {release}: layouts of {module.__name__.rpartition('.')[2]} move within a branch and are known for "
            f"{', '.join(module.READ_FROM)}"
        )
    return branch


def struct_at(cls: type[Struct], release: str) -> type[Struct]:
    """Implement `Struct.at`: the module's BRANCHES say to which releases its rows apply."""
    made = _MADE.get((cls, release))
    if made is None:
        made = _find(cls, release)
        if len(_MADE) >= MADE_LIMIT:
            _MADE.clear()
        _MADE[cls, release] = made
    return made


def _find(cls: type[Struct], release: str) -> type[Struct]:
    cls = cls.BASE or cls
    module = sys.modules[cls.__module__]
    # No row of this module depends on a release.
    if not hasattr(module, "BRANCHES"):
        return cls
    branch = branch_in(module, release)
    key = (cls, branch)
    if key not in _LAID_OUT:
        _LAID_OUT[key] = _lay_out(cls, branch, release)
    found = _LAID_OUT[key]
    if found is None:
        raise NotSupported(f"driver release {release} has no {cls.__name__}")
    return found


def _lay_out(cls: type[Struct], branch: str, release: str) -> type[Struct] | None:
    size: int | None = cls.SIZE
    members = dict(part.split(":", 1) for part in cls.LAYOUT.split())
    if cls.SINCE and release_key(branch) < release_key(cls.SINCE):
        return None
    for since, row in cls.CHANGES.items():
        if release_key(since) > release_key(branch):
            break
        if row is None:
            size = None
            continue
        size, differences = row
        members = apply_differences(members, differences)
    if size is None:
        return None
    layout = " ".join(f"{name}:{place}" for name, place in members.items())
    body = {"__module__": cls.__module__, "SIZE": size, "LAYOUT": layout, "RELEASE": release, "BASE": cls}
    return types.new_class(cls.__name__, (cls,), exec_body=lambda namespace: namespace.update(body))


def apply_differences(members: dict[str, str], differences: str) -> dict[str, str]:
    """Return `members` (name to `TYPE@PLACE`) after a row of differences.

    `-name` removes a member, `name:TYPE@PLACE` adds or moves one. An existing member keeps its position, a new one
    comes last.
    """
    out = dict(members)
    for part in differences.split():
        if part.startswith("-"):
            if out.pop(part[1:], None) is None:
                raise ValueError(f"the row removes {part[1:]}, which does not exist{near(part[1:], members)}")
        else:
            name, _, place = part.partition(":")
            out[name] = place
    return out


# Classes made by `_find`, one for each struct and branch.
_LAID_OUT: dict[tuple[type[Struct], str], type[Struct] | None] = {}
# The same by release: opening a card asks some hundred times, for a few dozen structs.
_MADE: dict[tuple[type[Struct], str], type[Struct]] = {}
