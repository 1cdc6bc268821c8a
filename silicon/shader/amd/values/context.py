"""The state that an ALU depends on besides its operands, and the modifiers of operands and results.

The state is the float mode, the active lanes and the wave's register file. Values are passed as bits: `uint32` lanes
for operands of up to 32 bits (16-bit values in the low half), `uint64` lanes for 64-bit ones, (lane, dword) `uint32`
for wider ones, `bool` lanes for masks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ringup.silicon.shader.amd.decoding.decode import MATRIX_PRODUCTS, remembered
from ringup.silicon.shader.amd.values import floats
from ringup.silicon.shader.amd.values.floats import BF16, F16, F32, FORMATS, Bits, Format, Mask, Wide
from ringup.silicon.shader.common.lanes import some

if TYPE_CHECKING:
    from ringup.silicon.shader.amd.decoding.decode import Instruction, Operand

Vector = Callable[..., Any]  # (ctx, *sources) -> Bits | Mask | tuple of them
Scalar = Callable[..., tuple[Any, ...]]  # (ctx, *ints) -> (result, scc) or (result, scc, exec)

KEEP_INPUTS, KEEP_RESULTS = 1, 2  # bits of `Ctx.denorm_*`


# Not frozen, since one is made for every instruction: a frozen one takes five times as long to make.
@dataclass(slots=True)
class Ctx:
    """The state that an instruction depends on besides its operands. Nobody changes it.

    `round_*`: 0 nearest even, 1 up, 2 down, 3 towards zero. `denorm_*`: bit 0 keeps denormal inputs, bit 1 denormal
    results; the others become zeros of their sign. Source: RDNA3 ISA reference, "MODE register".
    """

    ins: Instruction
    lanes: int
    exec_mask: Mask  # (lanes,)
    vgprs: NDArray[np.uint32]  # (register, lane): for instructions that select a register or lane at run time
    round_f32: int = 0
    round_f16_f64: int = 0
    denorm_f32: int = 0
    denorm_f16_f64: int = 3
    ieee: bool = False
    dx10_clamp: bool = True
    scc: int = 0
    m0: int = 0
    omod_in_any_mode: bool = False  # the output modifier works where denormals are kept
    saturates: bool = False  # MODE.fp16_ovfl: a conversion to 8-bit floats gives the largest instead of infinity

    @property
    def exec_bits(self) -> int:
        """EXEC as a number."""
        return int.from_bytes(np.packbits(self.exec_mask, bitorder="little").tobytes(), "little")

    def rounding(self, form: Format) -> int:
        """Return the rounding mode of results in `form`."""
        return self.round_f32 if form is F32 else self.round_f16_f64

    def denormals(self, form: Format) -> int:
        """Return KEEP_INPUTS | KEEP_RESULTS for `form`; bf16 never has denormals.

        Source: RDNA3 ISA reference, "Denormalized and Rounding Modes": DOT2_BF16_BF16 disables all denorms.
        """
        if form is BF16:
            return 0
        return self.denorm_f32 if form is F32 else self.denorm_f16_f64

    def taken(self, form: Format, bits: Bits) -> Bits:
        """Return an input for arithmetic: denormals are flushed if the mode says so."""
        return bits if self.denormals(form) & KEEP_INPUTS else floats.flushed(form, bits)

    def given(self, form: Format, bits: Bits) -> Bits:
        """Return a result: denormals are flushed if the mode says so."""
        return bits if self.denormals(form) & KEEP_RESULTS else floats.flushed(form, bits)

    def result(self, form: Format, values: Wide, *sources: Bits) -> Bits:
        """Return f64 values rounded to `form`.

        NaN lanes get the first NaN of `sources` made quiet, or the NaN of an invalid operation.
        """
        bits = self.given(form, floats.rounded(form, values, self.rounding(form)))
        return with_nans(form, bits, np.isnan(values), sources)


def with_nans(form: Format, bits: Bits, is_bad: Mask, sources: tuple[Bits, ...]) -> Bits:
    """Return `bits` with the lanes of `is_bad` replaced by the NaN that `sources` give."""
    if not some(is_bad):
        return bits
    nan = np.full_like(bits, form.invalid)
    for one in reversed(sources):
        nan = np.where(floats.is_nan(form, one), one | form.lane(form.quiet), nan)
    return np.where(is_bad, nan, bits)


def _signs(value: Bits, mask: int, is_abs: bool, is_neg: bool) -> Bits:
    lane = value.dtype.type
    if is_abs:
        value = value & ~lane(mask)
    return value ^ lane(mask) if is_neg else value


def _is_packed(operand: Operand, ins: Instruction) -> bool:
    """Return whether `sel` selects halves of the operand: two 16-bit values in a dword of a packed instruction."""
    return (
        ins.format == "VOP3P" and operand.size_bits in (0, 32) and ins.mnemonic.startswith(("v_pk_", "v_dot2"))
        and operand.type in ("f16", "bf16", "i16", "u16", "b16")
    )  # fmt: skip


@remembered
def has_modifiers(ins: Instruction) -> bool:
    """Return whether `modify` may change a source of an instruction."""
    if ins.format == "VOP3P" or ins.mnemonic.startswith(MATRIX_PRODUCTS):
        return True
    return any(operand.abs or operand.neg for operand in ins.uses)


def modify(ins: Instruction, operand: Operand, value: Any) -> Any:
    """Return a source with the operand's abs and neg applied, and with half selection in packed instructions.

    Masks and integers are unchanged. So are fma_mix sources: the instruction reads `sel`, `abs` and `neg` itself. Dot
    and matrix instructions on iu8 and iu4 do that too.
    """
    if operand.type == "mask" or ins.mnemonic.startswith("v_fma_mix"):
        return value
    if ins.mnemonic.startswith(MATRIX_PRODUCTS):
        return _matrix_operand(operand, value)
    if _is_packed(operand, ins):
        low, high = (value >> np.uint32(16 if one else 0) & np.uint32(0xFFFF) for one in operand.sel)
        masks = [0x8000 if one and operand.type in FORMATS else 0 for one in operand.neg_halves]
        return (low ^ np.uint32(masks[0])) | (high ^ np.uint32(masks[1])) << np.uint32(16)
    # The third source of a float dot product.
    if ins.format == "VOP3P" and operand.type == "f32":
        # Pairs of f32 apply their signs themselves, dword by dword.
        if operand.size_bits == 64:
            return value
        return _signs(value, F32.sign, operand.neg_halves[1], operand.neg_halves[0])
    if not (operand.abs or operand.neg):
        return value
    size = operand.size_bits or 32
    mask = 0x8000_8000 if size == 32 and operand.type in ("f16", "bf16") else 1 << size - 1
    return _signs(value, mask, operand.abs, operand.neg)


def _matrix_operand(operand: Operand, value: Bits) -> Bits:
    """Apply NEG and NEG_HI to the halves of A and B; they are NEG and ABS of C. Source: RDNA3 ISA reference, "WMMA"."""
    if operand.type not in FORMATS or not any(operand.neg_halves):
        return value
    low, high = operand.neg_halves
    # Two registers come as one number.
    repeat = 1 | (1 << 32 if value.dtype.itemsize == 8 else 0)
    if operand.field == "src2":
        return _signs(value, (F32.sign if operand.type == "f32" else 0x8000_8000) * repeat, high, low)
    mask = (0x8000 if low else 0) | (0x8000_0000 if high else 0)
    changed: Bits = value ^ value.dtype.type(mask * repeat)
    return changed


# f32 opcodes that flush denormal results in any mode, so omod works on them in any mode too.
FLUSHING = frozenset(("v_exp_f32", "v_log_f32", "v_rcp_f32", "v_rcp_iflag_f32", "v_rsq_f32", "v_sqrt_f32"))
_UNCLAMPED = ("v_dot2", *MATRIX_PRODUCTS, "v_fma_mixlo", "v_fma_mixhi")  # the last two clamp their half themselves
_SCALES = {1: 2.0, 2: 4.0, 3: 0.5}


def finish(ctx: Ctx, value: Any) -> Any:
    """Return an instruction's (first) result with omod and clamp applied, if it is a float.

    Source: RDNA3 ISA reference, "Output Operand Modifiers".
    """
    ins = ctx.ins
    if not (ins.clamp or ins.omod) or not ins.defs or ins.mnemonic.startswith(_UNCLAMPED):
        return value
    target = ins.defs[0]
    form = FORMATS.get(target.type)
    if form is None:
        return value
    if form in (F16, BF16) and target.size_bits == 32 and target.kind == "vgpr" and not target.fills:
        if not ins.clamp:
            return value
        low, high = value & np.uint32(0xFFFF), value >> np.uint32(16)
        return clamped(ctx, form, low) | clamped(ctx, form, high) << np.uint32(16)
    if form is F32 and target.size_bits == 64:
        low, high = ((value >> np.uint64(shift)).astype(np.uint32) for shift in (0, 32))
        wide = _finished(ctx, form, high).astype(np.uint64) << np.uint64(32)
        return _finished(ctx, form, low).astype(np.uint64) | wide
    return _finished(ctx, form, value)


def _finished(ctx: Ctx, form: Format, value: Bits) -> Bits:
    ins = ctx.ins
    keeps = ctx.denormals(form) & KEEP_RESULTS and ins.mnemonic not in FLUSHING
    if ins.omod and (ctx.omod_in_any_mode or not (ctx.ieee or keeps)):
        value = _scaled(ctx, form, value)
    return clamped(ctx, form, value) if ins.clamp else value


@np.errstate(all="ignore")
def _scaled(ctx: Ctx, form: Format, bits: Bits) -> Bits:
    """Apply the output modifier. QUIRK: it turns -0 into +0."""
    values = floats.widened(form, bits) * _SCALES[ctx.ins.omod]
    scaled = floats.flushed(
        form, floats.rounded(form, values, ctx.rounding(form)) if form is not floats.F64 else values.view(np.uint64)
    )
    scaled = np.where((scaled & form.lane(form.magnitude)) == 0, form.lane(0), scaled)
    return np.where(floats.is_nan(form, bits), bits, scaled)


def clamped(ctx: Ctx, form: Format, bits: Bits) -> Bits:
    """Return floats clamped to 0.0 ... 1.0. A NaN becomes 0 if MODE.dx10_clamp is set, else it is kept."""
    one = form.lane(form.bias << form.mantissa_bits)
    is_negative = (bits & form.lane(form.sign)) != 0
    kept = np.where(is_negative, form.lane(0), np.minimum(bits, one))
    return np.where(floats.is_nan(form, bits), form.lane(0) if ctx.dx10_clamp else bits, kept)
