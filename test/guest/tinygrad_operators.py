"""Runs in the guest, in the interpreter that has tinygrad: compares its operators on a card with NumPy. Status 0 when
all are right.

    python tinygrad_operators.py INDEX PARTS

Every PARTS-th operator is taken, from the one with this index on.
"""

import sys

import numpy as np
from tinygrad import Tensor, dtypes

DRAW = np.random.default_rng(7)
X = DRAW.standard_normal((37, 29)).astype(np.float32)
Y = DRAW.standard_normal((37, 29)).astype(np.float32)
POSITIVE = np.abs(X) + 0.5
INTS = DRAW.integers(-1000, 1000, (37, 29)).astype(np.int32)
OTHERS = DRAW.integers(1, 50, (37, 29)).astype(np.int32)
IMAGE = DRAW.standard_normal((2, 3, 12, 11)).astype(np.float32)
WEIGHTS = DRAW.standard_normal((4, 3, 3, 3)).astype(np.float32)


def softmax(data):
    power = np.exp(data - data.max(axis=-1, keepdims=True))
    return power / power.sum(axis=-1, keepdims=True)


def convolved(image, weights):
    out = np.zeros((2, 4, 10, 9), np.float64)
    for row in range(3):
        for column in range(3):
            out += np.einsum(
                "nchw,oc->nohw", image[:, :, row : row + 10, column : column + 9], weights[:, :, row, column]
            )
    return out


def pooled(image):
    return image[:, :, :12, :10].reshape(2, 3, 6, 2, 5, 2).max(axis=(3, 5))


