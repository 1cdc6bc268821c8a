"""Instruction selection: from a machine IR function to RDNA instructions on virtual registers.

`select` rewrites operations without an instruction (`legalize`), analyzes the function (`analyze`), then generates code
backwards: regions from their last item to their first (see `emitter`). Structures become blocks:

    loop    carried registers = initial values; index = start; [start < stop? else after] head: body; carried = next
            index += step; index < stop? head                                                    after:
    if      EXEC narrowed by the condition; no lane left? after                          body    after: EXEC as it was
            (a uniform condition: SCC and a branch)

The branch around a body is always emitted: most bodies contain memory accesses, and scalar loads ignore EXEC.
"""

from __future__ import annotations

from collections.abc import Callable

from ringup.compiler.amd.instructions.code import Block, Code, Instr, Operand, Part
from ringup.compiler.amd.instructions.targets import row
from ringup.compiler.amd.legalize.rewrite import legalize
from ringup.compiler.amd.select import conditions, floats, integers, vectors
from ringup.compiler.amd.select import lanes as select_lanes
from ringup.compiler.amd.select import memory as select_memory
from ringup.compiler.amd.select.emitter import IN_PLACE, Emitter, Place, bank
from ringup.compiler.amd.select.encodings import fit_encodings
from ringup.compiler.amd.select.prologue import Prologue
from ringup.compiler.machine.ir import Function, If, Loop, Region, Value
from ringup.errors import CompileError

_RULES: dict[str, Callable[[Emitter, Value, Place], None]] = {
    **integers.RULES, **conditions.RULES, **floats.RULES, **select_memory.RULES, **select_lanes.RULES,
    **vectors.RULES,
}  # fmt: skip
# Their uses create them, or the prologue does.
_SILENT = frozenset(("const", "param"))


def select(function: Function, target: str) -> Code:
    """Return the code of a function for a processor. Raises CompileError for what the processor cannot do."""
    known = row(target)
    if function.wave_size not in (32, 64):
        raise CompileError(f"kernel {function.name}: waves of {function.wave_size} lanes; RDNA has 32 and 64")
    legal, bounds = legalize(function, known)
    return _Selection(Emitter(legal, known, bounds)).code(target)


