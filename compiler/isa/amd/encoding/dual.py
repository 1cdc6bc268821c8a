"""Dual instructions (VOPD): two vector operations in one word, and the rules for pairs.

Source: RDNA3 ISA, "VOPD: Dual-Issue"; RDNA4 ISA, the same. The rules: destinations of different parity, each pair of
sources from different register banks (or, on RDNA4, the same register), at most two scalar values and one literal for
both together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, cast

from ringup.compiler.isa.amd.encoding import constants, decode, encode
from ringup.compiler.isa.amd.encoding.bus import BUS_KINDS
from ringup.compiler.isa.amd.encoding.decode import Instruction
from ringup.compiler.isa.amd.encoding.forms import Form
from ringup.compiler.isa.amd.encoding.plan import MAX_PLANS, Plan
from ringup.compiler.isa.amd.encoding.registers import Literal, Operand, Register
from ringup.errors import CompileError

if TYPE_CHECKING:
    from ringup.compiler.isa.amd.encoding.processor import Processor

Half = tuple[str, Sequence[Operand]]
READS_RESULT = ("v_dual_fmac_f32", "v_dual_dot2acc_f32_f16", "v_dual_dot2acc_f32_bf16")
SCALARS = 2
# For each port: the bits of register numbers of which at least one must differ.
PORTS = {"first source": 3, "second source": 3, "third source": 1}


class _Pair(NamedTuple):
    """The plans of two halves, the bits below the literal, the bytes of both, and the result of `_conflicts` for their
    operands.
    """

    x: Plan
    y: Plan
    low: int
    nbytes: int
    conflicts: tuple[tuple[int, int, int], ...] | None


class DualEncoder:
    """Encodes and decodes the dual instructions of one processor."""

    def __init__(self, machine: Processor) -> None:
        self._machine = machine
        self._forms: dict[tuple[str, str], Form] = {}
        self._plans: dict[object, _Pair] = {}

    def form(self, mnemonic: str, side: str) -> Form:
        """Return the form of a mnemonic on side X or Y. Raises `CompileError` if it has none there."""
        name = mnemonic if mnemonic.startswith("v_dual_") else mnemonic.replace("v_", "v_dual_", 1).removesuffix("_e32")
        found = self._forms.get((name, side))
        if found is None:
            match = [form for form in self._machine.forms(name) if form.row.format == f"VOPD{side}"]
            if not match:
                other = "Y" if side == "X" else "X"
                there = any(form.row.format == f"VOPD{other}" for form in self._machine.forms(name))
                raise CompileError(
                    f"{name} cannot be the {side} half of a dual instruction of {self._machine.name}"
                    + (f"; it can be the {other} half" if there else "")
                )
            found = self._forms[name, side] = match[0]
        return found

    def encode(self, first: Half, second: Half) -> bytes:
        """Return the bytes of a dual instruction."""
        key = (first[0], second[0], *_shapes(first[1]), "::", *_shapes(second[1]))
        plans = self._plans.get(key)
        if plans is None:
            if self._machine.wave_size != 32:
                raise CompileError(
                    f"{first[0]} :: {second[0]}: dual instructions are for waves of 32 lanes, not {self._machine.wave_size}"
                )
            limits, wave = self._machine.limits, self._machine.wave_size
            x = encode.bind(self.form(first[0], "X"), first[1], {}, limits, wave)
            y = encode.bind(self.form(second[0], "Y"), second[1], {}, limits, wave)
            x.check = y.check = None
            if len(self._plans) >= MAX_PLANS:
                self._plans.clear()
            conflicts = _conflicts(x.form, first[1], y.form, second[1])
            plans = self._plans[key] = _Pair(x, y, (1 << x.form.width) - 1, max(x.nbytes, y.nbytes), conflicts)
        x, y, low, nbytes, conflicts = plans
        if conflicts is None or _has_conflict(first[1], second[1], conflicts):
            check_pair(x.form, first[1], y.form, second[1], self._machine.limits.generation)
        word_x, word_y = x.word(first[1], {}), y.word(second[1], {})
        literal_x, literal_y = word_x >> x.form.width, word_y >> y.form.width
        if x.nbytes > 8 and y.nbytes > 8 and literal_x != literal_y:
            raise CompileError(
                f"{x.form.mnemonic} :: {y.form.mnemonic}: both halves share one literal, these are {literal_x:#x} and {literal_y:#x}"
            )
        literal = literal_x if x.nbytes > 8 else literal_y
        return ((word_x | word_y) & low | literal << x.form.width).to_bytes(nbytes, "little")

    def decode(self, word: int, available: int) -> Instruction | None:
        """Return the dual instruction at the start of `word`, None if there is none."""
        machine = self._machine
        fmt = machine.facts.formats["VOPD"]
        halves = []
        for side in "XY":
            hi, lo = fmt.fields[f"op{side.lower()}"]
            row = machine.facts.by_opcode(f"VOPD{side}", word >> lo & (1 << hi - lo + 1) - 1)
            if row is None:
                return None
            form = self.form(row.mnemonic, side)
            half = decode.read(form, word, available, machine.limits, machine.wave_size)
            if half is None:
                return None
            halves.append(half)
        x, y = halves
        x.second = y
        x.size_bytes = y.size_bytes = max(x.size_bytes, y.size_bytes)
        return x


def _shapes(operands: Sequence[Operand]) -> list[object]:
    found: list[object] = []
    for operand in operands:
        if isinstance(operand, int):
            found.append("i" if operand in constants.INLINE_INTS else operand)
        elif isinstance(operand, float):
            found.append(f"float {operand!r}")
        else:
            found.append(getattr(operand, "shape", operand))
    return found


def _conflicts(
    x: Form, x_operands: Sequence[Operand], y: Form, y_operands: Sequence[Operand]
) -> tuple[tuple[int, int, int], ...] | None:
    """Return (operand of x, operand of y, mask) for register numbers that must differ in a bit of the mask, if nothing
    else can be wrong. Return None otherwise.
    """
    for form, operands in ((x, x_operands), (y, y_operands)):
        if form.implicit_reads or not all(isinstance(one, Register) and one.kind == "v" for one in operands):
            return None
    ports = [_ports(form, operands) for form, operands in ((x, x_operands), (y, y_operands))]
    both = (
        (ports[0][place], ports[1][place], mask)
        for place, mask in PORTS.items()
        if place in ports[0] and place in ports[1]
    )
    return ((0, 0, 1), *both)


def _has_conflict(
    first: Sequence[Operand], second: Sequence[Operand], conflicts: Sequence[tuple[int, int, int]]
) -> bool:
    """Return whether registers that must differ do not, by the result of `_conflicts`. All operands are registers."""
    one, two = cast("Sequence[Register]", first), cast("Sequence[Register]", second)
    return any((one[i].code ^ two[j].code) & mask == 0 for i, j, mask in conflicts)


def check_pair(x: Form, x_operands: Sequence[Operand], y: Form, y_operands: Sequence[Operand], generation: int) -> None:
    """Raise a `CompileError` if two operations cannot be one dual instruction."""
    name = f"{x.mnemonic} :: {y.mnemonic}"
    x_results, y_results = x_operands[0], y_operands[0]
    if (
        isinstance(x_results, Register)
        and isinstance(y_results, Register)
        and (x_results.code ^ y_results.code) & 1 == 0
    ):
        raise CompileError(
            f"{name}: one destination is an even register, the other an odd one, not {x_results} and {y_results}"
        )
    scalars: set[int] = set()
    literals = 0
    sides = (_sources(x, x_operands), _sources(y, y_operands))
    for form, operands in ((x, x_operands), (y, y_operands)):
        if form.implicit_reads:
            # VCC as a whole, not the register vcc_lo.
            scalars.add(-106)
        for operand in operands:
            if isinstance(operand, Register):
                if operand.kind in BUS_KINDS:
                    scalars.add(hash(operand.text()) if operand.code < 0 else operand.code)
            elif isinstance(operand, Literal) or constants.inline_code(operand, "f32", 32) is None:  # type: ignore[arg-type]
                literals = 1
    if len(scalars) + literals > SCALARS:
        raise CompileError(f"{name} reads {len(scalars) + literals} scalar values; both halves together read {SCALARS}")
    if generation == 12 and x.name == y.name == "v_dual_mov_b32":
        # The second move reads through its own port.
        return
    for place, mask in PORTS.items():
        one, two = sides[0].get(place), sides[1].get(place)
        if one is None or two is None or (generation == 12 and one == two and mask == 3):
            # RDNA4 reads one register for both. QUIRK: LLVM 22 refuses that; the compiler of AMD's ROCm 7.14 emits it.
            continue
        if (one.code ^ two.code) & mask == 0:
            banks = "banks (register number modulo 4)" if mask == 3 else "parities"
            raise CompileError(f"{name}: the {place}s {one} and {two} must be in different {banks}")


def _sources(form: Form, operands: Sequence[Operand]) -> dict[str, Register]:
    """Return the vector registers that a half reads, by port."""
    return {place: cast("Register", operands[i]) for place, i in _ports(form, operands).items()}


def _ports(form: Form, operands: Sequence[Operand]) -> dict[str, int]:
    """Return the numbers of the operands that are vector registers, by port."""
    ports: dict[str, int] = {}
    for i, (slot, operand) in enumerate(zip(form.slots, operands, strict=False)):
        if not isinstance(operand, Register) or operand.kind != "v":
            continue
        if slot.field.startswith("srcx") or slot.field.startswith("srcy"):
            ports["first source"] = i
        elif slot.field.startswith("vsrc"):
            ports["third source" if "fmamk" in form.name else "second source"] = i
        elif form.name in READS_RESULT:
            ports["third source"] = i
    return ports
