"""Inserts waits into hand-written code: before an instruction uses a register that memory has yet to write, it waits
for the counter.

Straight-line code waits as late and as little as the counters allow. Labels, branches, barriers and calls wait for
everything, so loops are correct however they are entered. Overwriting the register of an outstanding load waits too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ringup.compiler.isa.amd.encoding.forms import Form
from ringup.compiler.isa.amd.encoding.immediates import waitcnt
from ringup.compiler.isa.amd.encoding.registers import NULL, Operand
from ringup.compiler.isa.amd.encoding.usage import IN_ORDER, MAX_COUNTS, Key, counters_of, kind_of, reads_and_writes

# A mnemonic and its operands.
Wait = tuple[str, list[Operand]]
_BARRIERS = ("s_branch", "s_cbranch", "s_barrier", "s_setpc", "s_swappc", "s_call", "s_rfe")


class Waits:
    """Tracks the outstanding accesses of one path, and returns the waits that an instruction needs before it."""

    def __init__(self, generation: int) -> None:
        self._generation = generation
        # For each counter, the number of instructions so far that increment it.
        self._issued: dict[str, int] = {}
        # Register: counter -> (number of its instruction, whether it returns in order).
        self._pending: dict[Key, dict[str, tuple[int, bool]]] = {}
        # For each counter, whether each of its outstanding instructions returns in order.
        self._open: dict[str, list[bool]] = {}

    def before(self, form: Form, operands: Sequence[Operand], modifiers: Mapping[str, Any]) -> list[Wait]:
        """Return the waits that an instruction needs before it, and record what it starts."""
        kind = kind_of(form, modifiers)
        reads, writes = reads_and_writes(form, operands, modifiers)
        stops = form.name.startswith(_BARRIERS)
        made = self.everything() if stops else self._for(reads | writes)
        counters = counters_of(kind, self._generation)
        for counter in counters:
            self._issued[counter] = self._issued.get(counter, 0) + 1
            ordered = counter in IN_ORDER and len(counters) == 1
            self._open.setdefault(counter, []).append(ordered)
            for key in writes if kind not in ("store", "flat_store") else ():
                self._pending.setdefault(key, {})[counter] = self._issued[counter], ordered
        return made

    def everything(self) -> list[Wait]:
        """Return the waits after which nothing is outstanding."""
        needed = {counter: 0 for counter, under_way in self._open.items() if under_way}
        self._pending.clear()
        self._open = {}
        return self._waits(needed)

    def _for(self, keys: set[Key]) -> list[Wait]:
        needed: dict[str, int] = {}
        for key in keys & self._pending.keys():
            for counter, (number, ordered) in self._pending[key].items():
                later = self._open.get(counter, [])
                after = self._issued[counter] - number
                count = after if ordered and all(later) else 0
                needed[counter] = min(needed.get(counter, count), count, MAX_COUNTS[counter])
        for counter, count in needed.items():
            self._settle(counter, count)
        return self._waits(needed)

    def _settle(self, counter: str, count: int) -> None:
        """Record that at most `count` of a counter's instructions are still outstanding."""
        done = self._issued[counter] - count
        self._open[counter] = self._open.get(counter, [])[-count:] if count else []
        for key in list(self._pending):
            numbers = self._pending[key]
            if counter in numbers and numbers[counter][0] <= done:
                del numbers[counter]
                if not numbers:
                    del self._pending[key]

    def _waits(self, needed: Mapping[str, int]) -> list[Wait]:
        if not needed:
            return []
        if self._generation == 12:
            return [(f"s_wait_{counter}", [count]) for counter, count in sorted(needed.items())]
        made: list[Wait] = []
        together = {name: count for name, count in needed.items() if name in ("vmcnt", "lgkmcnt", "expcnt")}
        if together:
            made.append(("s_waitcnt", [waitcnt(self._generation, **together)]))
        if "vscnt" in needed:
            made.append(("s_waitcnt_vscnt", [NULL, needed["vscnt"]]))
        return made
