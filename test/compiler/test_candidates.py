"""Every candidate of a kernel computes the same: all candidates of several kernels run on the virtual cores in strict
mode.
"""

import random

import numpy as np
import on_cores
import pytest
import random_graphs

from ringup.compiler.amd.instructions.traits import TRAITS, traits
from ringup.compiler.compile import compile_kernel
from ringup.compiler.kernel import choose
from ringup.compiler.kernel.attention import few as attention_few
from ringup.compiler.kernel.attention import fma as attention_fma
from ringup.compiler.kernel.attention import matrix as attention_matrix
from ringup.compiler.kernel.axis import elementwise, rows, scan, sort
from ringup.compiler.kernel.contraction import fma, matrix
from ringup.compiler.tensor import Tensor, device
from ringup.compiler.tune import jobs_of
from ringup.errors import CompileError


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


A, B, C = numbers(40, 96), numbers(96, 72, seed=1), numbers(3, 200, seed=2)
ROWS, COLUMNS = numbers(9, 10), numbers(10, 12, seed=1)
HALF_ROWS, HALF_COLUMNS = numbers(36, 36).astype(np.float16), numbers(36, 40, seed=1).astype(np.float16)
BYTES = np.random.default_rng(3).integers(-128, 128, (20, 24)).astype(np.int8)
LONG = numbers(2, 1500)
TALL, WIDE = numbers(10, 136), numbers(136, 12, seed=1)
Q, K, V = numbers(1, 20, 16), numbers(1, 34, 16, seed=1), numbers(1, 34, 8, seed=2)
FEW, HALF_Q, HALF_K, HALF_V = Q[:, :3], Q.astype(np.float16), K.astype(np.float16), V.astype(np.float16)
SQUARE, SEEN = BYTES.astype(np.int64) @ BYTES.T, softmax(Q @ K.transpose(0, 2, 1) / 4) @ V
PRODUCT = (HALF_ROWS.astype(np.float32) @ HALF_COLUMNS.astype(np.float32)).astype(np.float16).astype(np.float32)


def halves():
    return Tensor(HALF_Q).scaled_dot_product_attention(Tensor(HALF_K), Tensor(HALF_V))


