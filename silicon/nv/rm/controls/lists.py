"""Controls that take a list of indices and fill in a value for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from ringup.autogen.layout import Array
from ringup.autogen.nv import status
from ringup.silicon.nv.rm.manager import Manager
from ringup.silicon.nv.rm.parts import RmError

Values = Mapping[int, Callable[[Manager], int]]


class Entry(Protocol):
    """NVXXXX_CTRL_XXX_INFO."""

    index: int
    data: int


EntryKind = TypeVar("EntryKind", bound=Entry)


def fill(manager: Manager, count: int, entries: Array[EntryKind], values: Values, what: str, flag: int = 0) -> None:
    """Fill in the first `count` entries; with `flag`, only those whose index has it, and take it off.

    Source: getGpuInfos, getBusInfos and their like: a list that is empty or too long, and an unknown index, are
    INVALID_ARGUMENT.
    """
    if not 1 <= count <= len(entries):
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"a list of {count} {what}")
    for number in range(count):
        entry = entries[number]
        if flag and not entry.index & flag:
            continue
        value = values.get(entry.index & ~flag)
        if value is None:
            raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"{what} {entry.index & ~flag:#x}")
        entry.index &= ~flag
        entry.data = value(manager)
