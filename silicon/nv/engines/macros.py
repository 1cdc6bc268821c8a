"""The macro engine (MME) of Turing and later: small programs that make methods of others.

An instruction has 96 bits: two operations and two outputs, each under its own predicate. Source: Mesa
src/nouveau/mme (mme_tu104.c: encoding; mme_tu104_sim.c: meanings; nvk_cmd_dispatch.c, mme_builder.h: use).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from ringup.autogen.layout import Field, Word
from ringup.silicon.nv.engines.engine import Lacking, Refused

MASK = 0xFFFF_FFFF
REGISTERS = 24
# numbers of sources beyond the registers
ZERO, IMM, IMM_PAIR, IMM32, LOAD0, LOAD1 = 24, 25, 26, 27, 28, 29
# words of data memory, and of instruction memory. GUESS: 4096 instructions, as branches reach
DATA_WORDS, INSTRUCTION_WORDS = 0xC00, 3 * 4096
# instructions of one go, and what one takes; GUESS
TURN, INSTRUCTION_US = 1024, 0.02
EXIT_OFFSET = 0x1000
# what `run` yields instead of a time while the call has given too few parameters
NEEDS_PARAMETER = -1.0
# Which letter of a predicate's name each of the four parts has: U is always done, T is left out if the register is not
# 0, F if it is. Source: mme_tu104_sim.c, whose tests compare it with metal.
PREDICATES = (
    "UUUU", "TTTT", "FFFF", "TTUU", "FFUU", "TFUU", "TUUU", "FUUU", "UUTT", "UUTF", "UUTU", "UUFT", "UUFF", "UUFU", "UUUT",
    "UUUF",
)  # fmt: skip


class Instruction(Word, width=96):
    """One instruction. The words of memory hold it from the high one down."""

    end_next = Field(0)
    pred_mode = Field(4, 1)
    pred = Field(9, 5)
    op0 = Field(14, 10)
    dst0 = Field(19, 15)
    a0 = Field(24, 20)
    b0 = Field(29, 25)
    imm0 = Field(45, 30)
    op1 = Field(50, 46)
    dst1 = Field(55, 51)
    a1 = Field(60, 56)
    b1 = Field(65, 61)
    imm1 = Field(81, 66)
    method0 = Field(84, 82)
    emit0 = Field(88, 85)
    method1 = Field(91, 89)
    emit1 = Field(95, 92)


class Surroundings(Protocol):
    """What a macro sees of its object."""

    def state(self, address: int) -> int:
        """Return the data that a method was last given."""
        ...

    def emit(self, address: int, data: int) -> Iterator[float]:
        """Execute a method."""
        ...

    @property
    def parameters(self) -> Parameters:
        """The words that loads take."""
        ...


def _signed(value: int, bits: int = 32) -> int:
    return value - (1 << bits) if value >> bits - 1 & 1 else value


def _clz(value: int) -> int:
    return 32 - value.bit_length()


# operations without effects beside their result
PLAIN: dict[int, Callable[[int, int], int]] = {
    8: lambda x, y: _clz(x),
    9: lambda x, y: x << (y & 31),
    10: lambda x, y: x >> (y & 31),
    11: lambda x, y: _signed(x) >> (y & 31),
    12: lambda x, y: x & y,
    13: lambda x, y: ~(x & y),
    14: lambda x, y: x | y,
    15: lambda x, y: x ^ y,
    17: lambda x, y: -(_signed(x) < _signed(y)),
    18: lambda x, y: -(x < y),
    19: lambda x, y: -(_signed(x) <= _signed(y)),
    20: lambda x, y: -(x <= y),
    21: lambda x, y: -(x == y),
}
ADD, ADDC, SUB, SUBB, MUL, MULH, MULU, EXTENDED, MERGE, STATE, LOOP, JAL = 0, 1, 2, 3, 4, 5, 6, 7, 16, 22, 23, 24
DREAD, DWRITE = 30, 31
# branches compare as the operations that store the result
BRANCHES = {25: 17, 26: 18, 27: 19, 28: 20, 29: 21}
# the one extended operation that is known: wait for what was read from memory
BARRIER = (0x1000, 1)


@dataclass(slots=True)
class Memory:
    """The memories of one macro engine: instructions, where macros start, and data."""

    instructions: list[int]
    starts: dict[int, int]
    data: list[int]


def fresh_memory() -> Memory:
    """Return memories of zeros."""
    return Memory([0] * INSTRUCTION_WORDS, {}, [0] * DATA_WORDS)


class Machine:
    """One run of a macro. `run` yields microseconds, or NEEDS_PARAMETER; it ends with the macro."""

    def __init__(self, memory: Memory, around: Surroundings, start_word: int) -> None:
        self._memory, self._around, self._start = memory, around, start_word
        self._registers = [0] * REGISTERS
        self._loaded = [0, 0]
        self._results = [0, 0]
        self._carry = 0
        self._method = self._increment = 0
        self._at = self._next = 0
        self._stops = False
        self._loop: tuple[int, int, int] | None = None

    def _fetch(self) -> Instruction:
        at = self._start + 3 * self._at
        if not 0 <= at <= INSTRUCTION_WORDS - 3:
            raise Refused(f"a macro runs beyond its memory, to word {at:#x}")
        high, middle, low = self._memory.instructions[at : at + 3]
        return Instruction(high << 64 | middle << 32 | low)

    def run(self) -> Iterator[float]:
        """Execute until the macro ends."""
        ends, count = False, 0
        while True:
            one = self._fetch()
            self._next = self._at + 1
            yield from self._load(one)
            parts = self._predicate(one)
            for number, (op, dst, a, b) in enumerate(
                ((one.op0, one.dst0, one.a0, one.b0), (one.op1, one.dst1, one.a1, one.b1))
            ):
                if parts[number]:
                    yield from self._operate(one, number, op, dst, a, b)
            for number, (method, emit) in enumerate(((one.method0, one.emit0), (one.method1, one.emit1))):
                if parts[2 + number]:
                    yield from self._output(one, method, emit)
            if ends or self._stops:
                return
            ends = bool(one.end_next)
            self._advance()
            count += 1
            if count % TURN == 0:
                yield TURN * INSTRUCTION_US

    def _advance(self) -> None:
        if self._loop is not None:
            left, first, last = self._loop
            if self._at == last:
                self._loop = (left - 1, first, last) if left > 1 else None
                self._next = first
        self._at = self._next

    def _load(self, one: Instruction) -> Iterator[float]:
        """Take the parameters that an instruction uses."""
        sources = (one.pred, one.a0, one.b0, one.a1, one.b1)
        outputs = (one.method0, one.emit0, one.method1, one.emit1)
        for number, (source, output) in enumerate(((LOAD0, 3), (LOAD1, 4))):
            if source in sources or output in outputs:
                while not self._around.parameters:
                    yield NEEDS_PARAMETER
                self._loaded[number] = self._around.parameters.take()

    def _predicate(self, one: Instruction) -> tuple[bool, bool, bool, bool]:
        letters = PREDICATES[one.pred_mode]
        true = letters != "UUUU" and bool(self._source(one, 0, one.pred))
        a, b, c, d = (letter == "U" or (letter == "T") != true for letter in letters)
        return a, b, c, d

    def _source(self, one: Instruction, number: int, source: int) -> int:
        if source < REGISTERS:
            return self._registers[source]
        own, other = (one.imm0, one.imm1) if number == 0 else (one.imm1, one.imm0)
        values: dict[int, int] = {
            ZERO: 0,
            IMM: _signed(own, 16) & MASK,
            IMM_PAIR: _signed(other, 16) & MASK,
            IMM32: one.imm0 << 16 | one.imm1,
            LOAD0: self._loaded[0],
            LOAD1: self._loaded[1],
        }
        if source not in values:
            raise Refused(f"a macro has source {source}, which is none")
        return values[source]

    def _operate(self, one: Instruction, number: int, op: int, dst: int, a: int, b: int) -> Iterator[float]:
        x, y = self._source(one, number, a), self._source(one, number, b)
        immediate = one.imm0 if number == 0 else one.imm1
        if op in PLAIN:
            result = PLAIN[op](x, y)
        elif op in (ADD, ADDC, SUB, SUBB, MUL, MULH, MULU):
            result = self._arithmetic(op, x, y)
        elif op == MERGE:
            where, bits, place = immediate >> 10 & 0x3F, immediate >> 5 & 0x1F, immediate & 0x1F
            mask = (1 << bits) - 1
            result = x & ~(mask << where) | (y >> place & mask) << where
        elif op == STATE:
            result = self._around.state((x + y & 0x3FFF) * 4)
        elif op in (DREAD, DWRITE):
            result = self._data(op, x, y)
        elif op == EXTENDED:
            if (x, y) != BARRIER:
                raise Lacking(f"a macro's extended operation {x:#x}, {y:#x} is not modelled")
            result = 0
        else:
            result = self._flow(op, x, y, immediate)
        self._results[number] = result & MASK
        if dst < REGISTERS:
            self._registers[dst] = result & MASK
        elif dst != ZERO:
            raise Refused(f"a macro stores to register {dst}, which is none")
        # a generator like the others, though no operation takes time of its own
        yield from ()

    def _arithmetic(self, op: int, x: int, y: int) -> int:
        if op == ADD:
            self._carry = x + y >> 32
            return x + y
        if op == SUB:
            self._carry = int(x < y)
            return x - y
        if op in (ADDC, SUBB):
            return x + y + self._carry if op == ADDC else x - y - self._carry
        if op == MULH:
            return self._carry
        product = x * y if op == MULU else _signed(x) * _signed(y)
        self._carry = product >> 32 & MASK
        return product

    def _data(self, op: int, x: int, y: int) -> int:
        if x >= DATA_WORDS:
            raise Refused(f"a macro uses word {x:#x} of its data memory, which has {DATA_WORDS:#x}")
        if op == DWRITE:
            self._memory.data[x] = y
            return 0
        return self._memory.data[x]

    def _flow(self, op: int, x: int, y: int, immediate: int) -> int:
        """Loop, jump or branch."""
        if op == LOOP:
            last = self._at + immediate - 1
            if last <= self._at:
                raise Refused(f"a macro's loop has {immediate} instructions")
            self._loop = (x - 1, self._at + 1, last) if x > 1 else None
        elif op == JAL:
            self._next = self._at + (immediate & 0x7FFF)
        elif bool(PLAIN[BRANCHES[op]](x, y)) == bool(immediate >> 15):
            offset = _signed(immediate & 0x1FFF, 13)
            if offset == -EXIT_OFFSET:
                self._stops = True
            else:
                self._next = self._at + offset
        return 0

    def _output(self, one: Instruction, method: int, emit: int) -> Iterator[float]:
        if method:
            word = self._out(one, method)
            self._method, self._increment = (word & 0xFFF) << 2, word >> 12 & 0xF
        if emit:
            at = self._method
            self._method = at + 4 * self._increment
            yield from self._around.emit(at, self._out(one, emit))

    def _out(self, one: Instruction, which: int) -> int:
        values: dict[int, int] = {
            1: self._results[0],
            2: self._results[1],
            3: self._loaded[0],
            4: self._loaded[1],
            5: one.imm0,
            6: one.imm1,
            8: one.imm0 >> 12,
            9: one.imm1 >> 12,
            10: one.imm0 << 16 | one.imm1,
        }
        if which not in values:
            raise Refused(f"a macro has output {which}, which is none")
        return values[which]


class Parameters:
    """The parameters of a macro's call, and words that it has read from memory. A FIFO."""

    def __init__(self) -> None:
        self._waiting: deque[int] = deque()

    def put(self, words: Sequence[int]) -> None:
        """Add words."""
        self._waiting.extend(words)

    def clear(self) -> None:
        """Drop what nobody took."""
        self._waiting.clear()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def take(self) -> int:
        """Return the oldest word."""
        return self._waiting.popleft()