# Name to (tensors, NumPy's result, the lowering that has these candidates, relative tolerance).
CASES = {
    "elementwise": (lambda: Tensor(A) * 2 + 1, A * 2 + 1, elementwise.Shape, 1e-6),
    "elementwise by rows": (lambda: Tensor(A).permute(1, 0) + Tensor(B)[:, :40], A.T + B[:, :40], elementwise.Shape, 1e-6),
    "softmax": (lambda: Tensor(C).softmax(-1), softmax(C), rows.Shape, 1e-5),
    "running sum": (lambda: Tensor(A).cumsum(1), A.cumsum(1), scan.Shape, 1e-5),
    "running sum in turns": (lambda: Tensor(LONG).cumsum(1), LONG.cumsum(1), scan.Shape, 1e-5),
    "running maximum down": (lambda: Tensor(A).cummax(axis=0), np.maximum.accumulate(A, 0), scan.Shape, 0),
    "order": (lambda: Tensor(C).argsort(1), C.argsort(1, kind="stable"), sort.Shape, 0),
    "mean": (lambda: Tensor(C).mean(), C.mean(), rows.Shape, 1e-5),
    "sum across": (lambda: Tensor(C).sum(0), C.sum(0), rows.Shape, 1e-5),
    "product": (lambda: (Tensor(ROWS) @ Tensor(COLUMNS)).relu(), np.maximum(ROWS @ COLUMNS, 0), fma.FmaTile, 1e-4),
    "deep product": (lambda: (Tensor(TALL) @ Tensor(WIDE)).relu(), np.maximum(TALL @ WIDE, 0), fma.FmaTile, 1e-4),
    "two deep products": (
        lambda: Tensor(TALL) @ Tensor(WIDE) + Tensor(A[:10]) @ Tensor(B[:, :12]), TALL @ WIDE + A[:10] @ B[:, :12], fma.FmaTile, 1e-4,
    ),
    "sums of a deep product": (lambda: (Tensor(TALL) @ Tensor(WIDE)).relu().sum(1), np.maximum(TALL @ WIDE, 0).sum(1), fma.FmaTile, 1e-4),
    "product of f16": (lambda: (Tensor(HALF_ROWS) @ Tensor(HALF_COLUMNS)).cast("float32") * 2, 2 * PRODUCT, matrix.MatrixTile, 2e-3),
    "two products": (
        lambda: Tensor(ROWS) @ Tensor(COLUMNS) + Tensor(A[:9]) @ Tensor(B[:, :12]), ROWS @ COLUMNS + A[:9] @ B[:, :12], fma.FmaTile, 1e-4,
    ),
    "two products of f16": (
        lambda: (Tensor(HALF_ROWS) @ Tensor(HALF_COLUMNS)).cast("float32") * (Tensor(HALF_ROWS) @ Tensor(HALF_COLUMNS) * 2).cast("float32"),
        2 * PRODUCT**2, matrix.MatrixTile, 4e-3,
    ),
    "sums of a product": (lambda: (Tensor(ROWS) @ Tensor(COLUMNS)).relu().sum(1), np.maximum(ROWS @ COLUMNS, 0).sum(1), fma.FmaTile, 1e-4),
    "sums of a product of f16": (
        lambda: (Tensor(HALF_ROWS) @ Tensor(HALF_COLUMNS)).cast("float32").sum(1), PRODUCT.sum(1), matrix.MatrixTile, 2e-3,
    ),
    "product of bytes": (lambda: Tensor(BYTES).cast("int32") @ Tensor(BYTES).permute(1, 0).cast("int32"), SQUARE, matrix.MatrixTile, 0),
    "attention": (lambda: Tensor(Q).scaled_dot_product_attention(Tensor(K), Tensor(V)), SEEN, attention_fma.AttentionTile, 1e-4),
    "attention of f16": (lambda: halves().cast("float32"), SEEN, attention_matrix.MatrixAttentionTile, 4e-3),
    "attention of few": (
        lambda: Tensor(FEW).scaled_dot_product_attention(Tensor(K), Tensor(V)), SEEN[:, :3], attention_few.FewTile, 1e-5
    ),
}  # fmt: skip


class Always:
    """Chooses the same shape for every kernel that offers it."""

    def __init__(self, choice):
        self.one = choice

    def choice(self, kernel, signature, target):
        return self.one


@pytest.mark.parametrize("name", CASES)
@pytest.mark.sweep(7)
def test_every_candidate_computes_the_same(name, sample):
    make, expected, kind, tolerance = CASES[name]
    (job,) = jobs_of([make().node])
    found = choose.candidates(job.kernel, traits("gfx1100"))
    assert isinstance(found[0], kind)
    assert len(found) > 2
    assert len({str(one) for one in found}) == len(found)
    tried, names = 0, set()
    for choice in sample(found, few=2):
        tried += 1
        cores = on_cores.Cores(Always(choice))
        with device(cores):
            got = make().numpy()
        (binary,) = cores.graph.binaries
        names.add(binary.name)
        scale = np.abs(expected).max()
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * scale, err_msg=str(choice))
    # Programs are stored by name, so another shape is another program.
    assert len(names) == tried


# Name to the tensors that are roots of one kernel, and NumPy's results.
BESIDE = {
    "elementwise": (lambda: ((x := Tensor(A)) + 1, x * 2), (A + 1, A * 2)),
    "reductions": (lambda: ((x := Tensor(LONG)).sum(1), x.amax(1)), (LONG.sum(1), LONG.max(1))),
    "reductions across": (lambda: ((x := Tensor(A)).sum(0), (x * x).sum(0)), (A.sum(0), (A * A).sum(0))),
    "softmax": (lambda: (x := Tensor(C).softmax(-1), x * Tensor(C)), (softmax(C), softmax(C) * C)),
    "product": (lambda: (x := Tensor(ROWS) @ Tensor(COLUMNS), x.relu()), (ROWS @ COLUMNS, np.maximum(ROWS @ COLUMNS, 0))),
}  # fmt: skip