class _Selection:
    def __init__(self, emitter: Emitter) -> None:
        self.e = emitter
        self.prologue = Prologue(emitter)
        # In reverse order.
        self.blocks: list[Block] = []
        # The instructions of the current block, in reverse order.
        self.out: list[Instr] = []
        self.depth = 0

    def code(self, target: str) -> Code:
        e, function = self.e, self.e.function
        self.out.append(Instr("s_endpgm", 0))
        self._region(function.body, last=True)
        if e.bases or e.moved or e.constants:
            select_memory.constants(e)
            self._flush()
        self.prologue.emit()
        self._flush()
        self._close()
        self.blocks.reverse()
        for i, one in enumerate(self.blocks):
            one.name = f"b{i}"
        if not e.row.long_literals:
            fit_encodings(self.blocks, e.row.name)
        names = e.row.names
        if names:
            for block in self.blocks:
                for instr in block.instrs:
                    instr.mnemonic = names.get(instr.mnemonic, instr.mnemonic)
        return Code(
            function.name, target, self.blocks, self.prologue.inputs, self.prologue.kernarg_bytes, function.group_size,
            function.wave_size, function.lds_bytes, self.prologue.group_ids,
        )  # fmt: skip

    # Blocks

    def _flush(self) -> None:
        """Move a rule's instructions, which are in forward order, before the existing ones."""
        line = self.e.line
        if line:
            line.reverse()
            self.out += line
            line.clear()

    def _close(self) -> Block:
        """Close the current block at its beginning and return it. Further code comes before it."""
        if not self.out and self.blocks and self.blocks[-1].depth == self.depth:
            return self.blocks[-1]
        self.out.reverse()
        made = Block("", self.depth, self.out)
        self.blocks.append(made)
        self.out = []
        return made

    # Structure

    def _region(self, region: Region, *, last: bool = False) -> None:
        """Generate the code of a region. `last`: nothing after the region depends on EXEC."""
        e = self.e
        outer, e.here = e.here, region
        places, position, out, rules, line = e.places, e.known.position, self.out, _RULES, e.line
        for item in reversed(region.items):
            if not isinstance(item, Value):
                e.now = position[item]
                if isinstance(item, If):
                    self._if(item, last and item is region.items[-1])
                else:
                    self._loop(item)
                e.here = region
                out = self.out
                continue
            op = item.op
            place = places.get(item)
            if place is not None:
                if op in _SILENT or item in e.views or item in e.bits:
                    continue
                e.now = position[item]
                rule = rules.get(op)
                if rule is None:
                    self._effect(item, place)
                else:
                    rule(e, item, place)
            elif op in select_memory.EFFECTS:
                e.now = position[item]
                self._effect(item, None)
            else:
                continue
            line.reverse()
            out += line
            line.clear()
        e.here = outer

    def _effect(self, item: Value, place: Place | None) -> None:
        rule = select_memory.EFFECTS.get(item.op)
        if rule is None:
            raise CompileError(f"{item.op}: RDNA's instruction selection does not support this operation")
        rule(self.e, item, place)

    def _if(self, item: If, last: bool) -> None:
        e = self.e
        condition = item.condition
        now = e.now
        bits = e.bits.get(condition)
        if bits is not None:
            if bits & 1:
                self._region(item.body, last=last)
            return
        saved = None
        if not condition.uniform and not last:
            saved = e.temporary("s", e.lanes)
            self.out.append(Instr(f"s_mov_{e.b}", e.exec, saved))
        after = self._close()
        # EXEC is restored after the body, or nothing depends on it.
        self._region(item.body, last=last or not condition.uniform)
        self._close()
        e.now = now
        if condition.uniform:
            true = conditions.to_scc(e, condition)
            e.emit("s_cbranch_scc0" if true else "s_cbranch_scc1", after)
        else:
            conditions.narrow(e, condition, saved)
            e.emit("s_cbranch_execz", after)
        self._flush()

    def _loop(self, loop: Loop) -> None:
        e = self.e
        now, outer = e.now, e.here
        after = self._close()
        self.depth += 1
        made = len(self.blocks)
        head = Block("", self.depth)
        results = self._result_places(loop)
        index = e.place(loop.index)
        end = e.known.end[loop.body]
        e.here, e.now = loop.body, end
        live = [place is not None or e.uses.get(one, 0) > 0 for one, place in zip(loop.carried, results, strict=True)]
        for one, asked, wanted in zip(loop.carried, results, live, strict=True):
            if wanted:
                if asked is not None:
                    e.places[one] = asked
                e.place(one)
        carried = [e.places[one] for one, wanted in zip(loop.carried, live, strict=True) if wanted]
        floors = {place: e.floors.get(place) for place in carried}
        self._latch(loop, index, head, live)
        self._region(loop.body)
        self.out.reverse()
        head.instrs = self.out
        self.out = []
        self.blocks.append(head)
        head.loop_end = self.blocks[made]
        self.depth -= 1
        for place, floor in floors.items():
            if floor is not None:
                e.floors[place] = floor
            else:
                e.floors.pop(place, None)
        e.now, e.here = now, outer
        self._enter(loop, index, after, live)

    def _result_places(self, loop: Loop) -> list[Place | None]:
        """Return the requested places of the results. The carried values have the same places."""
        return [self.e.places.get(one) for one in loop.results]

    def _latch(self, loop: Loop, index: Place, head: Block, live: list[bool]) -> None:
        """Emit the end of a loop: update the carried values and the index, and branch back."""
        e = self.e
        stop = e.scalar(loop.stop)
        pairs: list[tuple[Place, Operand]] = []
        for one, of, wanted in zip(loop.carried, loop.following, live, strict=True):
            if not wanted or of is one:
                continue
            place = e.places[one]
            if self._follows_in_place(one, of, place):
                continue
            pairs += zip(e.pieces(place), e.parts(of), strict=True)
        e.copy_all(pairs)
        e.emit("s_add_i32", index, index, loop.step)
        e.emit("s_cmp_lt_i32", index, stop)
        e.emit("s_cbranch_scc1", head)
        self._flush()

    def _follows_in_place(self, carried: Value, following: Value, place: Place) -> bool:
        """Let the following value be computed in the carried one's register, if nothing reads that later. Return
        whether that was done.
        """
        e, known = self.e, self.e.known
        last_use = known.last_use.get(carried, 0)
        if isinstance(place, Part) or following in e.places or following in e.bits or following in e.views:
            return False
        found = known.loop_of.get(following)
        # The result of an inner loop: its carried value may have this register in the whole loop.
        if found is not None:
            inner, _ = found
            if (
                known.position.get(inner, -1) < last_use
                or known.bank(following) != bank(place)
                or not self._stands_in(inner, e.here)
            ):
                return False
            e.places[following] = place
            e.floors[place] = known.position[inner]
            e.ends[carried] = known.position[inner]
            return True
        position = known.position.get(following)
        if following.op not in IN_PLACE or position is None or position < last_use:
            return False
        e.floors[place] = last_use
        if not e.claim(following, place):
            del e.floors[place]
            return False
        e.ends[carried] = position
        return True

    @staticmethod
    def _stands_in(loop: Loop, region: Region) -> bool:
        return any(one is loop for one in region.items)

    def _enter(self, loop: Loop, index: Place, after: Block, live: list[bool]) -> None:
        """Emit the code before a loop: initial values, the first index, and a branch around the loop if it may run zero
        times.
        """
        e = self.e
        pairs: list[tuple[Place, Operand]] = []
        for one, of, wanted in zip(loop.carried, loop.initial, live, strict=True):
            if not wanted:
                continue
            place = e.places[one]
            if e.uses[of] == 1 and e.claim(of, place):
                continue
            pairs += zip(e.pieces(place), e.parts(of), strict=True)
        start = e.scalar(loop.start)
        pairs.append((index, start))
        stop = None if loop.at_least_once else e.scalar(loop.stop)
        e.copy_all(pairs)
        if stop is not None:
            e.emit("s_cmp_ge_i32", index, stop)
            e.emit("s_cbranch_scc1", after)
        self._flush()
