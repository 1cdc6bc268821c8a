"""Complex matrices as real ones of twice the size: x + iy is [[x, -y], [y, x]]. Products, inverses and pseudo-inverses
of such matrices have the same form.
"""

from __future__ import annotations

from ringup.compiler.tensor.tensor import Tensor
from ringup.linalg.matrices import sizes


def as_real(x: Tensor) -> Tensor:
    """Return complex matrices (…, m, n) as real ones (…, 2m, 2n)."""
    real, imag = x.real, x.imag
    return real.cat(-imag, axis=-1).cat(imag.cat(real, axis=-1), axis=-2)


def as_complex(x: Tensor) -> Tensor:
    """Return the complex matrices that real ones of that form stand for."""
    rows, columns = (count // 2 for count in sizes(x, "a matrix"))
    return x[..., :rows, :columns].complex(x[..., rows:, :columns])
