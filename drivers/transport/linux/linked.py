"""Cards that may be linked with one (a hive over XGMI), and who holds them.

GUESS: cards of one make are of one hive. amdgpu names the hive of a card (amdgpu_xgmi.c, xgmi_hive_info) only while it
drives it.
"""

from __future__ import annotations

import os

from ringup.drivers.transport.linux.function import Function, gpus_of
from ringup.drivers.transport.linux.lock import CardLock

HIVE = "xgmi_hive_info"


def driven(function: Function) -> list[Function]:
    """Return the other cards of its make that a driver of the kernel's runs as members of a hive."""
    return [one for one in _alike(function) if one.driver and (one.path / HIVE).exists()]


def held_by_others(function: Function) -> tuple[str, ...]:
    """Say which other cards of its make are not this process's to reset, and whose they are."""
    taken = [f"{one.address} with {one.driver}" for one in driven(function)]
    for one in _alike(function):
        holder = CardLock(one.kernel, one.address).holder()
        if holder is not None and holder.pid != os.getpid():
            taken.append(f"{one.address} held by {holder}")
    return tuple(taken)


def _alike(function: Function) -> list[Function]:
    like = [one for one in gpus_of(function.kernel) if (one.vendor, one.device) == (function.vendor, function.device)]
    return [one for one in like if one.address != function.address]
