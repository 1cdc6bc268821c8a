"""Loop-invariant code motion and dead code elimination."""

from __future__ import annotations

from collections.abc import Callable

from ringup.compiler.machine.ir import OPS, Function, Item, Loop, Region, Value


def improve(function: Function, watch: Callable[[str], None] | None = None) -> None:
    """Hoist values out of loops, then remove unused ones. `watch` is called with a pass's name after it."""
    for step in (hoist, drop):
        step(function)
        if watch is not None:
            watch(step.__name__)


def drop(function: Function) -> None:
    """Remove unused values without effect, and empty loops and conditions."""
    used: set[Value] = set()
    _mark_and_drop(function.body, used)


def _mark_and_drop(region: Region, used: set[Value]) -> None:
    items: list[Item] = []
    for item in reversed(region.items):
        if isinstance(item, Value):
            if item in used or OPS[item.op].effect in ("write", "barrier"):
                used.update(item.args)
                items.append(item)
            continue
        if isinstance(item, Loop):
            used.update(item.following)
            used.update((item.start, item.stop, *item.initial))
            _mark_and_drop(item.body, used)
            if item.body.items or used.intersection(item.results):
                items.append(item)
            continue
        _mark_and_drop(item.body, used)
        if item.body.items:
            used.add(item.condition)
            items.append(item)
    items.reverse()
    region.items = items


def hoist(function: Function) -> None:
    """Move pure values, and loads of buffers that the kernel never writes, to the outermost region where their operands
    are defined.

    A load is not moved out of conditions, or out of loops that may have no iteration: its address may be invalid there.
    """
    home: dict[Value, int] = {}
    kept: list[list[Item]] = []
    _region(function.body, 0, home, kept, function, [0])


def _region(
    region: Region, depth: int, home: dict[Value, int], kept: list[list[Item]], function: Function, floors: list[int]
) -> None:
    """Hoist the values of one region. `home`: the depth at which each value is defined. `kept`: the items so far at
    each depth. `floors`: for each region, the lowest depth for loads.
    """
    items: list[Item] = []
    kept.append(items)
    for item in region.items:
        if isinstance(item, Value):
            lowest = max((home[one] for one in item.args), default=0)
            if OPS[item.op].effect == "read":
                lowest = max(lowest, floors[-1]) if _is_constant(item, function) else depth
            elif OPS[item.op].effect != "pure":
                lowest = depth
            home[item] = lowest
            kept[lowest].append(item)
            continue
        if isinstance(item, Loop):
            for one in (item.index, *item.carried):
                home[one] = depth + 1
            _region(
                item.body, depth + 1, home, kept, function, [*floors, floors[-1] if item.at_least_once else depth + 1]
            )
            for one in item.results:
                home[one] = depth
        else:
            _region(item.body, depth + 1, home, kept, function, [*floors, depth + 1])
        items.append(item)
    region.items = items
    kept.pop()


def _is_constant(load: Value, function: Function) -> bool:
    """Return whether a load reads a buffer that the kernel does not write."""
    if load.op != "load":
        return False
    base = load.args[0]
    while base.op == "add":
        base = base.args[0]
    return base.op == "param" and not function.params[base.imm].written