OPERATORS = {  # name: (what tinygrad computes, what NumPy does, relative tolerance; 0: exact)
    "add": (lambda: Tensor(X) + Tensor(Y), lambda: X + Y, 0),
    "sub": (lambda: Tensor(X) - Tensor(Y), lambda: X - Y, 0),
    "mul": (lambda: Tensor(X) * Tensor(Y), lambda: X * Y, 0),
    "div": (lambda: Tensor(X) / Tensor(POSITIVE), lambda: X / POSITIVE, 1e-5),
    "max": (lambda: Tensor(X).maximum(Tensor(Y)), lambda: np.maximum(X, Y), 0),
    "where": (lambda: (Tensor(X) > Tensor(Y)).where(Tensor(X), Tensor(Y) * 2), lambda: np.where(X > Y, X, Y * 2), 0),
    "exp": (lambda: Tensor(X).exp(), lambda: np.exp(X), 1e-5),
    "log": (lambda: Tensor(POSITIVE).log(), lambda: np.log(POSITIVE), 1e-4),
    "sin": (lambda: Tensor(X * 40).sin(), lambda: np.sin(X.astype(np.float64) * 40), 1e-3),
    "sqrt": (lambda: Tensor(POSITIVE).sqrt(), lambda: np.sqrt(POSITIVE), 1e-5),
    "reciprocal": (lambda: Tensor(POSITIVE).reciprocal(), lambda: 1 / POSITIVE, 1e-5),
    "tanh": (lambda: Tensor(X).tanh(), lambda: np.tanh(X), 1e-4),
    "sigmoid": (lambda: Tensor(X).sigmoid(), lambda: 1 / (1 + np.exp(-X)), 1e-5),
    "pow": (lambda: Tensor(POSITIVE) ** 2.5, lambda: POSITIVE**2.5, 1e-4),
    "floor": (lambda: (Tensor(X) * 9).floor(), lambda: np.floor(X * 9), 0),
    "int add": (lambda: Tensor(INTS) + Tensor(OTHERS), lambda: INTS + OTHERS, 0),
    "int mul": (lambda: Tensor(INTS) * Tensor(INTS), lambda: INTS * INTS, 0),
    "int div": (lambda: Tensor(INTS).abs() // Tensor(OTHERS), lambda: np.abs(INTS) // OTHERS, 0),
    "int mod": (lambda: Tensor(INTS).abs() % Tensor(OTHERS), lambda: np.abs(INTS) % OTHERS, 0),
    "xor": (lambda: Tensor(INTS) ^ Tensor(OTHERS), lambda: INTS ^ OTHERS, 0),
    "shift": (lambda: Tensor(OTHERS) << 3, lambda: OTHERS << 3, 0),
    "int64": (
        lambda: Tensor(INTS).cast(dtypes.int64) * 1_000_003 + 7,
        lambda: INTS.astype(np.int64) * 1_000_003 + 7,
        0,
    ),
    "half add": (
        lambda: (Tensor(X).half() + Tensor(Y).half()).float(),
        lambda: X.astype(np.float16) + Y.astype(np.float16),
        1e-3,
    ),
    "to int8": (lambda: Tensor(X * 30).cast(dtypes.int8).int(), lambda: (X * 30).astype(np.int8).astype(np.int32), 0),
    "sum": (lambda: Tensor(X).sum(), lambda: X.astype(np.float64).sum(), 1e-3),
    "sum of rows": (lambda: Tensor(X).sum(axis=1), lambda: X.astype(np.float64).sum(axis=1), 1e-4),
    "max of columns": (lambda: Tensor(X).max(axis=0), lambda: X.max(axis=0), 0),
    "mean": (lambda: Tensor(X).mean(axis=0), lambda: X.astype(np.float64).mean(axis=0), 1e-4),
    "variance": (lambda: Tensor(X).var(axis=1), lambda: X.astype(np.float64).var(axis=1, ddof=1), 1e-4),
    "argmax": (lambda: Tensor(X).argmax(axis=1), lambda: X.argmax(axis=1), 0),
    "cumsum": (lambda: Tensor(X).cumsum(axis=1), lambda: X.astype(np.float64).cumsum(axis=1), 1e-3),
    "softmax": (lambda: Tensor(X).softmax(), lambda: softmax(X.astype(np.float64)), 1e-5),
    "layernorm": (
        lambda: Tensor(X).layernorm(),
        lambda: (X - X.mean(axis=1, keepdims=True)) / np.sqrt(X.var(axis=1, keepdims=True) + 1e-5),
        1e-4,
    ),
    "matmul": (lambda: Tensor(X) @ Tensor(Y).T, lambda: X.astype(np.float64) @ Y.T, 1e-4),
    "half matmul": (
        lambda: Tensor(X[:32, :16]).half().matmul(Tensor(Y[:32, :16]).half().T, dtype=dtypes.float),
        lambda: X[:32, :16].astype(np.float16).astype(np.float64) @ Y[:32, :16].astype(np.float16).T.astype(np.float64),
        1e-4,
    ),
    "transpose": (lambda: Tensor(X).T.contiguous(), lambda: X.T, 0),
    "reshape": (lambda: Tensor(X).reshape(29, 37).contiguous() + 0, lambda: X.reshape(29, 37), 0),
    "pad": (lambda: Tensor(X).pad(((1, 2), (3, 0))).contiguous(), lambda: np.pad(X, ((1, 2), (3, 0))), 0),
    "shrink": (lambda: Tensor(X)[3:30, 5:17].contiguous(), lambda: X[3:30, 5:17], 0),
    "flip": (lambda: Tensor(X).flip(0).contiguous(), lambda: X[::-1], 0),
    "stride": (lambda: Tensor(X)[::2, ::3].contiguous(), lambda: X[::2, ::3], 0),
    "expand": (lambda: Tensor(X[:1]).expand(37, 29) + Tensor(Y), lambda: X[:1] + Y, 0),
    "cat": (lambda: Tensor(X).cat(Tensor(Y), dim=1), lambda: np.concatenate([X, Y], axis=1), 0),
    "gather": (lambda: Tensor(X)[Tensor([5, 1, 36, 5])], lambda: X[[5, 1, 36, 5]], 0),
    "sort": (lambda: Tensor(X[:4, :16]).sort(dim=1)[0], lambda: np.sort(X[:4, :16], axis=1), 0),
    "conv2d": (lambda: Tensor(IMAGE).conv2d(Tensor(WEIGHTS)), lambda: convolved(IMAGE, WEIGHTS), 1e-4),
    "max pool": (lambda: Tensor(IMAGE).max_pool2d(), lambda: pooled(IMAGE), 0),
    "relu": (lambda: Tensor(X).relu(), lambda: np.maximum(X, 0), 0),
    "gelu": (
        lambda: Tensor(X).gelu(),
        lambda: 0.5 * X * (1 + np.tanh(np.sqrt(2 / np.pi) * (X + 0.044715 * X.astype(np.float64) ** 3))),
        1e-4,
    ),
}


def main():
    index, parts = map(int, sys.argv[1:])
    chosen = dict(list(OPERATORS.items())[index::parts])
    wrong = 0
    for name, (ours, numpys, tolerance) in chosen.items():
        found, wanted = np.asarray(ours().numpy(), np.float64), np.asarray(numpys(), np.float64)
        if found.shape != wanted.shape:
            said = f"shape {found.shape}, not {wanted.shape}"
        else:
            worst = float((np.abs(found - wanted) / np.maximum(np.abs(wanted), 1)).max())
            said = "" if worst <= tolerance else f"off by {worst:.3g}, {tolerance:g} are allowed"
        if said:
            wrong += 1
            sys.stdout.write(f"{name}: {said}\n")
    sys.stdout.write(f"{len(chosen) - wrong} operators are right\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
