"""What every vendor's reader says about registers: vendor-neutral rows for the database and the module emitter."""

from __future__ import annotations

from dataclasses import dataclass

SEGMENT_UNKNOWN = -1  # the offset counts from the base of some segment, and the source does not say which


@dataclass(frozen=True, slots=True)
class FieldFacts:
    """Bits `hi` down to `lo`, both inclusive.

    `mask` is None for a contiguous field, else every bit of it, in place; then `hi` and `lo` are its outermost bits.
    `values` are the named values in the field (shifted down to bit 0), in the source's order; a value may have several
    names. `variant` says for which chips the field exists, in the source's own spelling, empty for all. `note` is free
    text (a unit, a type, a scale).
    """

    name: str
    hi: int
    lo: int
    mask: int | None = None
    values: tuple[tuple[str, int], ...] = ()
    variant: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class RegisterFacts:
    """One register, or an array of equal ones.

    `name` has no prefix. `kind` says how the register is accessed, in the source's words (`reg`, `mm`, `smn`, `ix`,
    `cfg`...). Its byte address is `(base of segment + offset) * unit_bytes`. `segment` None means that no base is
    added; `offset` None that the source describes the bits but not the place. Element i is `i * stride` units further;
    an array of unknown length has count 0. Several rows may share a name if `kind` or `variant` (spelled as in the
    source) differs.
    """

    name: str
    kind: str
    offset: int | None
    segment: int | None = None
    unit_bytes: int = 4
    width_bits: int = 32
    stride: int = 0
    count: int = 1
    fields: tuple[FieldFacts, ...] = ()
    variant: str = ""
    note: str = ""
