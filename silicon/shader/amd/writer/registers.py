"""Registers of a wave while its program is written: values by operand, kept in SSA within a block.

Between blocks they are in variables, or in the wave's state (`in_state`). LLVM turns variables into values of the whole
program at the levels that take time for it. In the wave's state every entry and exit finds them. That is less code, and
slower only where LLVM would have taken that time.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from ringup.silicon.shader.amd.decoding import decode as dec
from ringup.silicon.shader.amd.decoding import gcn
from ringup.silicon.shader.amd.decoding.analysis import ALL, FIRST_VGPR, SCC_BIT
from ringup.silicon.shader.amd.decoding.generations import RDNA3
from ringup.silicon.shader.amd.writer import dpp
from ringup.silicon.shader.common import state
from ringup.silicon.shader.host.context import Word
from ringup.silicon.shader.host.emitter import Code, Value, bits, element

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ringup.silicon.shader.amd.decoding.decode import Instruction, Operand
    from ringup.silicon.shader.amd.decoding.generations import Generation

_FLOATS = {"half": "i16", "bfloat": "i16", "float": "i32", "double": "i64"}
_OUTPUT_MODIFIERS = {1: 2.0, 2: 4.0, 3: 0.5}  # RDNA3 ISA reference, "OMOD"


def _is_trap(index: int) -> bool:
    return state.TTMP0 <= index < state.NULL


@dataclass(frozen=True, slots=True)
class Mode:
    """HW_REG_MODE as far as it changes instructions; constant for the code being written.

    Rounding: 0 to nearest even, 1 up, 2 down, 3 to zero. Denormals: bit 0 keeps those of inputs, bit 1 those of
    results. RDNA4 has neither `dx10_clamp` nor `ieee` (`has_float_modes`): it clamps a NaN to 0, and omod works in any
    denormal mode.
    """

    word: int
    has_float_modes: bool = True

    @property
    def round_f32(self) -> int:
        """Rounding of f32."""
        return self.word & 3

    @property
    def round_f64(self) -> int:
        """Rounding of f64 and f16."""
        return self.word >> 2 & 3

    @property
    def denorm_f32(self) -> int:
        """Denormals of f32."""
        return self.word >> 4 & 3

    @property
    def denorm_f64(self) -> int:
        """Denormals of f64 and f16."""
        return self.word >> 6 & 3

    @property
    def dx10_clamp(self) -> bool:
        """Whether a clamped NaN is 0."""
        return not self.has_float_modes or bool(self.word >> 8 & 1)

    @property
    def ieee(self) -> bool:
        """Whether min and max quiet signalling NaNs."""
        return self.has_float_modes and bool(self.word >> 9 & 1)

    @property
    def fp16_ovfl(self) -> bool:
        """Whether a conversion to 8-bit floats gives the largest instead of infinity."""
        return bool(self.word >> 23 & 1)

    def scales_results(self, denormals: int) -> bool:
        """Return whether omod works where `denormals` are kept (bit 1: those of results)."""
        return not self.has_float_modes or not (denormals & 2 or self.ieee)

    def denorm(self, kind: str) -> int:
        """Denormals of LLVM type `kind`."""
        return self.denorm_f32 if element(kind) == "float" else self.denorm_f64

    def round(self, kind: str) -> int:
        """Rounding of LLVM type `kind`."""
        return self.round_f32 if element(kind) == "float" else self.round_f64


Register = tuple[str, int]  # bank and number: ("v", 5), ("s", 106); ("scc", 0)
SCC: Register = ("scc", 0)


def as_set(register: Register) -> int:
    """Return a register as a set of `analysis`; empty for a shadow."""
    bank, index = register
    if bank == "v":
        return 1 << FIRST_VGPR + index
    return SCC_BIT if register == SCC else 1 << index if bank == "s" else 0


class Known(NamedTuple):
    """What is known about registers at a point of a block."""

    views: dict[Register, dict[str, Value]]
    pairs: dict[Register, Value]
    dirty: dict[Register, None]


class Registers:
    """Registers of the wave, at the instruction being translated.

    `lanes` is 32 or 64, `bools` the type `<lanes x i1>`, `mask_type` the integer of as many bits. `full` is True where
    EXEC is known to be all ones. `mode` is the MODE register. `strict` asks for checks. `offset` is the instruction's
    byte offset from the program's base. `in_state` says that registers are in the wave's state between blocks.
    """

    def __init__(
        self, code: Code, lanes: int, vgpr_count: int, *, in_state: bool = False, generation: Generation = RDNA3
    ) -> None:
        self.code, self.lanes, self.vgpr_count, self.in_state = code, lanes, vgpr_count, in_state
        self.generation = generation
        self.bools, self.mask_type, self.row = f"<{lanes} x i1>", f"i{lanes}", f"<{lanes} x i32>"
        self.mode = self.mode_of(0)
        self.full = False
        self.offset = 0
        # registers that have a variable
        self.used: set[Register] = set()
        # words of the wave's state that hold shadows
        self.shadow_words: dict[Register, int] = {}
        # values of registers in this block, by LLVM type
        self.views: dict[Register, dict[str, Value]] = {}
        # 64-bit values of a register and the next one
        self.pairs: dict[Register, Value] = {}
        self.dirty: dict[Register, None] = {}  # changed since the block began
        # Writes of a dual instruction, held until both parts have read.
        self._later: list[tuple[Register, Value]] | None = None

    def mode_of(self, word: int) -> Mode:
        """Return MODE with these bits."""
        return Mode(word, self.generation.start.has_float_modes)

    # types ------------------------------------------------------------------------------------------------------------

    def vec(self, kind: str) -> str:
        """Return the type of one `kind` a lane."""
        return f"<{self.lanes} x {kind}>"

    def splat(self, a: Value) -> Value:
        """Put a scalar into every lane."""
        return self.code.splat(a, self.lanes)

    def const(self, value: int, kind: str) -> Value:
        """Return an integer constant in every lane."""
        return self.code.const(value, self.vec(kind))

    def real(self, value: float, kind: str) -> Value:
        """Return a float constant in every lane."""
        return self.code.real(value, self.vec(kind))

    def lane_numbers(self, kind: str = "i32") -> Value:
        """Return 0, 1, 2, ... in the lanes."""
        return self.code.lane_const(range(self.lanes), kind)

    # registers by number ----------------------------------------------------------------------------------------------

    def sgpr(self, index: int) -> Value:
        """Return a word of the scalar file (i32), by encoding number.

        Null reads 0, and so do trap registers outside the trap handler unless they hold the group's number.
        """
        if index == state.NULL:
            return Value("0", "i32")
        value = self.read(("s", index), "i32")
        if not _is_trap(index) or self.generation.start.numbers_in_ttmp:
            return value
        return self.code.select(self._privileged(), value, Value("0", "i32"))

    def set_sgpr(self, index: int, value: Value) -> None:
        """Write a word of the scalar file (i32).

        Writes to null are dropped, and writes to trap registers outside the trap handler.
        """
        if index == state.NULL:
            return
        if _is_trap(index):
            value = self.code.select(self._privileged(), value, self.read(("s", index), "i32"))
        self.write(("s", index), value)

    def sgpr64(self, index: int) -> Value:
        """Return a pair of the scalar file (i64)."""
        if index == state.NULL:
            return Value("0", "i64")
        if not _is_trap(index):
            return self._pair("s", index)
        low, high = (self.code.cast("zext", self.sgpr(one), "i64") for one in (index, index + 1))
        return self.code.op("or", low, self.code.op("shl", high, self.code.const(32, "i64")))

    def set_sgpr64(self, index: int, value: Value) -> None:
        """Write a pair of the scalar file (i64)."""
        if _is_trap(index):
            self.set_sgpr(index, self.code.cast("trunc", value, "i32"))
            high = self.code.op("lshr", value, self.code.const(32, "i64"))
            self.set_sgpr(index + 1, self.code.cast("trunc", high, "i32"))
        elif index != state.NULL:
            self._write_pair("s", index, value)

    def _privileged(self) -> Value:
        """Return whether the wave is in the trap handler (i1), STATUS.priv."""
        bit = self.code.op("lshr", self.code.load(self.state_place(state.STATUS), "i32", 4), self.code.const(5, "i32"))
        return self.code.cast("trunc", bit, "i1")

    def vgpr(self, index: int) -> Value:
        """Return all lanes of a VGPR (`<lanes x i32>`), inactive ones too."""
        return self.read(("v", index), self.row)

    def set_vgpr(self, index: int, value: Value, enable: Value | None = None, *, masked: bool = True) -> None:
        """Write a VGPR (32-bit elements) in the lanes of EXEC and of `enable`.

        If not `masked`, EXEC does not limit the lanes.
        """
        if element(value.type) == "i1":
            raise ValueError("a mask is not a VGPR value")
        keep = self._keep(enable, masked=masked)
        if keep is not None:
            old = self.read(("v", index), value.type)
            value = self.code.select(keep, value, old)
        self.write(("v", index), value)

    def exec(self) -> Value:
        """Return EXEC as a vector of i1."""
        return self.code.const(-1, self.bools) if self.full else self._as_mask(state.EXEC_LO)

    def exec_bits(self) -> Value:
        """Return EXEC as an integer of `mask_type`."""
        return self.code.const(-1, self.mask_type) if self.full else self.mask_bits(state.EXEC_LO)

    def set_exec_bits(self, value: Value) -> None:
        """Write EXEC."""
        self.set_mask_bits(state.EXEC_LO, value)

    def mask_bits(self, index: int) -> Value:
        """Return the lane mask in SGPR `index` (wave64: and the next) as an integer of `mask_type`."""
        return self.sgpr(index) if self.lanes == 32 else self.sgpr64(index)

    def set_mask_bits(self, index: int, value: Value) -> None:
        """Write a lane mask of `mask_type` to SGPR `index` (wave64: and the next)."""
        if self.lanes == 32:
            self.set_sgpr(index, value)
        else:
            self.set_sgpr64(index, value)

    def scc(self) -> Value:
        """Return SCC (i1)."""
        return self.read(SCC, "i1")

    def set_scc(self, value: Value) -> None:
        """Write SCC (i1)."""
        self.write(SCC, value)

    # operands ---------------------------------------------------------------------------------------------------------

    def src(self, operand: Operand, kind: str, ins: Instruction | None = None) -> Value:
        """Return a VALU source as one `kind` a lane (i16 i32 i64 half float double), with scalars and constants in
        every lane.

        neg and abs are applied; 16-bit kinds take the half that op_sel selects. Lanes are permuted if `ins` has a DPP
        and this is its src0. An `i32` of a 16-bit operand is the whole register.
        """
        whole = _FLOATS.get(kind, kind)
        is_vector = operand.kind == "vgpr"
        value = self._vector(operand, whole, ins) if is_vector else self.splat(self._scalar(operand, whole))
        return self.modified(self.code.bitcast(value, self.vec(kind)), neg=operand.neg, abs_=operand.abs)

    def modified(self, value: Value, *, neg: bool, abs_: bool) -> Value:
        """Apply source modifiers: they act on the sign bit, for integers too."""
        if not (neg or abs_):
            return value
        kind = value.element
        code = self.code
        if kind in _FLOATS:
            if abs_:
                value = code.intrinsic("fabs", value)
            return code.neg(value) if neg else value
        sign = 1 << (bits(kind) - 1)
        if abs_:
            value = code.op("and", value, code.const(sign - 1, value.type))
        return code.op("xor", value, code.const(sign, value.type)) if neg else value

    def scalar(self, operand: Operand, kind: str) -> Value:
        """Return a scalar source (i16 i32 i64 half float double), with neg and abs applied. The operand is never a
        VGPR.
        """
        value = self.code.bitcast(self._scalar(operand, _FLOATS.get(kind, kind)), kind)
        return self.modified(value, neg=operand.neg, abs_=operand.abs)

    def mask(self, operand: Operand) -> Value:
        """Return a lane mask source as a vector of i1."""
        if operand.kind == "sgpr" and operand.index != state.NULL:
            return self._as_mask(operand.index)
        return self.code.bitcast(self._scalar(operand, self.mask_type), self.bools)

    def put(self, operand: Operand, value: Value, ins: Instruction | None = None, enable: Value | None = None) -> None:
        """Write a VALU result (16, 32 or 64-bit elements) to a VGPR in the lanes of EXEC (and of `enable`).

        A float value gets the omod and clamp of `ins`. 16-bit results keep the other half. `enable` is a vector of i1.
        """
        code = self.code
        if ins is not None:
            if value.element in _FLOATS:
                value = self.finished(value, ins)
            if ins.dpp is not None and enable is None:
                enable = self._permuted_lanes(ins)
        width = bits(value.type)
        if ins is not None and ins.sdwa and width <= 32:
            self._put_part(operand, value, ins, enable)
        elif width == 32:
            self.set_vgpr(operand.index, value, enable)
        elif width == 64:
            whole = code.bitcast(value, self.vec("i64"))
            keep = self._keep(enable, masked=True)
            if keep is not None:
                whole = code.select(keep, whole, self._pair("v", operand.index))
            self._write_pair("v", operand.index, whole)
        else:
            half = code.resize(code.bitcast(value, self.vec("i16")), "i32")
            self.set_vgpr(operand.index, self._with_half(operand, half), enable)

    def _with_half(self, operand: Operand, half: Value) -> Value:
        """Return a register with a 16-bit result (vector of i32). Most of GCN's clear the other half."""
        code = self.code
        if self.generation.is_gcn and operand.size_bits == 32:
            return half
        old = self.vgpr(operand.index)
        if operand.high:
            half = code.op("shl", half, self.const(16, "i32"))
        kept = code.op("and", old, self.const(0xFFFF if operand.high else 0xFFFF_0000, "i32"))
        return code.op("or", kept, half)

    def _put_part(self, operand: Operand, value: Value, ins: Instruction, enable: Value | None) -> None:
        """Write a result to the part of its register that SDWA selects. Source: CDNA3 ISA reference, "SDWA"."""
        code = self.code
        row = code.resize(code.bitcast(value, self.vec(f"i{bits(value.type)}")), "i32")
        low, count = gcn.part(ins.fields["dst_sel"])
        unused, mask = ins.fields["dst_u"], (1 << count) - 1
        if unused == gcn.PRESERVE:
            kept = code.op("and", self.vgpr(operand.index), self.const(~(mask << low), "i32"))
            part = code.op("shl", code.op("and", row, self.const(mask, "i32")), self.const(low, "i32"))
            row = code.op("or", kept, part)
        elif count < 32:
            row = self._extended(row, 0, count, signed=unused == gcn.SIGN_EXTEND)
            row = code.op("shl", row, self.const(low, "i32"))
        if operand.size_bits == 16:
            row = self._with_half(operand, code.op("and", row, self.const(0xFFFF, "i32")))
        self.set_vgpr(operand.index, row, enable)

    def _extended(self, value: Value, low: int, count: int, *, signed: bool) -> Value:
        """Return `count` bits of dwords from bit `low` up."""
        code = self.code
        if low + count < 32 or not signed:
            value = code.op("shl", value, code.const(32 - low - count, value.type))
        return code.op("ashr" if signed else "lshr", value, code.const(32 - count, value.type))

    def _taken(self, operand: Operand, value: Value) -> Value:
        """Return the part of a source (i32) that SDWA selects."""
        low, count = gcn.part(operand.select)
        return value if count == 32 else self._extended(value, low, count, signed=operand.extends)

    def finished(self, value: Value, ins: Instruction) -> Value:
        """Apply output modifiers to a float result. Source: RDNA3 ISA reference, "Output Modifiers"."""
        code, kind = self.code, value.element
        if ins.omod and self.mode.scales_results(self.mode.denorm(kind)):
            value = code.op("fmul", value, code.real(_OUTPUT_MODIFIERS[ins.omod], value.type))
        if ins.clamp:
            low, high = code.real(0.0, value.type), code.real(1.0, value.type)
            clamped = code.intrinsic("minnum", code.intrinsic("maxnum", value, low), high)
            value = clamped if self.mode.dx10_clamp else code.select(code.fcmp("uno", value, value), value, clamped)
        return value

    def put_scalar(self, operand: Operand, value: Value) -> None:
        """Write a scalar result of 32 or 64 bits to the scalar file."""
        width = bits(value.type)
        if width == 64:
            self.set_sgpr64(operand.index, self.code.bitcast(value, "i64"))
        else:
            self.set_sgpr(operand.index, self.code.bitcast(value, "i32"))

    def put_mask(self, operand: Operand, value: Value) -> None:
        """Write one bit a lane (vector of i1) to a lane mask in the scalar file, 0 for inactive lanes."""
        active = value if self.full else self.code.op("and", value, self.exec())
        whole = self.code.bitcast(active, self.mask_type)
        self.set_mask_bits(operand.index, whole)
        if operand.index != state.NULL:
            self.views[("s", operand.index)]["mask"] = active

    # storage of registers ---------------------------------------------------------------------------------------------

    def variable(self, register: Register) -> str:
        """Return the name of the variable that holds a register between blocks."""
        self.used.add(register)
        return f"%r.{register[0]}{register[1]}"

    def state_place(self, word: int) -> Value:
        """Return the address of a word of the wave's state."""
        return self.code.gep(Value("%wave", "ptr"), word, "i32")

    def register_place(self, register: Register) -> Value:
        """Return the address of a register in the wave's state."""
        word = self.state_word(register)
        assert word is not None
        return self.state_place(word)

    def immediate(self, value: int, kind: str, number: int = 0) -> Value:
        """Return an offset of the instruction, `value`, as an integer of type `kind`; it is number `number` of them.

        A rule that takes it from here holds for all offsets. In threaded code it is not known yet.
        """
        del number
        return self.code.const(value, kind)

    def state_word(self, register: Register) -> int | None:
        """Return the first word of the wave's state that holds a register; None for a shadow that does not fit."""
        bank, index = register
        if bank == "v":
            return state.RESERVED_WORDS + index * self.lanes
        return index if bank == "s" else state.SCC if register == SCC else self.shadow_words.get(register)

    def save_register(self, register: Register) -> None:
        """Save a register to its place in the wave's state."""
        value = self.read(register, self.base_type(register))
        if register == SCC:
            value = self.code.cast("zext", value, "i32")
        self.code.store(value, self.register_place(register), 64 if register[0] == "v" else 4)

    def restore_register(self, register: Register) -> Value:
        """Load a register from its place in the wave's state."""
        kind = "i32" if register == SCC else self.base_type(register)
        value = self.code.load(self.register_place(register), kind, 64 if register[0] == "v" else 4)
        return self.code.cast("trunc", value, "i1") if register == SCC else value

    def _is_in_state(self, register: Register) -> bool:
        return self.in_state and self.state_word(register) is not None

    def base_type(self, register: Register) -> str:
        """Return the type of a register between blocks."""
        return {"v": self.row, "s": "i32", "m": self.mask_type, "d": "i32", "h": "i32"}.get(register[0], "i1")

    def begin(self) -> None:
        """Forget values: a new block of the program starts, with unknown predecessors."""
        self.views, self.pairs, self.dirty = {}, {}, {}

    def flush(self, found: int = ALL) -> None:
        """Store the changed ones of these registers (a set of `analysis`), and all changed shadows: the program's block
        ends.
        """
        for register in self.dirty:
            kind = as_set(register)
            if kind and not kind & found:
                continue
            if self._is_in_state(register):
                self.save_register(register)
                continue
            value = self.read(register, self.base_type(register))
            self.code.line(f"store {value.type} {value.text}, ptr {self.variable(register)}")
        self.dirty = {}

    def read(self, register: Register, type_: str) -> Value:
        """Return a register's value as a type of its size."""
        views = self.views.get(register)
        base = self.base_type(register)
        if views is None:
            if self._is_in_state(register):
                value = self.restore_register(register)
            else:
                value = self.code.emit(f"load {base}, ptr {self.variable(register)}", base)
            views = self.views[register] = {base: value}
        if type_ not in views:
            have = views.get(base) or next(iter(views.values()))
            views[type_] = self.code.bitcast(have, type_)
        return views[type_]

    def write(self, register: Register, value: Value) -> None:
        """Give a register a value, in all lanes."""
        if self._later is not None:
            self._later.append((register, value))
            return
        self._forget(register)
        self.views[register] = {value.type: value}
        self.dirty[register] = None

    def _forget(self, register: Register) -> None:
        """Drop what is known about a register."""
        self.views.pop(register, None)
        self.dirty.pop(register, None)
        bank, index = register
        self.pairs.pop(register, None)
        self.pairs.pop((bank, index - 1), None)
        if bank == "s" and (bank, index - 1) in self.views:
            # The mask of a wave64 is made of both registers.
            self.views[(bank, index - 1)].pop("mask", None)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Delay writes to the end of the `with` body: both parts of a dual instruction read before either writes."""
        later: list[tuple[Register, Value]] = []
        self._later = later
        yield
        self._later = None
        for register, value in later:
            self.write(register, value)

    def _known(self) -> Known:
        return Known(
            {register: dict(views) for register, views in self.views.items()}, dict(self.pairs), dict(self.dirty)
        )

    def _know(self, known: Known) -> None:
        self.views = {register: dict(views) for register, views in known.views.items()}
        self.pairs, self.dirty = dict(known.pairs), dict(known.dirty)

    def _pair(self, bank: str, index: int) -> Value:
        value = self.pairs.get((bank, index))
        if value is None:
            code = self.code
            type_ = self.row if bank == "v" else "i32"
            low, high = (code.cast("zext", self.read((bank, one), type_), "i64") for one in (index, index + 1))
            value = code.op("or", low, code.op("shl", high, code.const(32, high.type)))
            self.pairs[(bank, index)] = value
        return value

    def _write_pair(self, bank: str, index: int, value: Value) -> None:
        code = self.code
        self.write((bank, index), code.cast("trunc", value, "i32"))
        high = code.op("lshr", value, code.const(32, value.type))
        self.write((bank, index + 1), code.cast("trunc", high, "i32"))
        self.pairs[(bank, index)] = value

    def _as_mask(self, index: int) -> Value:
        whole = self.mask_bits(index)
        views = self.views[("s", index)]
        value = views.get("mask")
        if value is None:
            value = views["mask"] = self.code.bitcast(whole, self.bools)
        return value

    def _keep(self, enable: Value | None, *, masked: bool) -> Value | None:
        """Return the lanes that a write changes, None for all."""
        if not masked or self.full:
            return enable
        return self.exec() if enable is None else self.code.op("and", enable, self.exec())

    def _vector(self, operand: Operand, kind: str, ins: Instruction | None) -> Value:
        code, width = self.code, bits(kind)
        permuted = ins is not None and ins.dpp is not None and operand.field == "src0"
        if width == 64:
            return self._permuted_pair(operand.index, ins) if permuted else self._pair("v", operand.index)
        value = self.read(("v", operand.index), self.row)
        if permuted:
            assert ins is not None
            value = self._permuted(value, ins)
        value = self._taken(operand, value)
        if width == 32:
            return value
        if operand.high:
            value = code.op("lshr", value, code.const(16, value.type))
        return code.resize(value, kind)

    def _permuted_pair(self, index: int, ins: Instruction | None) -> Value:
        """Return a pair of VGPRs as lanes read it through DPP. CDNA has that for some instructions."""
        assert ins is not None
        code = self.code
        low, high = (code.cast("zext", self._permuted(self.vgpr(one), ins), "i64") for one in (index, index + 1))
        return code.op("or", low, code.op("shl", high, code.const(32, high.type)))

    def _scalar(self, operand: Operand, kind: str) -> Value:
        code, width = self.code, bits(kind)
        if operand.select != gcn.WHOLE_DWORD or operand.extends:
            whole = self._scalar(replace(operand, select=gcn.WHOLE_DWORD, extends=False), "i32")
            return code.resize(self._taken(operand, whole), kind)
        if operand.kind == "constant":
            return code.const(operand.bits, kind) if operand.index == 0 else self._special(operand, kind)
        if operand.kind != "sgpr":
            raise ValueError(f"{operand} is not a scalar")
        if width == 64:
            return self.sgpr64(operand.index)
        value = self.sgpr(operand.index)
        if width < 32 and operand.high:
            value = code.op("lshr", value, code.const(16, "i32"))
        return code.resize(value, kind)

    def context(self, name: str) -> Value:
        """Return a word (i64) of the dispatch's context by its name in `context.Word`.

        Names are shared, private (apertures >> 48), lds_size, ...
        """
        return self.context_word(Word[name.upper()])

    def context_word(self, word: int) -> Value:
        """Read a word of the dispatch's context (i64)."""
        return self.code.load(self._context_place(word), "i64", 8)

    def _context_place(self, word: int) -> Value:
        return self.code.gep(Value("%context", "ptr"), word, "i64")

    def _special(self, operand: Operand, kind: str) -> Value:
        """Return a source that is a value of the wave or of the card (SCC, apertures).

        Source: RDNA3 ISA reference, "Aperture Registers".
        """
        code, index = self.code, operand.index
        if index == dec.SCC:
            return code.cast("zext", self.scc(), kind)
        if index in (dec.VCCZ, dec.EXECZ):
            whole = self.mask_bits(state.VCC_LO) if index == dec.VCCZ else self.exec_bits()
            return code.cast("zext", code.icmp("eq", whole, code.const(0, whole.type)), kind)
        if index == dec.LDS_DIRECT:
            raise ValueError("the interpreter executes reads of LDS_DIRECT")
        shared = index in (dec.SHARED_BASE, dec.SHARED_LIMIT)
        base = code.op("shl", self.context("shared" if shared else "private"), code.const(48, "i64"))
        if index in (dec.SHARED_LIMIT, dec.PRIVATE_LIMIT):
            base = code.op("or", base, code.const(0xFFFF_FFFF, "i64"))
        return code.resize(base, kind)

    def _permuted(self, value: Value, ins: Instruction) -> Value:
        assert ins.dpp is not None
        return dpp.permute(self.code, value, ins.dpp, self.exec())

    def _permuted_lanes(self, ins: Instruction) -> Value | None:
        assert ins.dpp is not None
        return dpp.writable(self.code, ins.dpp, self.exec())
