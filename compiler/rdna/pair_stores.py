"""Two stores to LDS by one instruction: ds_store_2addr_* takes one address, two data and two offsets of 8 bits, counted in elements.

Stores through one unchanged address register, between which nothing else touches LDS or EXEC and no register of theirs is written, are joined at
the place of the later one. Offsets out of reach are counted in 64 elements (`stride64`), or from a moved address where that saves more than it
costs.
Source: RDNA3 ISA reference, "LDS Access", DS_STORE_2ADDR_B32, DS_STORE_2ADDR_STRIDE64_B32.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ringup.compiler.rdna.code import Instr, Operand, Reg
from ringup.compiler.rdna.effects import EXEC_LO
from ringup.compiler.rdna.steps import Program, Step

SIZES: Final = {"ds_store_b32": 4, "ds_store_b64": 8}
REACH: Final = 256  # of an offset, in elements
STRIDE: Final = 64


class _Store(NamedTuple):
    """One store that waits for another: its place in the block, its offset in bytes, its data."""

    at: int
    offset: int
    data: Operand
    units: frozenset[int]


def pair_stores(program: Program) -> None:
    """Join stores to LDS in every block of a program on virtual registers."""
    for b, steps in enumerate(program.blocks):
        if sum(step.instr.mnemonic in SIZES for step in steps) > 1:
            program.blocks[b] = _Block(program, steps).run()


class _Block:
    def __init__(self, program: Program, steps: list[Step]) -> None:
        self._program, self._steps = program, steps
        self._key: tuple[str, Operand] | None = None
        self._waiting: list[_Store] = []
        self._instead: dict[int, list[Step]] = {}

    def run(self) -> list[Step]:
        """Return the block's steps with pairs in place of the stores they join."""
        for at, step in enumerate(self._steps):
            store = self._store(at, step)
            if store is not None:
                key = (step.instr.mnemonic, step.instr.operands[0])
                size = SIZES[key[0]]
                if key != self._key or any(abs(one.offset - store.offset) < size for one in self._waiting):
                    self._join()
                self._key = key
                self._waiting.append(store)
                continue
            effects = step.effects
            stands = effects.memory in ("lds", "flat") or effects.ordered or effects.branch or EXEC_LO in step.writes
            if stands or any(not one.units.isdisjoint(step.writes) for one in self._waiting):
                self._join()
        self._join()
        return [new for at, step in enumerate(self._steps) for new in self._instead.get(at, (step,))]

    def _store(self, at: int, step: Step) -> _Store | None:
        instr = step.instr
        offset = instr.modifiers.get("offset", 0)
        if instr.mnemonic not in SIZES or not isinstance(offset, int) or instr.modifiers.keys() - {"offset"}:
            return None
        units = frozenset((*self._program.units(instr.operands[0]), *self._program.units(instr.operands[1])))
        return _Store(at, offset, instr.operands[1], units)

    def _join(self) -> None:
        waiting, self._waiting = sorted(self._waiting, key=lambda one: one.offset), []
        if len(waiting) < 2 or self._key is None:
            return
        name, address = self._key
        size = SIZES[name]
        near = [one for one in waiting if one.offset % size == 0 and one.offset < REACH * size]
        far = [one for one in waiting if one not in near]
        self._pairs(name, address, near, 0, size)
        while len(far) > 1:
            base = far[0].offset
            strided = [one for one in far if one.offset % (STRIDE * size) == 0 and one.offset < REACH * STRIDE * size]
            if len(strided) > 1:
                self._pairs(name.replace("_b", "_stride64_b"), address, strided, 0, STRIDE * size)
                far = [one for one in far if one not in strided]
                continue
            window = [one for one in far if (one.offset - base) % size == 0 and one.offset - base < REACH * size]
            if len(window) > 3:  # the addition costs one instruction, each pair saves one
                moved = Reg("v")
                addition = self._program.step(Instr("v_add_nc_u32", moved, base, address))
                self._pairs(name, moved, window, base, size, addition)
            far = [one for one in far if one not in window]

    def _pairs(
        self, name: str, address: Operand, stores: list[_Store], base: int, step: int, before: Step | None = None
    ) -> None:
        """Write pairs of neighbours; the last of an odd number stays as it is."""
        name = name.replace("ds_store_", "ds_store_2addr_")
        for a, b in zip(stores[::2], stores[1::2], strict=False):
            instr = Instr(name, address, a.data, b.data)
            offsets = {"offset0": (a.offset - base) // step, "offset1": (b.offset - base) // step}
            instr.modifiers.update({key: value for key, value in offsets.items() if value})
            self._instead[min(a.at, b.at)] = []
            self._instead[max(a.at, b.at)] = [self._program.step(instr)]
        if before is not None:
            first = min(at for one in stores for at in (one.at,) if self._instead.get(at))
            self._instead[first].insert(0, before)


__all__ = ["pair_stores"]
