"""Random kernels in the C that both machines read. What they compute is defined, although not every variable has a
value on every path.

`Source(seed).text` has kernels over two arrays of u32: loops whose length depends on data, arrays in registers or in
memory by an index, switches, early ends, calls, values that are made and read on some paths only, and LDS that a whole
group fills.
"""

from __future__ import annotations

import random

KERNELS = 2
DEEPEST = 2  # statements within statements
TRIPS = ("n / 16", "b[i] % 11", "(b[i] ^ a[i]) % 7", "5", "n % 9 + 2")
TYPES = ("u32", "u32", "u32", "u64", "u16", "u8")

# Clang 19 divides in 24-bit floats where both numbers start with nine equal bits, and mistakes ones for zeros there:
# 0xFFFFFFFF % 3 as x >> 31 % 3 is wrong (llvm/llvm-project#119325 corrects it in LLVM 20). It knows no bit of these.
PREAMBLE = """#include "common.h"
#ifdef __AMDGCN__
#define REGISTER "+v"
#else
#define REGISTER "+r"
#endif
INLINE u32 opaque(u32 x) { __asm__("" : REGISTER(x)); return x; }
"""


class Source:
    """One source file; the same seed gives the same file."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names = [f"kernel_{at}" for at in range(KERNELS)]
        self.helpers: list[str] = []
        parts = [self._helper(at) for at in range(1)]
        parts += [self._kernel(name) for name in self.names[:-1]]
        parts.append(self._group_kernel(self.names[-1]))
        self.text = PREAMBLE + "\n".join(parts)

    def _pick(self, *what: str) -> str:
        return self.random.choice(what)

    # expressions ------------------------------------------------------------------------------------------------------

    def _term(self) -> str:
        """Return a term that has a value here."""
        choices = [*self.values, *self.values, f"{self.random.choice((0, 1, 2, 7, 31, 255, 0x9E3779B9))}u"]
        if self.kernel:
            choices += [f"a[(u32)({self._pick(*self.values)}) % n]", "i", "n"]
        return self.random.choice(choices)

    def _value(self, depth: int = 2) -> str:
        """Return an expression of unsigned numbers without undefined behaviour."""
        if depth == 0 or self.random.random() < 0.2:
            return self._term()
        left, right = self._value(depth - 1), self._value(depth - 1)
        how = self.random.randrange(12)
        if how < 6:
            return f"({left} {self._pick('+', '-', '*', '^', '&', '|')} {right})"
        if how == 6:
            return f"((u32)({left}) {self._pick('<<', '>>')} (({right}) & 31))"
        if how == 7:
            dividend = f"{self._pick('(u16)', 'opaque', 'opaque')}({left})"
            return f"({dividend} {self._pick('/', '%')} (((u32)({right}) & 1023) + 1))"
        if how == 8:
            return f"(u32)((i32)({left}) >> (({right}) & 31))"
        if how == 9:
            return f"(({self._condition(depth - 1)}) ? {left} : {right})"
        if how == 10 and self.helpers:
            return f"{self._pick(*self.helpers)}({left}, {right})"
        return f"(({self._pick('u8', 'u16', 'u64', 'u32')})({left}) + 0u)"

    def _condition(self, depth: int = 1) -> str:
        left, right = self._value(depth), self._value(depth)
        if self.random.random() < 0.4:
            return f"(({left}) & {self._pick('1', '3', '6', '12')})"
        kind = self._pick("u32", "i32", "u64")
        return f"({kind})({left}) {self._pick('<', '>', '<=', '==', '!=')} ({kind})({right})"

    # statements -------------------------------------------------------------------------------------------------------

    def _block(self, depth: int, *, loop: bool = False) -> str:
        known = len(self.values)
        lines = [self._statement(depth) for _ in range(self.random.randint(1, 3))]
        if loop and self.random.random() < 0.3:
            lines.append(f"if ({self._condition()}) {self._pick('break', 'continue')};")
        del self.values[known:]
        return "{ " + "\n".join(lines) + " }"

    def _statement(self, depth: int) -> str:
        how = self.random.randrange(10) if depth else self.random.randrange(4)
        if how < 3:
            return f"{self._pick(*self.variables)} {self._pick('=', '+=', '^=', '*=')} {self._value()};"
        if how == 3:
            return self._sometimes()
        if how < 6:
            other = f" else {self._block(depth - 1)}" if self.random.random() < 0.5 else ""
            return f"if ({self._condition()}) {self._block(depth - 1)}{other}"
        if how == 6:
            return self._switch(depth)
        if how == 7:
            return self._array(depth)
        return self._loop(depth)

    def _loop(self, depth: int) -> str:
        count = f"k{self._number()}"
        self.values.append(count)
        body = self._block(depth - 1, loop=True)
        self.values.remove(count)
        trips = self._pick(*TRIPS) if self.kernel else "(x & 7)"
        return f"for (u32 {count} = 0; {count} < {trips}; {count}++) {body}"

    def _sometimes(self) -> str:
        """Make a value on some paths, and read it only on those."""
        name, made = f"m{self._number()}", f"h{self._number()}"
        kind = self._pick(*TYPES)
        write = f"if ({self._condition()}) {{ {name} = {self._value()}; {made} = 1; }}"
        if self.random.random() < 0.5 and self.kernel:
            count = f"k{self._number()}"
            write = f"for (u32 {count} = 0; {count} < {self._pick(*TRIPS)}; {count}++) {write}"
        target = self._pick(*self.variables)
        return f"{kind} {name}; u32 {made} = 0; {write}\n{target} ^= {made} ? {name} : {self._term()};"

    def _switch(self, depth: int) -> str:
        cases = []
        for at in range(self.random.randint(2, 6)):
            leave = "" if self.random.random() < 0.25 else " break;"
            cases.append(f"case {at}: {self._block(max(depth - 2, 0))}{leave}")
        cases.append(f"default: {self._block(0)}")
        return f"switch (opaque({self._value()}) % {len(cases) + 1}) {{ {' '.join(cases)} }}"

    def _array(self, depth: int) -> str:
        """Fill an array completely, or element by element as far as the loop goes, and read its elements."""
        name, count = f"t{self._number()}", f"c{self._number()}"
        size, kind = self.random.choice((3, 4, 7, 8, 16, 50)), self._pick(*TYPES)
        at, target = f"k{self._number()}", self._pick(*self.variables)
        if self.random.random() < 0.5:
            fill = f"for (u32 {at} = 0; {at} < {size}; {at}++) {name}[{at}] = {self._value()} + {at};"
            known = str(size)
        else:
            trips = self._pick(*TRIPS) if self.kernel else "(x & 7)"
            put = f"{name}[{count} % {size}] = {self._value()}; {count}++;"
            fill = f"for (u32 {at} = 0; {at} < {trips}; {at}++) if ({self._condition()}) {{ {put} }}"
            known = f"({count} < {size} ? {count} : {size})"
        changes = f"{name}[opaque({self._value()}) % {known}] += {self._value()};" if self.random.random() < 0.5 else ""
        if changes and not known.isdigit():
            changes = f"if ({count}) {changes}"
        read = f"{target} += {name}[opaque({self._value()}) % {known}];"
        if not known.isdigit():
            read = f"if ({count}) {read}"
        return f"{kind} {name}[{size}]; u32 {count} = 0; {fill}\n{changes}\n{read}"

    def _number(self) -> int:
        self.count += 1
        return self.count

    # functions --------------------------------------------------------------------------------------------------------

    def _begin(self, values: list[str], *, kernel: bool) -> str:
        self.kernel, self.count = kernel, 0
        self.values = values
        self.variables = [f"v{at}" for at in range(4)]
        lines = [f"{self._pick(*TYPES)} {name} = {self._value(1)};" for name in self.variables]
        self.values = [*values, *(f"({name} + 0u)" for name in self.variables)]  # no signed number overflows
        return "\n".join(lines)

    def _helper(self, at: int) -> str:
        head = self._begin(["x", "y"], kernel=False)
        body = "\n".join(self._statement(2) for _ in range(2))
        text = f"NOINLINE u32 helper_{at}(u32 x, u32 y) {{\n{head}\n{body}\nreturn v0 ^ v1 ^ (u32)v2 ^ v3;\n}}"
        self.helpers.append(f"helper_{at}")
        return text

    def _kernel(self, name: str) -> str:
        head = self._begin(["a[i]", "b[i]", "i"], kernel=True)
        lines = []
        for _ in range(self.random.randint(1, 3)):
            lines.append(self._statement(DEEPEST))
            if self.random.random() < 0.15:
                lines.append(f"if ({self._condition()}) {{ out[i] = v0; return; }}")
        body = "\n".join(lines)
        return f"KERNEL({name}, u32, u32, u32) {{\n{head}\n{body}\nout[i] = v0 ^ v1 * 3 ^ (u32)v2 ^ v3;\n}}"

    def _group_kernel(self, name: str) -> str:
        """Add a kernel whose group fills LDS, and whose lanes read one another's places in turns."""
        phases = ["EACH(l) one[l] = a[GROUP_ID * GROUP + l]; END"]
        for at in range(self.random.randint(1, 4)):
            to, of = ("two", "one") if at % 2 == 0 else ("one", "two")
            step, factor = self.random.randrange(64), self.random.choice((1, 3, 5, 63))
            self._begin([f"{of}[(l * {factor} + {step}) % GROUP]", f"{of}[l]", "l", "n"], kernel=False)
            self.values = self.values[:4]
            value, other = self._value(), self._value()
            how = f"if ({self._condition()}) {to}[l] = {value}; else {to}[l] = {other};"
            phases.append(f"EACH(l) {how} END")
        last = "two" if len(phases) % 2 == 0 else "one"
        phases.append(f"EACH(l) out[GROUP_ID * GROUP + l] = {last}[l] + l; END")
        body = "\n".join(phases)
        return f"GROUP_KERNEL({name}, u32, u32, u32) {{\nSHARED u32 one[GROUP]; SHARED u32 two[GROUP];\n{body}\n}}"
