"""The common part of all selection rules: places of values, operands, constants, and instructions whose operands fit
their encoding.

Code is generated backwards, from a region's last item to its first, so an operation is visited after all its uses.
Values without a use are not generated, a use may fuse an operation into its own instruction, and a result can be
written directly to the register where it is needed. A rule appends its instructions in forward order to `line`.
Constant-bus rule of GFX10 and later: a vector instruction reads at most two scalar values (SGPRs and literals counted),
one literal among them. GFX9 reads one, and `encodings.py` moves literals that the long encoding cannot hold. Source:
RDNA3 ISA, "Scalar inputs"; LLVM AMDGPUOperandSyntax.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from ringup.compiler.amd.instructions.code import EXEC, EXEC_LO, VCC, VCC_LO, Bank, Instr, Operand, Part, Reg, Signed
from ringup.compiler.amd.instructions.targets import Row
from ringup.compiler.amd.legalize.ranges import Bounds, top
from ringup.compiler.amd.select.analyze import Analysis, dwords
from ringup.compiler.machine.ir import Function, Region, Value

Place = Reg | Part

# Float inline constants. Source: RDNA3 ISA, "Scalar source operands", 240-248.
INLINE_FLOATS = (0.5, -0.5, 1.0, -1.0, 2.0, -2.0, 4.0, -4.0)
_INLINE = {
    form: {int.from_bytes(struct.pack(form, one), "little"): one for one in INLINE_FLOATS}
    for form in ("<e", "<f", "<d")
}
_INLINE["<f"][0x3E22F983] = 0.15915494309189532  # 1 / (2 pi)


@lru_cache(maxsize=65536)
def number(bits: int, kind: str) -> int | float:
    """Return a constant as an operand of kind b32, f16 (16 bits), b16 or b64. A number that is not an inline constant
    is an unsigned literal.
    """
    width = 64 if kind == "b64" else 16 if kind in ("f16", "b16") else 32
    value = bits - (1 << width) if bits >> width - 1 else bits
    if -16 <= value <= 64:
        return value
    if kind != "b16":
        found = _INLINE["<d" if kind == "b64" else "<e" if kind == "f16" else "<f"].get(bits)
        if found is not None:
            return found
    return bits


def is_literal(operand: Operand) -> bool:
    """Return whether a number needs a literal: an integer from `number` outside the inline range."""
    return isinstance(operand, int) and not -16 <= operand <= 64


def is_scalar(operand: Operand) -> bool:
    """Return whether an operand is not a VGPR."""
    if isinstance(operand, Signed):
        operand = operand.source
    if isinstance(operand, Reg):
        return operand.bank == "s"
    return operand.reg.bank == "s" if isinstance(operand, Part) else True


class Emitter:
    """The state of the selection of one function. The module's docstring explains it."""

    def __init__(self, function: Function, row: Row, bounds: Bounds) -> None:
        self.function, self.row = function, row
        self.known = Analysis(function, row.scalar_floats)
        self.uses, self.bits, self.views = self.known.uses, self.known.bits, self.known.views
        self.places: dict[Value, Place] = {}
        self.line: list[Instr] = []
        self.here: Region = function.body
        # The position of the current item.
        self.now = 0
        # Carried values whose register the body overwrites, with the position where it does.
        self.ends: dict[Value, int] = {}
        # The registers of these values. They must not be written before that position.
        self.floors: dict[Place, int] = {}
        self.wave = function.wave_size
        self.lanes = self.wave // 32
        self.vcc, self.exec = (VCC_LO, EXEC_LO) if self.wave == 32 else (VCC, EXEC)
        # The suffix of mask instructions.
        self.b = f"b{self.wave}"
        self.leaves: dict[str, Reg] = {}
        self.bases: dict[tuple[Value, int], Place] = {}
        self.moved: dict[tuple[Value, int], Reg] = {}
        self.constants: dict[int, Reg] = {}
        self.params: dict[int, Place] = {}
        # For a load in progress: the register with the third byte of its last dword.
        self.thirds: dict[Place, Reg] = {}
        self._bounds = bounds

    # Places

    def place(self, value: Value) -> Place:
        """Return the place of a value, and thereby request that it is computed."""
        found = self.places.get(value)
        if found is None:
            view = self.views.get(value)
            if view is not None:
                found = part(self.place(view[0]), view[1], view[2])
            elif value.op == "param":
                found = self.params[value.imm]
            else:
                found = Reg(self.known.bank(value), dwords(value.type, self.wave), name=value.name)
            self.places[value] = found
        return found

    def claim(self, value: Value, place: Place) -> bool:
        """Let a value be computed in `place`, if nothing has requested it yet and the register is free from there on.
        Return whether that was done.
        """
        if (
            value in self.places or value in self.views or value in self.bits or self.known.region.get(value) is not self.here
            or value.op in _NOT_MADE or self.known.bank(value) != bank(place)
        ):  # fmt: skip
            return False
        floor = self.floors.get(place.reg if isinstance(place, Part) else place)
        if floor is not None and (self.known.position[value] < floor or value.op not in IN_PLACE):
            return False
        self.places[value] = place
        return True

    def top(self, value: Value) -> int:
        """Return an upper bound of a scalar, read as unsigned."""
        return top(value, self._bounds, self.function.group_size)

    # Fusing

    def reachable(self, value: Value) -> bool:
        """Return whether the operands of a value are still in registers here."""
        ends = self.ends
        if ends:
            views = self.views
            for one in value.args:
                view = views.get(one)
                end = ends.get(view[0] if view else one)
                if end is not None and end < self.now:
                    return False
        return True

    def inner(self, value: Value, op: str) -> bool:
        """Return whether `value` is an `op` that its only use, this one, can fuse: a varying value
        of the same region.
        """
        return (
            value.op == op and self.uses[value] == 1 and value not in self.places and self.known.region.get(value) is self.here
            and value not in self.bits and self.known.bank(value) == "v" and self.reachable(value)
        )  # fmt: skip

    def inner_condition(self, value: Value) -> bool:
        """Return whether a condition is emitted at this use, which must be its only one."""
        return (
            self.uses[value] == 1 and value not in self.places and self.known.region.get(value) is self.here and self.reachable(value)
        )  # fmt: skip

    # Operands

    def any(self, value: Value, kind: str = "b32") -> Operand:
        """Return a source of a vector instruction: constant, SGPR or VGPR. 64-bit literals are put into SGPRs."""
        bits = self.bits.get(value)
        if bits is None:
            return self.place(value)
        found = number(bits, kind)
        if kind == "b64" and is_literal(found):
            return self.scalar_pair(bits)
        return found

    def constant(self, bits: int) -> Reg:
        """Return an SGPR with a 32-bit constant, set once at the kernel's start."""
        return self.constants.setdefault(bits, Reg("s"))

    def scalar_pair(self, bits: int) -> Reg:
        """Return SGPRs with a 64-bit constant."""
        made = Reg("s", 2)
        self.emit("s_mov_b32", made[0], number(bits & 0xFFFFFFFF, "b32"))
        self.emit("s_mov_b32", made[1], number(bits >> 32, "b32"))
        return made

    def float(self, value: Value, kind: str) -> Operand:
        """Return a float source, with sign changes folded into it."""
        neg = absolute = False
        while value.op in ("fneg", "fabs") and value not in self.bits and self.reachable(value):
            if value.op == "fabs":
                absolute = True
            elif not absolute:
                neg = not neg
            value = value.args[0]
        if not (neg or absolute):
            return self.any(value, kind)
        bits = self.bits.get(value)
        if bits is not None:
            sign = 1 << value.type.bits - 1
            bits = bits & ~sign if absolute else bits
            bits = bits ^ sign if neg else bits
            found = number(bits, kind)
            return self.scalar_pair(bits) if kind == "b64" and is_literal(found) else found
        return Signed(self.place(value), neg, absolute)

    def vector(self, value: Value, kind: str = "b32") -> Place:
        """Return a value in VGPRs, copied there if necessary."""
        count = dwords(value.type, self.wave)
        if value not in self.bits:
            found = self.place(value)
            if bank(found) == "v":
                return found
        return self.copied(self.parts(value, count), "v")

    def copied(self, parts: list[Operand], where: str) -> Reg:
        """Copy dwords to new registers."""
        made = Reg("v" if where == "v" else "s", len(parts))
        for i, one in enumerate(parts):
            self.move(made[i] if len(parts) > 1 else made, one)
        return made

    def scalar(self, value: Value, kind: str = "b32") -> Operand:
        """Return a SALU source: a constant or SGPRs. 64-bit literals that do not fit an instruction
        are put into SGPRs.
        """
        bits = self.bits.get(value)
        if bits is not None:
            found = number(bits, kind)
            return self.scalar_pair(bits) if kind == "b64" and is_literal(found) else found
        place = self.place(value)
        return place if bank(place) == "s" else self.copied(list(self.pieces(place)), "s")

    def scalar_register(self, value: Value) -> Place:
        """Return a value in SGPRs."""
        found = self.scalar(value, "b64" if value.type.bits == 64 else "b32")
        if isinstance(found, Reg | Part):
            return found
        return self.copied(self.parts(value, dwords(value.type, self.wave)), "s")

    def parts(self, value: Value, count: int | None = None) -> list[Operand]:
        """Return a value's dwords, lowest first."""
        count = count or dwords(value.type, self.wave)
        bits = self.bits.get(value)
        if bits is not None:
            if value.type.element == "i1":
                return [-1 if bits else 0] * count
            return [number(bits >> 32 * i & 0xFFFFFFFF, "b32") for i in range(count)]
        return list(self.pieces(self.place(value)))

    @staticmethod
    def pieces(place: Place) -> list[Place]:
        """Return the dwords of a place."""
        if isinstance(place, Reg):
            return [place] if place.count == 1 else [Part(place, i, 1) for i in range(place.count)]
        return [Part(place.reg, place.first + i, 1) for i in range(place.count)]

    def temporary(self, where: str = "v", count: int = 1) -> Reg:
        """Return a new register."""
        return Reg("v" if where == "v" else "s", count)

    # Instructions

    def emit(self, mnemonic: str, *operands: Operand, **modifiers: object) -> None:
        """Append an instruction. A scalar instruction holds one literal; a second one is put into an SGPR."""
        if mnemonic[:2] == "s_" and len(operands) > 1:
            literals = {one for one in operands if type(one) is int and not -16 <= one <= 64}
            if len(literals) > 1:
                last = operands[-1]
                held = self.temporary("s")
                self.line.append(Instr("s_mov_b32", held, last))
                operands = (*operands[:-1], held)
        made = Instr(mnemonic, *operands)
        made.modifiers = modifiers
        self.line.append(made)

    def move(self, to: Place, source: Operand) -> None:
        """Copy one dword between banks, or set it to a constant."""
        if bank(to) == "v":
            self.emit("v_mov_b32", to, source)
        elif isinstance(source, Reg | Part) and bank(source) == "v":
            self.emit("v_readfirstlane_b32", to, source)
        else:
            self.emit("s_mov_b32", to, source)

    def valu(self, mnemonic: str, to: Place, *sources: Operand, limit: int = 2, **modifiers: object) -> None:
        """Append a vector instruction. Scalar sources above the limit of the constant bus are copied first; a result
        for SGPRs is copied afterwards.
        """
        fitted = self.fit(sources, limit)
        if bank(to) == "s" and not mnemonic.startswith("v_cmp"):
            made = self.temporary("v", to.count)
            self.emit(mnemonic, made, *fitted, **modifiers)
            for part_to, part_of in zip(self.pieces(to), self.pieces(made), strict=True):
                self.emit("v_readfirstlane_b32", part_to, part_of)
            return
        self.emit(mnemonic, to, *fitted, **modifiers)

    def fit(self, sources: tuple[Operand, ...], limit: int = 2) -> list[Operand]:
        """Return the sources in a form that one vector instruction can read. `limit`: how many scalars, on a processor
        that reads two.
        """
        limit += self.row.scalars - 2
        fitted = list(sources)
        seen: list[Operand] = []
        literal = False
        for i, one in enumerate(fitted):
            base = one.source if isinstance(one, Signed) else one
            if isinstance(base, Reg):
                if base.bank == "v":
                    continue
            elif isinstance(base, Part):
                if base.reg.bank == "v":
                    continue
            elif isinstance(base, float) or (isinstance(base, int) and -16 <= base <= 64):
                continue
            if base in seen:
                continue
            number_ = isinstance(base, int)
            # `encodings.py` copies it, once for all instructions of a block.
            if number_ and not self.row.long_literals:
                continue
            if len(seen) < limit and not (number_ and literal):
                seen.append(base)
                literal |= number_
                continue
            copy = self.copied(list(self.pieces(base)) if isinstance(base, Reg | Part) else [base], "v")
            fitted[i] = Signed(copy, one.neg, one.abs) if isinstance(one, Signed) else copy
        return fitted

    def copy_all(self, pairs: list[tuple[Place, Operand]]) -> None:
        """Copy dwords as if all copies happened at once: a source is read before another copy overwrites it. Cycles go
        through a temporary.
        """
        waiting = [(to, of) for to, of in pairs if _key(to) != _key(of)]
        while waiting:
            sources = {_key(of) for _, of in waiting}
            ready = [pair for pair in waiting if _key(pair[0]) not in sources]
            if ready:
                for to, of in ready:
                    self.move(to, of)
                waiting = [pair for pair in waiting if pair not in ready]
                continue
            # A cycle: save the dword that is overwritten first.
            to, of = waiting[0]
            kept = self.temporary(bank(to))
            self.move(kept, to)
            waiting = [(one, kept if _key(source) == _key(to) else source) for one, source in waiting]


