"""Registers that may never have been given a value where they decide something: what translated code notes for them.

A thread follows a path through the blocks. What every path defines needs no check, and so compilers' code mostly has
none. For the rest there is a word of the warp's state, with a bit for each lane that has a value. As in
`strict/tracker.py`, a result has a value if any register that it is made of has one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ringup.silicon.shader.host.context import FAULT_KINDS
from ringup.silicon.shader.host.memory_shape import Answer, first_lane
from ringup.silicon.shader.nv.decoding.instruction import PT, RZ, WORD_BYTES, Instruction, Kind
from ringup.silicon.shader.nv.interpreter.accesses import accesses
from ringup.silicon.shader.nv.interpreter.bindings import handle_registers
from ringup.silicon.shader.nv.translator import layout
from ringup.silicon.shader.nv.translator.program import successors

if TYPE_CHECKING:
    from ringup.silicon.shader.host.emitter import Value
    from ringup.silicon.shader.nv.translator.program import Block
    from ringup.silicon.shader.nv.translator.writer import Writer

Key = tuple[str, int]
UNINITIALISED = FAULT_KINDS.index("uninitialised") + 1
# Addresses that the interpreter does not check: those of constants.
_UNCHECKED = ("LDC", "ULDC", "LDCU")
# In the detail of a fault: the lane, the register's number above it, whether it guards.
NUMBER_BIT, GUARD_BIT = 8, 16


class Use(NamedTuple):
    """A register that decides whether or where an instruction does something."""

    key: Key
    is_guard: bool


class Written(NamedTuple):
    """A register whose mask changes: it has a value afterwards if any of `sources` has one, always without any."""

    key: Key
    sources: tuple[Key, ...]


class _Access(NamedTuple):
    reads: tuple[Key, ...]
    writes: tuple[Key, ...]
    uses: tuple[Use, ...]


class Undefined(NamedTuple):
    """By place: registers to check before an instruction, and masks to change behind it."""

    checks: dict[int, list[Use]]
    changes: dict[int, list[Written]]


def find(target: str, blocks: dict[int, Block]) -> Undefined:
    """Return what code must check and note."""
    known = {
        start + WORD_BYTES * number: _access(target, ins)
        for start, block in blocks.items()
        for number, ins in enumerate(block.instructions)
    }
    before = _defined(blocks, known)
    checks = {at: uses for at, one in known.items() if (uses := [use for use in one.uses if use.key not in before[at]])}
    tracked = {use.key for every in checks.values() for use in every}
    changes: dict[int, list[Written]] = {}
    todo = set(tracked)
    while todo:
        changes, found = _changes(known, before, tracked)
        todo = found - tracked
        tracked |= found
    return Undefined(checks, changes)


def _access(target: str, ins: Instruction) -> _Access:
    every = accesses(target, ins)
    reads = tuple((one.file, one.number) for one in every if not one.is_write and not one.is_guard)
    writes = tuple((one.file, one.number) for one in every if one.is_write)
    uses = []
    if ins.is_guarded and ins.guard.kind is Kind.PREDICATE and ins.guard.value != PT:
        uses.append(Use(("P", ins.guard.value), is_guard=True))
    for one in ins.operands:
        if one.kind is Kind.ADDRESS and one.register not in (-1, RZ) and ins.name not in _UNCHECKED:
            uses.append(Use(("R", one.register), is_guard=False))
    uses += [Use(("R", one), is_guard=False) for one in handle_registers(ins.name, ins.word) if one != RZ]
    return _Access(reads, writes, tuple(uses))


def _defined(blocks: dict[int, Block], known: dict[int, _Access]) -> dict[int, frozenset[Key]]:
    """Return by place what every path to it defines."""
    entries: dict[int, frozenset[Key]] = {0: frozenset()}
    found: dict[int, frozenset[Key]] = {}
    todo = [0]
    while todo:
        start = todo.pop()
        defined, at = entries[start], start
        for ins in blocks[start].instructions:
            found[at] = defined
            defined = _behind(defined, known[at], is_guarded=ins.is_guarded)
            at += WORD_BYTES
        for following in successors(blocks[start]):
            if following not in blocks:
                continue
            old = entries.get(following)
            new = defined if old is None else old & defined
            if new != old:
                entries[following] = new
                todo.append(following)
    return {at: found.get(at, frozenset()) for at in known}


def _behind(defined: frozenset[Key], access: _Access, *, is_guarded: bool) -> frozenset[Key]:
    if access.reads and defined.isdisjoint(access.reads):
        return defined.difference(access.writes)
    return defined if is_guarded else defined.union(access.writes)


def _changes(
    known: dict[int, _Access], before: dict[int, frozenset[Key]], tracked: set[Key]
) -> tuple[dict[int, list[Written]], set[Key]]:
    """Return by place the masks to change, and all registers that this needs."""
    changes: dict[int, list[Written]] = {}
    needed = set(tracked)
    for at, access in known.items():
        written = [key for key in access.writes if key in tracked]
        if written:
            is_defined = not access.reads or not before[at].isdisjoint(access.reads)
            sources = () if is_defined else access.reads
            needed.update(sources)
            changes[at] = [Written(key, sources) for key in written]
    return changes, needed


# code -----------------------------------------------------------------------------------------------------------------

_PLACES = {"R": 0, "P": 256, "U": 264, "Q": 328}


def _place(key: Key) -> int:
    return layout.DEFINED + _PLACES[key[0]] + key[1]


def check(w: Writer, use: Use) -> None:
    """Stop the warp if a register was never given a value in a lane in which it decides something."""
    code = w.code
    lanes = w.active if use.is_guard else w.mask
    wrong = code.op("and", lanes, code.invert(w.load(_place(use.key))))
    note = use.key[1] << NUMBER_BIT | use.is_guard << GUARD_BIT
    detail = code.op("or", code.resize(first_lane(code, wrong), "i64"), code.const(note, "i64"))
    answer = Answer(code.const(UNINITIALISED, "i64"), detail, [])
    w.fault(code.icmp("ne", wrong, code.const(0, "i32")), answer)


def change(w: Writer, written: list[Written]) -> None:
    """Note which lanes have a value."""
    code = w.code
    found = [(one.key, _value(w, one)) for one in written]
    for key, value in found:
        if key[0] in "RP" and w.mask.text != "-1":
            old = code.op("and", w.load(_place(key)), code.invert(w.mask))
            value = code.op("or", old, code.op("and", value, w.mask))
        w.store(value, _place(key))


def _value(w: Writer, one: Written) -> Value:
    value = w.code.const(0 if one.sources else -1, "i32")
    for source in one.sources:
        value = w.code.op("or", value, w.load(_place(source)))
    return value


def detail_of(word: int) -> tuple[int, str]:
    """Return the lane and the text of a fault's detail."""
    lane, number = word & (1 << NUMBER_BIT) - 1, word >> NUMBER_BIT & 0xFF
    what = f"P{number} guards it" if word >> GUARD_BIT & 1 else f"R{number} is an address"
    return lane, f"{what} and was never given a value in lane {lane}"
