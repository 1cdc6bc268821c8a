"""Joins several memory accesses into one instruction: two LDS accesses at different offsets, or adjacent global
accesses.

LDS: ds_load_2addr_* and ds_store_2addr_* take one address and two offsets of 8 bits that count elements. Larger offsets
count in 64 elements (`stride64`), or are relative to a moved address where that saves more than it costs. Global:
adjacent accesses through one address become an access of 8, 12 or 16 bytes. It needs only the alignment of dwords, and
accesses the same bytes.

Accesses are joined if they are in one block, use one unchanged address, and are of one kind. Loads move to the first
one: nothing between may write what they read, or use the register of a later one. Stores move to the last one: nothing
between may access their bytes or write their registers. Where the instruction needs a tuple of registers, the registers
become one. If they cannot, or if longer live ranges would cost occupancy (`register_budget.py`), the accesses stay
apart. Source: RDNA3 ISA reference, "LDS Access", DS_LOAD_2ADDR_B32, DS_STORE_2ADDR_STRIDE64_B32; "LDS/GDS Alignment";
"Memory Alignment" of FLAT.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ringup.compiler.amd.instructions.code import Instr, Operand, Reg
from ringup.compiler.amd.instructions.effects import EXEC_LO, Effects
from ringup.compiler.amd.instructions.steps import Program, Step
from ringup.compiler.amd.registers.register_budget import RegisterBudget
from ringup.compiler.amd.registers.tuples import Tuples


class Form(NamedTuple):
    """One kind of access that may be joined: its bytes, and the positions of its address and data operands.

    `pair`: the instruction with two offsets; its `{}` is empty or the stride. Without it, the access is joined with
    adjacent ones, by `WIDER`.
    """

    kind: str
    size: int
    load: bool
    address: tuple[int, ...]
    data: int
    pair: str = ""


FORMS: Final = {
    "ds_load_b32": Form("ds_load_b32", 4, True, (1,), 0, "ds_load_2addr{}_b32"),
    "ds_load_b64": Form("ds_load_b64", 8, True, (1,), 0, "ds_load_2addr{}_b64"),
    "ds_store_b32": Form("ds_store_b32", 4, False, (0,), 1, "ds_store_2addr{}_b32"),
    "ds_store_b64": Form("ds_store_b64", 8, False, (0,), 1, "ds_store_2addr{}_b64"),
    "global_load_b32": Form("global_load", 4, True, (1, 2), 0),
    "global_load_b64": Form("global_load", 8, True, (1, 2), 0),
    "global_load_b96": Form("global_load", 12, True, (1, 2), 0),
    "global_store_b32": Form("global_store", 4, False, (0, 2), 1),
    "global_store_b64": Form("global_store", 8, False, (0, 2), 1),
    "global_store_b96": Form("global_store", 12, False, (0, 2), 1),
}
# For each size in bytes, the suffix of a global access.
WIDER: Final = {8: "b64", 12: "b96", 16: "b128"}
# The range of a pair's offset, in elements.
REACH: Final = 256
STRIDE: Final = 64


class _Access(NamedTuple):
    """One access of a group: its place in the block, its offset in bytes, its form and its data."""

    at: int
    offset: int
    form: Form
    data: Operand


class _Joined(NamedTuple):
    """Accesses in the order of their offsets, and the instruction they become. `moved`: the address it uses, if not
    theirs.
    """

    accesses: tuple[_Access, ...]
    mnemonic: str
    offsets: dict[str, object]
    moved: _Moved | None = None


class _Moved(NamedTuple):
    """An address moved by a number of bytes, which several pairs use."""

    to: Reg
    by: int


class _Group:
    """Accesses of one kind through one address. `held`: units that nothing may write meanwhile, including EXEC.
    `buffer`: the memory they access (`Instr`).
    """

    __slots__ = ("accesses", "address", "address_units", "buffer", "form", "held", "stored")

    def __init__(self, form: Form, address: tuple[Operand, ...], units: frozenset[int], buffer: object) -> None:
        self.form, self.address, self.address_units, self.buffer = form, address, units, buffer
        self.accesses: list[_Access] = []
        self.held = {EXEC_LO, *units}
        # Bytes relative to the address.
        self.stored: set[int] = set()


def join_accesses(program: Program) -> None:
    """Join memory accesses in every block of a program on virtual registers."""
    found = {b: joined for b, steps in enumerate(program.blocks) if (joined := _Block(program, steps).run())}
    if found:
        _Rewriting(program, found).run()


def _key(step: Step, form: Form) -> tuple[object, ...] | None:
    """Return what accesses must have in common, None if this one cannot be joined."""
    instr = step.instr
    modifiers = instr.modifiers
    if modifiers and (modifiers.keys() - {"offset"} or not isinstance(modifiers.get("offset", 0), int)):
        return None
    operands = instr.operands
    return (form.kind, instr.buffer, *[operands[i] for i in form.address])


def _offset(step: Step) -> int:
    return step.instr.modifiers.get("offset", 0)  # type: ignore[return-value]  # `_key` has looked


def _candidates(steps: Sequence[Step]) -> dict[int, tuple[Form, tuple[object, ...]]]:
    """Return the steps that may be joined with another one of the block, as far as their addresses tell."""
    by_key: dict[tuple[object, ...], list[tuple[int, int, Form]]] = {}
    for at in [at for at, step in enumerate(steps) if step.instr.mnemonic in FORMS]:
        form = FORMS[steps[at].instr.mnemonic]
        key = _key(steps[at], form)
        if key is not None:
            by_key.setdefault(key, []).append((at, _offset(steps[at]), form))
    found = {}
    for key, ones in by_key.items():
        if len(ones) > 1 and (ones[0][2].pair or _neighbouring(ones)):
            found.update({at: (form, key) for at, _, form in ones})
    return found


def _neighbouring(ones: Sequence[tuple[int, int, Form]]) -> bool:
    starts = {offset for _, offset, _ in ones}
    return any(offset + form.size in starts for _, offset, form in ones)


class _Block:
    """Finds the accesses of one block that may be joined."""

    def __init__(self, program: Program, steps: list[Step]) -> None:
        self._program, self._steps = program, steps
        self._open: dict[object, _Group] = {}
        self._held: set[int] = set()
        self._joined: list[tuple[_Group, _Joined]] = []

    def run(self) -> list[tuple[_Group, _Joined]]:
        """Return the accesses that become one instruction, each with its group."""
        candidates = _candidates(self._steps)
        if not candidates:
            return []
        first, last = min(candidates), max(candidates)
        for at, step in enumerate(self._steps[first : last + 1], first):
            effects = step.effects
            form, key = candidates.get(at, (None, None))
            if self._open:
                if not self._held.isdisjoint(step.writes):
                    self._close([name for name, one in self._open.items() if not one.held.isdisjoint(step.writes)])
                if effects.ordered or effects.branch:
                    self._close(list(self._open))
                elif effects.memory:
                    self._close([name for name, one in self._open.items() if name != key and _disturbs(step, one)])
            if form is not None:
                self._add(at, step, form, key)
        self._close(list(self._open))
        return self._joined

    def _add(self, at: int, step: Step, form: Form, key: object) -> None:
        instr = step.instr
        offset = _offset(step)
        group = self._open.get(key)
        touched = range(offset, offset + form.size)
        if group is not None and not group.stored.isdisjoint(touched):
            self._close([key])
            group = None
        if group is None:
            address = tuple([instr.operands[i] for i in form.address])
            units = frozenset([unit for one in address for unit in self._program.units(one)])
            group = _Group(form, address, units, instr.buffer)
        # The access overwrites its own address.
        if not group.address_units.isdisjoint(step.writes):
            return
        self._open[key] = group
        group.accesses.append(_Access(at, offset, form, instr.operands[form.data]))
        if not form.load:
            group.stored.update(touched)
            group.held.update(self._program.units(instr.operands[form.data]))
        self._held |= group.held

    def _close(self, keys: Sequence[object]) -> None:
        if not keys:
            return
        for key in keys:
            group = self._open.pop(key)
            if len(group.accesses) > 1:
                joined = _pairs(group) if group.form.pair else _neighbours(group)
                self._joined += [(group, one) for one in joined]
        self._held = set().union(*[one.held for one in self._open.values()])


def _disturbs(step: Step, group: _Group) -> bool:
    """Return whether a step outside the group accesses memory such that the group's accesses must not be reordered with
    it.
    """
    effects: Effects = step.effects
    if effects.access == "read" and group.form.load:
        return False
    here = "lds" if group.form.pair else "global"
    # ORDER: the scalar cache is used only for buffers that are never written.
    if effects.memory in ("scalar", "scratch") or (effects.memory in ("lds", "global") and effects.memory != here):
        return False
    mine, other = group.buffer, step.instr.buffer
    return here == "lds" or mine is None or other is None or mine == other


def _neighbours(group: _Group) -> Iterator[_Joined]:
    """Yield runs of adjacent accesses of 8, 12 or 16 bytes, each as long as possible, from the lowest offset on."""
    left = sorted(group.accesses, key=lambda one: one.offset)
    while len(left) > 1:
        end, size, best = left[0].offset, 0, 1
        for count, one in enumerate(left, 1):
            size += one.form.size
            if one.offset != end or size > max(WIDER):
                break
            end += one.form.size
            if size in WIDER:
                best = count
        run, left = left[:best], left[best:]
        if best > 1:
            size = sum(one.form.size for one in run)
            offsets: dict[str, object] = {"offset": run[0].offset} if run[0].offset else {}
            yield _Joined(tuple(run), f"{group.form.kind}_{WIDER[size]}", offsets)


def _pairs(group: _Group) -> Iterator[_Joined]:
    """Yield pairs: with offsets in elements, in strides, or relative to an address moved for at least two of them."""
    size = group.form.size
    left = sorted(group.accesses, key=lambda one: one.offset)
    near = [one for one in left if one.offset % size == 0 and one.offset < REACH * size]
    near = near[: len(near) & ~1]
    yield from _two_by_two(group, near, "", 0, size)
    left = _without(left, near)
    while len(left) > 1:
        base, stride = left[0].offset, STRIDE * size
        strided = [one for one in left if one.offset % stride == 0 and one.offset < REACH * stride]
        if len(strided) > 1:
            taken = strided[: len(strided) & ~1]
            yield from _two_by_two(group, taken, "_stride64", 0, stride)
        else:
            taken = [one for one in left if (one.offset - base) % size == 0 and one.offset - base < REACH * size]
            taken = taken[: len(taken) & ~1] or left[:1]
            # The addition costs one instruction, and each pair saves one.
            if len(taken) > 3:
                yield from _two_by_two(group, taken, "", base, size, _Moved(Reg("v"), base))
        left = _without(left, taken)


def _without(accesses: Sequence[_Access], taken: Sequence[_Access]) -> list[_Access]:
    places = {one.at for one in taken}
    return [one for one in accesses if one.at not in places]


def _two_by_two(
    group: _Group, accesses: Sequence[_Access], stride: str, base: int, unit: int, moved: _Moved | None = None
) -> Iterator[_Joined]:
    name = group.form.pair.format(stride)
    for a, b in zip(accesses[::2], accesses[1::2], strict=True):
        offsets = {"offset0": (a.offset - base) // unit, "offset1": (b.offset - base) // unit}
        yield _Joined((a, b), name, {key: value for key, value in offsets.items() if value}, moved)


def _wants_tuple(form: Form) -> bool:
    return form.load or not form.pair


class _Accepted(NamedTuple):
    """Accesses that become one instruction, the step it replaces, and the operands that hold its data."""

    group: _Group
    joined: _Joined
    at: int
    data: list[Operand]


class _Rewriting:
    """Replaces accesses by the joined ones."""

    def __init__(self, program: Program, found: dict[int, list[tuple[_Group, _Joined]]]) -> None:
        self._program, self._found = program, found
        self._budget = RegisterBudget(program)
        tupled = [joined for pairs in found.values() for group, joined in pairs if _wants_tuple(group.form)]
        self._tuples = Tuples(program, [one.data for joined in tupled for one in joined.accesses])

    def run(self) -> None:
        """Decide about all of them, then rename registers that became parts of tuples, then rewrite the blocks."""
        accepted = {b: [one for pair in pairs if (one := self._accepted(b, *pair))] for b, pairs in self._found.items()}
        self._tuples.rename()
        for b, ones in accepted.items():
            self._write(b, ones)

    def _accepted(self, b: int, group: _Group, joined: _Joined) -> _Accepted | None:
        """Return the joined access, None where registers do not allow it."""
        form, accesses = group.form, joined.accesses
        places = [one.at for one in accesses]
        first, last = min(places), max(places)
        at = first if form.load else last
        data = [one.data for one in accesses]
        made = None
        if _wants_tuple(form):
            made = self._tuples.of(data)
            if made is None or (form.load and not self._is_unused_between(b, first, accesses)):
                return None
        dwords = sum([one.form.size for one in accesses if one.at != at]) // 4 + (joined.moved is not None)
        if not self._keeps_pressure(b, first, last, form) and not self._budget.reserve(b, first, last, dwords):
            return None
        if isinstance(made, Reg):
            self._tuples.take(data, made)
        return _Accepted(group, joined, at, data if made is None else [made])

    def _keeps_pressure(self, b: int, first: int, last: int, form: Form) -> bool:
        """Return whether joining keeps the maximum register pressure: only addresses may end between loads, and nothing
        may begin between stores.
        """
        between = self._program.blocks[b][first + 1 : last]
        if form.load:
            return all(step.effects.access == "read" for step in between)
        return all(not step.writes for step in between)

    def _is_unused_between(self, b: int, first: int, accesses: Sequence[_Access]) -> bool:
        """Return whether nothing between the first load and another one uses the other's register.

        A register that is written once in the program is read only after that.
        """
        steps = self._program.blocks[b]
        for one in accesses:
            if one.at != first and not self._tuples.written_once(one.data):
                units = set(self._program.units(one.data))
                for step in steps[first : one.at]:
                    if not units.isdisjoint(step.reads) or not units.isdisjoint(step.writes):
                        return False
        return True

    def _write(self, b: int, ones: Sequence[_Accepted]) -> None:
        program = self._program
        instead: dict[int, list[Step]] = {access.at: [] for one in ones for access in one.joined.accesses}
        moves: dict[_Moved, tuple[int, Operand]] = {}
        for one in ones:
            group, joined = one.group, one.joined
            address = group.address
            if joined.moved is not None:
                before = moves.get(joined.moved, (one.at,))[0]
                moves[joined.moved] = (min(before, one.at), address[0])
                address = (joined.moved.to,)
            operands = (*one.data, *address) if group.form.load else (address[0], *one.data, *address[1:])
            instr = Instr(joined.mnemonic, *map(self._tuples.renamed, operands))
            instr.modifiers.update(joined.offsets)
            instr.buffer = group.buffer
            instead[one.at].append(program.step(instr))
        for moved, (at, base) in moves.items():
            instead[at].insert(0, program.step(Instr("v_add_nc_u32", moved.to, moved.by, self._tuples.renamed(base))))
        steps = program.blocks[b]
        for at in sorted(instead, reverse=True):
            steps[at : at + 1] = instead[at]


__all__ = ["FORMS", "join_accesses"]
