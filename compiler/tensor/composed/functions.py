"""Methods of `Tensor` that are called as functions too: `cat([a, b], dim=1)`, `zeros(2, 3)`."""

from __future__ import annotations

from ringup.compiler.tensor.tensor import Tensor

cat, stack, where, einsum = Tensor.cat, Tensor.stack, Tensor.where, Tensor.einsum
maximum, minimum = Tensor.maximum, Tensor.minimum
zeros, ones, full, empty, eye = Tensor.zeros, Tensor.ones, Tensor.full, Tensor.empty, Tensor.eye
arange, linspace = Tensor.arange, Tensor.linspace
tensor = Tensor
rand, randn, randint = Tensor.rand, Tensor.randn, Tensor.randint
