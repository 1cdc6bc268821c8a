"""The layout of lanes' dwords in host memory, regions, and the results of memory helpers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ringup.silicon.shader.host.context import FAULT_KINDS, Word
from ringup.silicon.shader.host.emitter import Code, Value, bits

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CONTEXT = Value("%context", "ptr")
# Helpers keep every register if the host's ABI can express that. Then the wave's registers stay in place on the common
# path, and programs compile in half the time.
KEEPS_REGISTERS = '"no_caller_saved_registers"'
_ATTRIBUTES = f'noinline nounwind {KEEPS_REGISTERS} "prefer-vector-width"="512" "min-legal-vector-width"="512"'
# Status of a helper's answer. Every other value than DONE comes with the address that broke the rule, and is the kind's
# number plus one.
DONE = 0
MEMORY, ALIGNMENT = (FAULT_KINDS.index(one) + 1 for one in ("memory", "alignment"))


@dataclass(frozen=True, slots=True)
class Shape:
    """One access of a lane: `size_bytes` (1, 2, 4, 8, 12, 16) at a multiple of `align`, in waves of `lanes`."""

    size_bytes: int
    align: int
    lanes: int

    @property
    def rows(self) -> int:
        """How many registers hold it."""
        return -(-self.size_bytes // 4)

    @property
    def row(self) -> str:
        """The type of a register."""
        return f"<{self.lanes} x i32>"

    @property
    def packed(self) -> str:
        """The type of all lanes, contiguous in memory."""
        return f"<{self.lanes * self.rows} x i{8 * min(self.size_bytes, 4)}>"

    @property
    def total_bytes(self) -> int:
        """Bytes of all lanes, contiguous in memory."""
        return self.size_bytes * self.lanes

    @property
    def name(self) -> str:
        """The part of helpers' names for this shape."""
        return f"b{8 * self.size_bytes}_a{self.align}_w{self.lanes}"

    @property
    def mask(self) -> str:
        """The integer type of one bit a lane."""
        return f"i{self.lanes}"

    def pack(self, code: Code, rows: Sequence[Value]) -> Value:
        """Return registers in memory order; the low bytes of narrow ones."""
        if self.size_bytes < 4:
            return code.resize(rows[0], f"i{8 * self.size_bytes}")
        if len(rows) == 1:
            return rows[0]
        n = self.lanes
        pairs = [code.shuffle(a, b, range(2 * n)) for a, b in zip(rows[::2], rows[1::2], strict=False)]
        if len(rows) == 3:
            pairs.append(code.shuffle(rows[2], None, [*range(n), *(-1,) * n]))
        order = [row * n + lane for lane in range(n) for row in range(len(rows))]
        return code.shuffle(pairs[0], pairs[1] if len(pairs) > 1 else None, order)

    def unpack(self, code: Code, packed: Value) -> list[Value]:
        """Return values in memory order as registers; narrow values are zero-extended."""
        if self.size_bytes < 4:
            return [code.resize(packed, "i32")]
        if self.rows == 1:
            return [packed]
        return [code.shuffle(packed, None, range(row, self.rows * self.lanes, self.rows)) for row in range(self.rows)]


class Region(NamedTuple):
    """The contents of a region cache (i64)."""

    gpu_va: Value
    size_bytes: Value
    delta: Value  # host address minus gpu_va

    @classmethod
    def read(cls, code: Code, site: Value) -> Region:
        """Load the region from its site."""
        return cls(*(code.load(code.gep(site, word, "i64"), "i64", 8) for word in range(3)))

    def holds(self, code: Code, gpu_va: Value, size_bytes: int) -> Value:
        """Return whether `size_bytes` from an address (i64 or a vector) are in the region, as i1 or a vector of
        them.
        """
        spare = code.intrinsic("usub.sat", self.size_bytes, code.const(size_bytes - 1, "i64"))
        lanes = gpu_va.lanes
        start = code.splat(self.gpu_va, lanes) if lanes else self.gpu_va
        return code.icmp("ult", code.op("sub", gpu_va, start), code.splat(spare, lanes) if lanes else spare)


class Answer(NamedTuple):
    """The result of a helper: DONE or what went wrong (i64), the address (i64), and rows."""

    status: Value
    detail: Value
    rows: list[Value]