@pytest.mark.parametrize("name", BESIDE)
def test_every_candidate_of_several_roots_computes_the_same(name, sample):
    make, expected = BESIDE[name]
    (job,) = jobs_of([one.node for one in make()])
    for choice in sample(choose.candidates(job.kernel, traits("gfx1100")), few=2):
        found = make()
        with device(on_cores.Cores(Always(choice))):
            found[0].realize(*found[1:])
            got = [one.numpy() for one in found]
        for one, wanted in zip(got, expected, strict=True):
            scale = np.abs(wanted).max()
            np.testing.assert_allclose(one, wanted, rtol=1e-4, atol=1e-5 * scale, err_msg=str(choice))


@pytest.mark.parametrize(
    "target", [pytest.param(target, marks=() if target == "gfx1100" else pytest.mark.fuzz) for target in TRAITS]
)
@pytest.mark.parametrize("name", CASES)
def test_the_first_candidate_is_the_heuristic_shape(name, target):
    (job,) = jobs_of([CASES[name][0]().node])
    chip = traits(target)
    first = choose.candidates(job.kernel, chip)[0]
    plain = compile_kernel(job.kernel, job.signature, target)
    chosen = compile_kernel(job.kernel, job.signature, target, first)
    assert plain.lowered.choice == str(first)
    assert plain.binary.code == chosen.binary.code
    assert choose.named(job.kernel, chip, str(first)) == (first, True)
    assert choose.named(job.kernel, chip, "rows of beans") is None


def test_axes_multiply_to_the_threads_and_groups_that_are_launched():
    for make, *_ in CASES.values():
        (job,) = jobs_of([make().node])
        step = compile_kernel(job.kernel, job.signature, "gfx1100")
        sizes = {}
        for axis in step.lowered.axes:
            sizes[axis.role] = sizes.get(axis.role, 1) * axis.size
        x, y, z = step.lowered.groups
        assert sizes.get("grid", 1) == x * y * z
        threads = sizes.get("wave", 1) * sizes.get("lane", 1) * sizes.get("reduce", 1)
        assert threads == step.binary.group_size


def test_a_shape_that_no_group_can_hold_is_refused_with_the_bound():
    (job,) = jobs_of([(Tensor(A) @ Tensor(B)).node])
    with pytest.raises(CompileError, match=r"needs \d+ bytes of LDS a group, gfx1100 has 65536: split it"):
        compile_kernel(job.kernel, job.signature, "gfx1100", fma.FmaTile(256, 256, 16, 16, 16, 1.0))
    (other,) = jobs_of([CASES["elementwise"][0]().node])
    with pytest.raises(CompileError, match=r"needs 2048 threads a group, gfx1100 has 1024"):
        compile_kernel(other.kernel, other.signature, "gfx1100", elementwise.Shape(1, 2048, True))


class Random:
    """Chooses a random candidate of each kernel."""

    def __init__(self, seed):
        self.random, self.chosen = random.Random(seed), []

    def choice(self, kernel, signature, target):
        self.chosen.append(self.random.choice(choose.candidates(kernel, traits(target))))
        return self.chosen[-1]


@pytest.mark.seeds(3, first=5004)
def test_random_graphs_in_random_shapes_are_what_numpy_computes(seed):
    chooser = Random(seed)
    with device(on_cores.Cores(chooser)):
        tensor, expected, tolerance = random_graphs.random_graph(seed)
        got = tensor.numpy()
    np.testing.assert_allclose(
        got.astype(np.float64), expected.astype(np.float64), rtol=0, atol=tolerance, err_msg=str(chooser.chosen)
    )
