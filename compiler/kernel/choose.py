"""Which lowering a kernel gets."""

from __future__ import annotations

from ringup.compiler.kernel import contraction, elementwise, fma, rows
from ringup.compiler.kernel.frame import Lowered
from ringup.compiler.schedule.cut import Kernel


def lower(kernel: Kernel, name: str) -> Lowered:
    """Return the machine IR of a kernel."""
    if not kernel.folds:
        return elementwise.lower(kernel, name)
    if contraction.fits(kernel):
        return fma.lower(kernel, name)
    return rows.lower(kernel, name)
