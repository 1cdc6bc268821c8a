"""Inserts waits for memory: each stands right before the first use, and waits for no more than that use needs.

Loads of some kinds return in the order of issue (vector memory, LDS), others in any order (scalar loads, messages,
FLAT). For a kind in order: if one load is outstanding, so are all later ones of its kind. So it is enough to wait until
no more than these are outstanding, whatever else the counter counts. For the other kinds, only a wait for zero is
enough. The states of blocks are merged until they no longer change. Stores need no wait: their data is read before
anything later is issued. Where stores and loads have one counter (gfx9), they also return in one order. Source: RDNA3
ISA reference, "Data Dependency Resolution"; CDNA3 ISA reference, the same; LLVM SIInsertWaitcnts.cpp (which registers,
which counters).
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

from ringup.compiler.amd.instructions.code import NULL, Instr
from ringup.compiler.amd.instructions.effects import Counters
from ringup.compiler.amd.instructions.steps import FIRST, Program, Step


class Kind(IntEnum):
    """What a counter counts, by order of return: the loads of one kind in relation to each other. The values index
    lists with one item for each kind.
    """

    VMEM = 0
    SAMPLE = 1
    BVH = 2
    LDS = 3
    SMEM = 4
    # s_sendmsg_rtn
    MESSAGE = 5
    FLAT = 6
    EXPORT = 7
    # lds_direct_load, lds_param_load
    LDS_DIRECT = 8


# A tuple: iterating over the enum itself is slower.
KINDS: Final = tuple(Kind)
IN_ORDER: Final = frozenset((Kind.VMEM, Kind.SAMPLE, Kind.BVH, Kind.LDS, Kind.LDS_DIRECT))
# After this many instructions of a kind, loads that must have returned are removed: no counter can count more.
PRUNE_INTERVAL: Final = 64
_SINGLE: Final = {
    "s_waitcnt_vscnt": "vscnt",
    "s_waitcnt_vmcnt": "vmcnt",
    "s_waitcnt_expcnt": "expcnt",
    "s_waitcnt_lgkmcnt": "lgkmcnt",
}
# Bits 13:8 and 5:0 of the immediate.
_TOGETHER: Final = {
    ("dscnt", "loadcnt"): "s_wait_loadcnt_dscnt",
    ("dscnt", "storecnt"): "s_wait_storecnt_dscnt",
}


class Waiting(NamedTuple):
    """The number of inserted instructions, and how often blocks were walked."""

    inserted: int
    walks: int


class _State:
    """For each kind, the number of instructions issued, and for each outstanding register the
    number that its load had.
    """

    __slots__ = ("busy", "issued", "since")

    def __init__(self) -> None:
        self.issued = [0] * len(KINDS)
        self.since: list[dict[int, int]] = [{} for _ in KINDS]
        self.busy: set[int] = set()

    def ages(self) -> list[dict[int, int]]:
        """Return for each kind and register how many of the kind were issued after its load."""
        return [
            {unit: issued - at for unit, at in since.items()}
            for issued, since in zip(self.issued, self.since, strict=True)
        ]


def insert_waits(program: Program) -> Waiting:
    """Insert the waits that registers need. Existing waits are taken into account."""
    return _Waits(program).run()


class _Waits:
    def __init__(self, program: Program) -> None:
        self.program, self.names = program, program.table.counters
        names: Counters = self.names
        # gfx12 has a wait instruction for each counter; elsewhere, one instruction serves three of them.
        self.waits_by_counter = "loadcnt" in names.limits
        self.counts_stores = names.store == names.load
        counters: dict[Kind, tuple[str, ...]] = {
            Kind.VMEM: (names.load,),
            Kind.SAMPLE: (names.sample,),
            Kind.BVH: (names.bvh,),
            Kind.LDS: (names.lds,),
            Kind.SMEM: (names.scalar,),
            Kind.MESSAGE: (names.scalar,),
            Kind.FLAT: (names.load, names.lds),
            Kind.EXPORT: (names.export,),
            Kind.LDS_DIRECT: (names.export,),
        }
        self.counters = [counters[kind] for kind in KINDS]
        self.limits = names.limits

    def run(self) -> Waiting:
        blocks, edges = self.program.blocks, self.program.edges()
        entering: list[list[dict[int, int]] | None] = [None] * len(blocks)
        entering[0] = [{} for _ in KINDS]
        todo, walks = {0}, 0
        while todo:
            b = min(todo)
            todo.discard(b)
            walks += 1
            state = self._begin(entering[b])
            for step in blocks[b]:
                self._advance(state, step)
            ages = state.ages()
            for after in edges[b]:
                merged, changed = _merge(entering[after], ages)
                if changed:
                    entering[after] = merged
                    todo.add(after)
        inserted = 0
        for b, steps in enumerate(blocks):
            if not any(step.effects.counters or step.effects.kind == "wait" for step in steps) and not any(
                entering[b] or ()
            ):
                continue
            state = self._begin(entering[b])
            made: list[Step] = []
            for step in steps:
                needed = self._advance(state, step)
                if needed:
                    waits = self.instructions(needed)
                    inserted += len(waits)
                    made += map(self.program.step, waits)
                made.append(step)
            blocks[b] = made
        return Waiting(inserted, walks)

    def _begin(self, ages: list[dict[int, int]] | None) -> _State:
        state = _State()
        for kind, found in enumerate(ages or ()):
            state.since[kind] = {unit: -age for unit, age in found.items()}
            state.busy.update(found)
        return state

    def _advance(self, state: _State, step: Step) -> dict[str, int] | None:
        """Return the counters that must be waited for before a step, and update the state by the step."""
        effects = step.effects
        needed: dict[str, int] | None = None
        if effects.kind == "wait":
            waits = waits_of(step.instr, self.names)
            if waits:
                self._waited(state, waits)
            return None
        kind = self._kind(step) if effects.counters else None
        if state.busy:
            busy = state.busy
            touched = [unit for unit in step.reads if unit in busy]
            touched += [-1 - unit for unit in step.writes if unit in busy]
            if touched:
                needed = self._needed(state, touched, kind)
                if needed:
                    self._waited(state, needed)
        if kind is not None:
            state.issued[kind] += 1
            at = state.issued[kind]
            since = state.since[kind]
            for unit in step.writes:
                if unit >= FIRST or kind is Kind.MESSAGE:
                    since[unit] = at
                    state.busy.add(unit)
            # A full counter lets nothing be issued, so older loads have returned.
            if at % PRUNE_INTERVAL == 0:
                self._forget(state, kind, self.limits[self.counters[kind][0]])
        return needed

    def _kind(self, step: Step) -> Kind | None:
        """Return the kind that a step counts as, None if nothing of it must be waited for."""
        effects = step.effects
        memory = effects.memory
        # LDS stores too: they are counted, and in order with loads.
        if memory == "lds":
            return Kind.LDS
        if not step.writes:
            return Kind.VMEM if self.counts_stores and memory not in ("", "scalar", "flat") else None
        if memory == "scalar":
            return Kind.SMEM
        if memory == "flat":
            return Kind.FLAT
        if not memory:
            if step.instr.mnemonic.startswith("s_sendmsg_rtn"):
                return Kind.MESSAGE
            return Kind.LDS_DIRECT if effects.kind == "ldsdir" else None
        if effects.access not in ("read", "atomic"):
            return None
        if memory == "sample":
            return Kind.SAMPLE
        return Kind.BVH if "bvh" in step.instr.mnemonic else Kind.VMEM

    def _needed(self, state: _State, touched: list[int], own: Kind | None) -> dict[str, int]:
        needed: dict[str, int] = {}
        for kind, since in zip(KINDS, state.since, strict=True):
            if not since:
                continue
            ordered = kind in IN_ORDER
            for signed in touched:
                unit = signed if signed >= 0 else -1 - signed
                # No wait if a load of the same ordered kind overwrites the register.
                if unit not in since or (signed < 0 and kind is own and ordered):
                    continue
                count = state.issued[kind] - since[unit] if ordered else 0
                for counter in self.counters[kind]:
                    if count < needed.get(counter, self.limits[counter]):
                        needed[counter] = count
        return needed

    def _waited(self, state: _State, waits: dict[str, int]) -> None:
        for kind in KINDS:
            if state.since[kind]:
                counts = [waits.get(counter) for counter in self.counters[kind]]
                if any(count is None for count in counts):
                    continue
                most = max(count for count in counts if count is not None)
                if kind in IN_ORDER or most == 0:
                    self._forget(state, kind, most)

    def _forget(self, state: _State, kind: Kind, count: int) -> None:
        """Remove registers whose loads were followed by `count` or more of their kind."""
        bound = state.issued[kind] - count
        kept = {unit: at for unit, at in state.since[kind].items() if at > bound}
        if len(kept) != len(state.since[kind]):
            state.since[kind] = kept
            state.busy = set().union(*state.since)

    def instructions(self, needed: dict[str, int]) -> list[Instr]:
        """Return the instructions that wait until at most the given numbers are outstanding."""
        made = []
        if not self.waits_by_counter:
            if not needed.keys().isdisjoint(("vmcnt", "lgkmcnt", "expcnt")):
                made.append(Instr("s_waitcnt", self.names.s_waitcnt(needed)))
            if "vscnt" in needed:
                made.append(Instr("s_waitcnt_vscnt", NULL, needed["vscnt"]))
            return made
        left = dict(needed)
        for (low, high), mnemonic in _TOGETHER.items():
            if low in left and high in left:
                made.append(Instr(mnemonic, left.pop(high) << 8 | left.pop(low)))
        return made + [Instr(f"s_wait_{counter}", count) for counter, count in sorted(left.items())]


def waits_of(instr: Instr, counters: Counters) -> dict[str, int]:
    """Return the counters that a wait instruction waits for, with their values."""
    name, operands = instr.mnemonic, instr.operands
    value = operands[-1] if operands else 0
    if name == "s_wait_idle":
        return dict.fromkeys(
            ("vmcnt", "vscnt", "lgkmcnt", "expcnt", "loadcnt", "storecnt", "dscnt", "kmcnt", "samplecnt", "bvhcnt"), 0
        )
    if not isinstance(value, int):
        return {}
    if name == "s_waitcnt":
        return counters.waited(value)
    if name in _SINGLE:
        return {_SINGLE[name]: value}
    for (low_name, high_name), mnemonic in _TOGETHER.items():
        if name == mnemonic:
            return {low_name: value & 63, high_name: value >> 8 & 63}
    return {name[7:]: value} if name.startswith("s_wait_") and name.endswith("cnt") else {}


def _merge(old: list[dict[int, int]] | None, new: list[dict[int, int]]) -> tuple[list[dict[int, int]], bool]:
    """Merge two states: a register is outstanding if it is so in either, with the lower of both ages."""
    if old is None:
        return [dict(one) for one in new], True
    changed = False
    for mine, theirs in zip(old, new, strict=True):
        for unit, age in theirs.items():
            if unit not in mine or age < mine[unit]:
                mine[unit] = age
                changed = True
    return old, changed
