"""Small graphs with NumPy's results, one for each kind of kernel: (tensors, wanted, tolerance) by name."""

import ml_dtypes
import numpy as np
from attention_numpy import attended

from ringup.compiler.tensor import Tensor

draw = np.random.default_rng(1201)


def numbers(*shape, kind=np.float32):
    return draw.standard_normal(shape).astype(kind)


A, B, C = numbers(19, 33), numbers(33, 21), numbers(17, 20)
WHOLE = draw.integers(-1000, 1000, (20, 7)).astype(np.int32)
HALF, BRAIN = (numbers(32, 48, kind=kind) for kind in (np.float16, ml_dtypes.bfloat16))
IMAGE, FILTER = numbers(1, 3, 8, 8), numbers(4, 3, 1, 1)
QUERIES, KEYS, VALUES = (numbers(1, 2, 16, 16) for _ in range(3))


def wide(x):
    return x.astype(np.float32)


CASES = {
    "arithmetic": (lambda: (Tensor(A) + 1.5) * Tensor(A).relu(), (A + 1.5) * np.maximum(A, 0), 1e-6),
    "f32 product": (lambda: Tensor(A) @ Tensor(B), A @ B, 1e-5),
    "f16 product of matrices": (lambda: Tensor(HALF) @ Tensor(HALF).T, wide(HALF) @ wide(HALF).T, 1e-2),
    "bf16 product of matrices": (lambda: Tensor(BRAIN) @ Tensor(BRAIN).T, wide(BRAIN) @ wide(BRAIN).T, 5e-2),
    "f16 arithmetic": (lambda: Tensor(HALF) * 2 - Tensor(HALF[::-1].copy()), HALF * 2 - HALF[::-1], 2e-3),
    "sums": (lambda: Tensor(A).sum(axis=1), A.sum(axis=1), 1e-5),
    "maxima": (lambda: Tensor(A).max(axis=0), A.max(axis=0), 0),
    "softmax": (lambda: Tensor(C).softmax(1), np.exp(C) / np.exp(C).sum(axis=1, keepdims=True), 1e-6),
    "functions": (lambda: Tensor(C).sin() + Tensor(C).tanh() + Tensor(C).exp(), np.sin(C) + np.tanh(C) + np.exp(C), 1e-5),
    "division": (lambda: Tensor(C) / (Tensor(C) + 10), C / (C + 10), 1e-6),
    "f64": (lambda: (Tensor(C.astype(np.float64)) ** 2).sqrt() * 3, np.abs(C.astype(np.float64)) * 3, 1e-14),
    "integer division": (lambda: Tensor(WHOLE) // 7, WHOLE // 7, 0),
    "running sums": (lambda: Tensor(WHOLE).cumsum(0), WHOLE.cumsum(axis=0), 0),
    "i64": (lambda: Tensor(WHOLE.astype(np.int64)) * 123456789, WHOLE.astype(np.int64) * 123456789, 0),
    "u8": (lambda: Tensor((WHOLE & 255).astype(np.uint8)) + 200, (WHOLE & 255).astype(np.uint8) + np.uint8(200), 0),
    "selection": (lambda: (Tensor(C) > 0).where(Tensor(C), -1.0), np.where(C > 0, C, -1), 0),
    "sort": (lambda: Tensor(C[:4]).sort(1)[0], np.sort(C[:4], axis=1), 0),
    "gather": (lambda: Tensor(C)[Tensor(np.array([3, 1, 2]))], C[[3, 1, 2]], 0),
    "convolution": (
        lambda: Tensor(IMAGE).conv2d(Tensor(FILTER)), np.einsum("nchw,oc->nohw", IMAGE, FILTER[:, :, 0, 0]), 1e-5
    ),
    "attention": (
        lambda: Tensor(QUERIES).scaled_dot_product_attention(Tensor(KEYS), Tensor(VALUES)), attended(QUERIES, KEYS, VALUES), 1e-5
    ),
}  # fmt: skip
