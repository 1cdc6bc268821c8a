"""Numbers of errors that stop channels ("Xid"), and their names. Source: OGKM nverror.h."""

from __future__ import annotations

from functools import lru_cache

from ringup.autogen.nv import error_notifier

# ROBUST_CHANNEL_FIFO_ERROR_MMU_ERR_FLT: an access that page tables did not allow
MMU_FAULT = 31
# errors of the work itself: that, and ROBUST_CHANNEL_GR_EXCEPTION, such as an illegal instruction
WORKS_OWN = frozenset((13, MMU_FAULT))
PREFIX = "ROBUST_CHANNEL_"


@lru_cache(maxsize=1)
def xid_names() -> dict[int, str]:
    """Return the names of the errors that stop channels, by number; the first of several names."""
    found: dict[int, str] = {}
    for name, value in vars(error_notifier).items():
        if name.startswith(PREFIX) and isinstance(value, int):
            found.setdefault(value, name.removeprefix(PREFIX))
    return found


def xid_name(number: int) -> str:
    """Return an error's name in nverror.h."""
    return xid_names().get(number, "an error that this release names itself")
