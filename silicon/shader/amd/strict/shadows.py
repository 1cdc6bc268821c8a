"""Shadows of registers in strict code, and what is known of the results of scalar instructions.

A tracked register has a shadow in one of three banks. Bank `m` holds the written lanes of a VGPR. Bank `d` holds the
defined bits of a scalar. Bank `h` holds how many operations of a kind were issued since the load of a register, that
load included (0: not in flight).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringup.silicon.shader.amd.decoding.analysis import FIRST_VGPR
from ringup.silicon.shader.amd.strict.analysis import LOGIC, PASSES, Findings
from ringup.silicon.shader.amd.strict.history import SHIFTS, UPWARDS
from ringup.silicon.shader.common import state

if TYPE_CHECKING:
    from ringup.silicon.shader.amd.decoding.decode import Instruction, Operand
    from ringup.silicon.shader.amd.writer.registers import Register
    from ringup.silicon.shader.amd.writer.wave import Wave
    from ringup.silicon.shader.host.emitter import Value


class Shadows:
    """The shadows of one program's registers, while its code is written."""

    def __init__(self, wave: Wave, findings: Findings) -> None:
        self.wave, self.code, self.findings = wave, wave.code, findings

    def known_bits(self, logic: str, ins: Instruction, word: int) -> tuple[Value, Value]:
        """Return the known bits of a word of a bitwise result, and the word.

        A bit known to be 0 settles an `and`, one known to be 1 an `or`.
        """
        code = self.code
        operands = list(ins.uses[:2])
        values = [self._word(one, word) for one in operands]
        known = [self.word_shadow(one, word) for one in operands]
        if logic.endswith(("saveexec", "wrexec")):
            values.append(self.wave.sgpr(state.EXEC_LO + word))
            known.append(code.const(-1, "i32"))
            logic = logic.removesuffix("_saveexec").removesuffix("_wrexec")
        if logic == "not":
            return known[0], code.invert(values[0])
        (a, b), (known_a, known_b) = values[:2], known[:2]
        if logic.endswith("not0"):
            a = code.invert(a)
        if logic.endswith("not1"):
            b = code.invert(b)
        both = code.op("and", known_a, known_b)
        base = logic.split("_")[0]
        if base in ("xor", "xnor"):
            return both, code.op("xor", a, b)
        settles_zero = base in ("and", "nand")
        for value, sure in ((a, known_a), (b, known_b)):
            both = code.op("or", both, code.op("and", sure, code.invert(value) if settles_zero else value))
        result = code.op("and" if settles_zero else "or", a, b)
        return both, code.invert(result) if base in ("nand", "nor") else result

    def _word(self, operand: Operand, word: int) -> Value:
        if operand.kind == "sgpr":
            return self.wave.sgpr(operand.index if operand.index == state.NULL else operand.index + word)
        whole = self.wave.scalar(operand, "i64" if word else "i32")
        return self.code.resize(self.code.op("lshr", whole, self.code.const(32, "i64")), "i32") if word else whole

    def word_shadow(self, operand: Operand, word: int) -> Value:
        if operand.kind != "sgpr" or operand.index == state.NULL:
            return self.code.const(-1, "i32")
        return self.source(operand.index + word, ("d", 0))

    def every_known(self, sources: tuple[int, ...]) -> Value:
        """Return all ones (i32) if all of these scalars are known."""
        code, found = self.code, self.code.const(-1, "i32")
        for one in sources:
            found = code.op("and", found, self.source(one, ("d", 0)))
        return code.cast("sext", code.icmp("eq", found, code.const(-1, "i32")), "i32")

    def _shifted(self, ins: Instruction, word: int) -> Value:
        """Return the known bits of a word of a shifted scalar; an arithmetic shift fills with the sign."""
        code, (value, by) = self.code, ins.uses[:2]
        kind = "i64" if ins.mnemonic.endswith("64") else "i32"
        missing = code.resize(code.invert(self.word_shadow(value, 0)), kind)
        if kind == "i64":
            high = code.resize(code.invert(self.word_shadow(value, 1)), kind)
            missing = code.op("or", missing, code.op("shl", high, code.const(32, kind)))
        distance = code.op("and", code.resize(self._word(by, 0), kind), code.const(int(kind[1:]) - 1, kind))
        how = {"s_lshl": "shl", "s_lshr": "lshr", "s_ashr": "ashr"}[ins.mnemonic[:6]]
        moved = code.op(how, missing, distance)
        if word:
            moved = code.op("lshr", moved, code.const(32, kind))
        known = code.invert(code.resize(moved, "i32"))
        sure = code.icmp("eq", self.word_shadow(by, 0), code.const(-1, "i32"))
        return code.op("and", known, code.cast("sext", sure, "i32"))

    def moved_scalar(self, target: int, sources: tuple[int, ...], ins: Instruction) -> Value:
        code, wave, name = self.code, self.wave, ins.mnemonic
        logic = logic_of(ins)
        if logic:
            if target != state.SCC:
                return self.known_bits(logic, ins, target - ins.operands[0].index)[0]
            words = [self.known_bits(logic, ins, word) for word in range(2 if ins.mnemonic.endswith("64") else 1)]
            return self._settled(words)
        if target == state.SCC:
            return self.every_known(sources)
        word = target - ins.operands[0].index
        chosen = self.every_known((state.SCC,)) if state.SCC in sources else code.const(-1, "i32")
        if name.startswith(SHIFTS):
            return self._shifted(ins, word)
        if name.startswith(UPWARDS):
            return code.op("and", self._known_below(ins, word), chosen)
        if name not in PASSES:
            return self.every_known(sources)
        found = [self.word_shadow(one, word) for one in ins.uses if one.index >= 0]
        if name.startswith("s_cselect"):
            return code.op("and", code.select(wave.scc(), found[0], found[1]), chosen)
        if name.startswith("s_cmov"):
            return code.op("and", code.select(wave.scc(), found[0], self.get(shadow_of(target))), chosen)
        return found[0] if found else code.const(-1, "i32")

    def _known_below(self, ins: Instruction, word: int) -> Value:
        """Return the known bits of a word of a sum or product: those below the lowest undefined bit of a source."""
        code, every = self.code, self.code.const(-1, "i32")
        known = every
        for at in range(word + 1):
            missing = code.const(0, "i32")
            for operand in ins.uses:
                missing = code.op("or", missing, code.invert(self.word_shadow(operand, at)))
            # What is undefined below makes all of this word undefined.
            carried = code.cast("sext", code.icmp("eq", known, every), "i32")
            upwards = code.op("or", missing, code.op("sub", code.const(0, "i32"), missing))
            known = code.op("and", code.invert(upwards), carried)
        return known

    def _settled(self, words: list[tuple[Value, Value]]) -> Value:
        """Return SCC's shadow: SCC is known if one bit is known to be 1, or if all bits are known."""
        code = self.code
        every: Value | None = None
        one: Value | None = None
        for known, value in words:
            ones = code.op("and", known, value)
            every = known if every is None else code.op("and", every, known)
            one = ones if one is None else code.op("or", one, ones)
        assert every is not None
        assert one is not None
        full = code.icmp("eq", every, code.const(-1, "i32"))
        some = code.icmp("ne", one, code.const(0, "i32"))
        return code.cast("sext", code.op("or", full, some), "i32")

    def source(self, one: int, kind: Register) -> Value:
        """Return a source's shadow in the form of the target's bank."""
        register = shadow_of(one)
        if not self.follows(one):
            return self.all(kind)
        value = self.get(register)
        if register[0] == kind[0]:
            return value
        whole = self.code.icmp("eq", value, self.all(register))
        return self.code.cast("sext", whole, self.wave.base_type(kind))

    def follows(self, one: int) -> bool:
        return bool(self.findings.shadowed >> one & 1)

    def get(self, register: Register) -> Value:
        return self.wave.read(register, self.wave.base_type(register))

    def set(self, register: Register, value: Value) -> None:
        self.wave.write(register, value)

    def all(self, register: Register) -> Value:
        return self.code.const(-1, self.wave.base_type(register))

    def none(self, register: Register) -> Value:
        return self.code.const(0, self.wave.base_type(register))


def logic_of(ins: Instruction) -> str:
    """Return the operation of a bitwise scalar instruction, with its EXEC suffix; empty for other instructions."""
    name = ins.mnemonic.removeprefix("s_").rsplit("_b", 1)[0]
    return name if ins.format in ("SOP1", "SOP2") and (name in LOGIC or name.endswith(("saveexec", "wrexec"))) else ""


def shadow_of(one: int) -> Register:
    return ("m", one - FIRST_VGPR) if one >= FIRST_VGPR else ("d", one)