# Operations whose instructions read all operands before they write, or work dword by dword. Their result may be in the
# register of an operand.
IN_PLACE = frozenset((
    "fadd", "fsub", "fmul", "fma", "fmin", "fmax", "floor", "ceil", "trunc", "round", "packed", "dot2", "dot4_s", "dot4_u", "matrix",
    "and", "or", "xor",
    "not", "add", "sub", "select", "zext", "sext", "mul", "mad", "mul_hi_u", "mul_hi_s", "shl", "shr_u", "shr_s", "min_s", "max_s",
    "min_u", "max_u",
    "bit_count", "leading_zeros", "fneg", "fabs", "rcp", "rsq", "sqrt", "exp2", "log2", "sin_turns", "frexp_mantissa", "ldexp", "div",
    "to_float_s", "to_float_u", "to_int_s", "to_int_u", "fconvert",
))  # fmt: skip
_NOT_MADE = frozenset(("param", "index", "carried", "result", "group_id", "thread_id", "const"))


def bank(place: Operand) -> Bank:
    """Return the bank of a register or part."""
    if isinstance(place, Reg):
        return place.bank
    return place.reg.bank if isinstance(place, Part) else "s"


def part(place: Place, first: int, count: int) -> Place:
    """Return dwords of a place."""
    if isinstance(place, Reg):
        return place if first == 0 and count == place.count else Part(place, first, count)
    return Part(place.reg, place.first + first, count)


def _key(operand: Operand) -> object:
    if isinstance(operand, Reg):
        return operand, 0
    return (operand.reg, operand.first) if isinstance(operand, Part) else operand
