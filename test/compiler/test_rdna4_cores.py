"""Graphs compiled for gfx1201 and gfx1151 give NumPy's numbers on their virtual cores, in strict mode.

The cores are written from AMD's document and know nothing of the compiler.
"""

import ml_dtypes
import numpy as np
import on_cores
import pytest
from attention_numpy import attended
from language.small_graphs import CASES, wide

from ringup.compiler.isa.amd import processor
from ringup.compiler.tensor import Tensor, device

draw = np.random.default_rng(12)


def numbers(*shape, kind=np.float32):
    return draw.standard_normal(shape).astype(kind)


LONG = numbers(3, 1500)
RAGGED, RAGGED_BRAIN = (
    (numbers(33, 50, kind=kind), numbers(50, 35, kind=kind)) for kind in (np.float16, ml_dtypes.bfloat16)
)
BYTES, OCTETS = (draw.integers(0, 256, (40, 40)).astype(np.uint8).view(kind) for kind in (np.int8, np.uint8))
QUERIES, KEYS, VALUES = (numbers(1, 2, rows, 32, kind=np.float16) for rows in (20, 50, 50))
IMAGE, FILTER = numbers(1, 16, 6, 6, kind=np.float16), numbers(16, 16, 1, 1, kind=np.float16)


# Matrix instructions, and kernels whose waves wait for each other.
MORE = {
    "ragged f16 product": (lambda: Tensor(RAGGED[0]) @ Tensor(RAGGED[1]), wide(RAGGED[0]) @ wide(RAGGED[1]), 2e-2),
    "ragged bf16 product": (
        lambda: Tensor(RAGGED_BRAIN[0]) @ Tensor(RAGGED_BRAIN[1]), wide(RAGGED_BRAIN[0]) @ wide(RAGGED_BRAIN[1]), 1e-1
    ),
    "i8 product": (lambda: Tensor(BYTES) @ Tensor(BYTES.T.copy()), BYTES.astype(np.int32) @ BYTES.T.astype(np.int32), 0),
    "u8 product": (lambda: Tensor(OCTETS) @ Tensor(OCTETS), OCTETS.astype(np.int32) @ OCTETS.astype(np.int32), 0),
    "f16 attention": (
        lambda: Tensor(QUERIES).scaled_dot_product_attention(Tensor(KEYS), Tensor(VALUES)),
        attended(*map(wide, (QUERIES, KEYS, VALUES))), 5e-3,
    ),
    "f16 convolution": (
        lambda: Tensor(IMAGE).conv2d(Tensor(FILTER)),
        np.einsum("nchw,oc->nohw", wide(IMAGE), wide(FILTER[:, :, 0, 0])), 2e-2,
    ),
    "long sums": (lambda: Tensor(LONG).sum(axis=1), LONG.sum(axis=1), 1e-4),
    "long softmax": (lambda: Tensor(LONG).softmax(1), np.exp(LONG) / np.exp(LONG).sum(axis=1, keepdims=True), 1e-6),
    "long running sums": (lambda: Tensor(LONG).cumsum(1), LONG.cumsum(axis=1, dtype=np.float64), 1e-3),
}  # fmt: skip


# Words in names of cases, and what their code is here to try on gfx1201 and on gfx1151.
USES = {
    ("product of matrices", "f16 product", "bf16 product", "i8", "u8 product", "f16 attention"): ("v_wmma", "v_wmma"),
    ("long",): ("s_barrier_signal", "s_barrier"),
}
# Most of gfx1151's code is as gfx1100's.
OF_RDNA3_5 = ("ragged bf16 product", "i8 product", "f16 attention", "long softmax")
WAYS = [
    *(("gfx1201", name) for name in CASES | MORE),
    *(pytest.param("gfx1151", name, marks=() if name in OF_RDNA3_5 else pytest.mark.fuzz) for name in CASES | MORE),
]


@pytest.mark.parametrize(("target", "name"), WAYS)
def test_code_for_a_later_generation_computes_what_numpy_does(target, name):
    make, wanted, tolerance = (CASES | MORE)[name]
    cores = on_cores.Cores(target=target)
    with device(cores):
        found = make().numpy()
    np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance)
    used = {one.form.name for binary in cores.graph.binaries for _, one in processor(target).walk(binary.code) if one}
    for kind, instructions in USES.items():
        if any(one in name for one in kind):
            assert any(one.startswith(instructions[target == "gfx1151"]) for one in used), name
