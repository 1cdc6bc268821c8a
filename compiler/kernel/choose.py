"""Which lowering a kernel gets."""

from __future__ import annotations

from ringup.compiler.kernel import attention, contraction, elementwise, fma, matrix, rows
from ringup.compiler.kernel.frame import Lowered
from ringup.compiler.kernel.traits import Traits
from ringup.compiler.schedule.cut import Kernel


def lower(kernel: Kernel, name: str, traits: Traits) -> Lowered:
    """Return the machine IR of a kernel for a target of these traits."""
    if not kernel.folds:
        return elementwise.lower(kernel, name)
    if kernel.attention is not None and kernel.scores is not None:
        return attention.lower(contraction.Problem(kernel), name, kernel.attention, kernel.scores)
    if contraction.fits(kernel):
        problem = contraction.Problem(kernel)
        narrow = matrix.narrowed(problem, traits.matrix) if traits.matrix else None
        if narrow is not None and traits.matrix is not None:
            return matrix.lower(narrow, name, traits.matrix)
        return fma.lower(problem, name)
    return rows.lower(kernel, name)