def _answer(code: Code) -> Value:
    code.define("memory.answer", "@memory.answer = internal global [160 x i64] zeroinitializer, align 64")
    return Value("@memory.answer", "ptr")


def _places(answer: Value, code: Code, types: Sequence[str]) -> list[Value]:
    """Return the addresses of status, detail and rows: 8 bytes apart, rows from byte 64."""
    places, at = [answer, code.gep(answer, 8)], 64
    for one in types:
        places.append(code.gep(answer, at))
        at += bits(one) * int(one[1:].split()[0]) // 8 if one[0] == "<" else 8
    return places


def give(code: Code, status: int | Value, detail: Value | None, rows: Sequence[Value]) -> None:
    """Return from a helper with an answer.

    The answer is in memory, since helpers keep all registers. No two helpers run at once.
    """
    how = status if isinstance(status, Value) else code.const(status, "i64")
    values = how, detail or code.const(0, "i64"), *rows
    for place, one in zip(_places(_answer(code), code, [row.type for row in rows]), values, strict=True):
        code.store(one, place, 8)
    code.line("ret void")


def take(code: Code, name: str, rows: Sequence[str], *args: Value) -> Answer:
    """Call a helper."""
    code.call(name, "void", *args)
    places = _places(_answer(code), code, rows)
    status, detail, *values = (
        code.load(place, one, 8) for place, one in zip(places, ("i64", "i64", *rows), strict=True)
    )
    return Answer(status, detail, values)


class Helper(NamedTuple):
    """A function that memory instructions call, and the functions that it calls in turn."""

    name: str
    declarations: dict[str, str]

    def include(self, code: Code) -> str:
        """Add the function to a module; return its name."""
        for name, text in self.declarations.items():
            code.declarations.setdefault(name, text)
        return self.name


def helper(name: str, args: Sequence[Value], body: Callable[[Code], None]) -> Helper:
    """Write a helper function. `body` starts in its first block and ends every block."""
    code = Code()
    body(code)
    head = f"define internal void @{name}({', '.join(f'{one.type} {one.text}' for one in args)}) {_ATTRIBUTES} {{"
    text = "\n".join((head, "entry:", *code.lines, "}"))
    return Helper(name, {**code.declarations, name: text})


def local(code: Code, type_: str, count: int = 1) -> Value:
    """Reserve memory on a helper's stack; only in its first block."""
    return code.emit(f"alloca {type_}, i64 {count}, align 64", "ptr")


def as_mask(code: Code, lanes: Value) -> Value:
    """Return a vector of i1 as an integer."""
    return code.bitcast(lanes, f"i{lanes.lanes}")


def first_lane(code: Code, mask: Value) -> Value:
    """Return the number (i32) of the lowest bit that is set in a mask; any lane's for an empty mask."""
    found = code.intrinsic("cttz", mask, Value("false", "i1"))
    return code.resize(code.op("and", found, code.const(int(mask.type[1:]) - 1, mask.type)), "i32")


def each_lane(code: Code, mask: Value, body: Callable[[Value], None]) -> None:
    """Emit a loop over the set bits of a mask, lowest first.

    `body` gets the lane's number (i64) and may open blocks.
    """
    head, inside, done = code.fresh("lanes"), code.fresh("lane"), code.fresh("end")
    before, rest = code.label, code.fresh("%rest")
    code.jump(head)
    code.block(head)
    at = len(code.lines)
    # replaced by the phi, once the end of the body is known
    code.line("")
    left = code.emit(f"add {mask.type} {rest}, 0", mask.type)
    code.branch(code.icmp("eq", left, code.const(0, mask.type)), done, inside)
    code.block(inside)
    lane = code.resize(code.intrinsic("cttz", left, Value("true", "i1")), "i64")
    body(lane)
    less = code.op("and", left, code.op("sub", left, code.const(1, mask.type)))
    code.lines[at] = f"{rest} = phi {mask.type} [ {mask.text}, %{before} ], [ {less.text}, %{code.label} ]"
    code.jump(head)
    code.block(done)


def is_unaligned(code: Code) -> Value:
    """Return whether SH_MEM_CONFIG allows misaligned accesses to vector memory and LDS (i1)."""
    word = code.load(code.gep(CONTEXT, Word.UNALIGNED, "i64"), "i64", 8)
    return code.icmp("ne", word, code.const(0, "i64"))
