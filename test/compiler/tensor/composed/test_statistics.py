"""Statistics, closeness, norms, distances, and products of matrices under PyTorch's names."""

import numpy as np
import pytest

from ringup.compiler.tensor import Tensor, gradient

A = np.array([[1.0, 2, -2], [0, 0, 0], [3, -4, 12]], np.float32)
B = np.array([[2.0, 1, 0], [1, 1, 1], [3, 4, 0]], np.float32)
X, Y = Tensor(A), Tensor(B)
HOLES = np.array([[1.0, np.nan, 3.0], [np.nan, np.nan, np.nan], [np.inf, -np.inf, 0.5]], np.float32)
STACK = np.arange(12, dtype=np.float32).reshape(2, 2, 3)


def close(found, wanted, rtol=2e-6):
    np.testing.assert_allclose(found.numpy(), wanted, rtol=rtol, atol=1e-7)


def test_two_statistics_at_once():
    for found, wanted in zip(X.std_mean(dim=1), (A.std(1, ddof=1), A.mean(1)), strict=True):
        close(found, wanted)
    for found, wanted in zip(X.var_mean(dim=0, unbiased=False, keepdim=True), (A.var(0), A.mean(0)), strict=True):
        close(found, wanted[None])


@pytest.mark.filterwarnings("ignore:Mean of empty slice")
def test_elements_that_are_not_nan():
    t = Tensor(HOLES[:2])
    close(t.nansum(1), np.nansum(HOLES[:2], 1))
    close(t.nanmean(dim=1), np.nanmean(HOLES[:2], 1))
    assert Tensor([1, 2]).nansum().item() == 3


def test_nan_and_infinities_replaced():
    t = Tensor(HOLES)
    np.testing.assert_array_equal(t.nan_to_num().numpy(), np.nan_to_num(HOLES))
    np.testing.assert_array_equal(
        t.nan_to_num(9, posinf=1, neginf=2).numpy(), np.nan_to_num(HOLES, nan=9, posinf=1, neginf=2)
    )
    half = HOLES.astype(np.float16)
    np.testing.assert_array_equal(Tensor(half).nan_to_num().numpy(), np.nan_to_num(half))
    assert Tensor([np.inf, np.nan]).cast("bfloat16").nan_to_num().tolist() == [3.3895313892515355e38, 0]
    assert Tensor([3]).nan_to_num().tolist() == [3]


def test_closeness():
    a = np.array([1, np.inf, np.nan, 1, np.inf, 1e-9, 100], np.float32)
    b = np.array([1 + 1e-6, np.inf, np.nan, np.inf, -np.inf, 0, 101], np.float32)
    for same in (False, True):
        found = Tensor(a).isclose(Tensor(b), equal_nan=same)
        assert found.tolist() == np.isclose(a, b, equal_nan=same).tolist()
    assert Tensor(a).isclose(b, rtol=0.1).tolist() == np.isclose(a, b, rtol=0.1).tolist()
    assert Tensor([3], "uint8").isclose(Tensor([5], "uint8"), atol=2.5).tolist() == [True]
    assert not Tensor([1.0]).allclose([np.inf]).item()
    assert X.equal(A)
    assert not X.equal(Y)
    assert not X.equal(A[0])


def test_the_length_of_a_hypotenuse():
    # PyTorch 2.14
    a, b = Tensor([3.0, 0.0, -1.0]), Tensor([4.0, 2.0, 1.0])
    close(a.hypot(b), [5.0, 2.0, 2**0.5])
    by_a, by_b = gradient(a.hypot(b).sum(), [a, b])
    close(by_a, [0.6, 0.0, -(0.5**0.5)])
    close(by_b, [0.8, 1.0, 0.5**0.5])
    x = np.array([3e38, 1e-30, 0, np.inf, np.nan, np.nan], np.float32)
    y = np.array([1e38, 1e-30, 0, np.nan, -np.inf, 1], np.float32)
    close(Tensor(x).hypot(y), np.hypot(x, y))


@pytest.mark.parametrize("how", ["linear", "lower", "higher", "nearest", "midpoint"])
def test_quantiles(how):
    x = np.random.default_rng(1).standard_normal((3, 8)).astype(np.float32)
    for q in (0, 0.25, 0.6, 1):
        close(Tensor(x).quantile(q, dim=1, interpolation=how), np.quantile(x, q, 1, method=how).astype(np.float32))
        close(Tensor(x).quantile(q, method=how), np.quantile(x, q, method=how).astype(np.float32))


def test_several_quantiles_and_nan():
    wanted = np.quantile(A, [0.25, 0.6], 0).astype(np.float32)
    close(X.quantile([0.25, 0.6], 0), wanted)
    close(X.quantile(Tensor([0.25, 0.6]), dim=0, keepdim=True), wanted[:, None])
    assert np.isnan(Tensor(HOLES).quantile(0.5, 1).numpy()).tolist() == [True, True, False]
    with pytest.raises(ValueError, match=r"the quantile 1\.5: 0 to 1"):
        X.quantile(1.5)


def test_norms_and_distances():
    # PyTorch 2.14
    close(X.normalize(), [[1 / 3, 2 / 3, -2 / 3], [0, 0, 0], [3 / 13, -4 / 13, 12 / 13]])
    close(X.normalize(p=1, dim=0), A / np.maximum(np.abs(A).sum(0), 1e-12))
    close(X.cosine_similarity(Y), [0.59628481, 0, -0.10769231], 1e-5)
    close(X.cosine_similarity(Y, dim=0), [0.92966962, -0.73786485, 0], 1e-5)
    for order in (1, 2, np.inf):
        apart = np.linalg.norm(A[:, None] - B[None, :2], order, -1)
        close(X.cdist(Y[:2], p=order), apart)
    close(X.dist(Y), np.linalg.norm(A - B))


def test_products_under_other_names():
    close(X.mm(Y), A @ B)
    close(X.mv(Y[0]), A @ B[0])
    close(Tensor(STACK).bmm(Tensor(STACK).mT), STACK @ STACK.transpose(0, 2, 1))
    close(X.addmm(X, Y, beta=0.5, alpha=2), 0.5 * A + 2 * (A @ B))
    close(Tensor([np.nan]).addmm(X, Y, beta=0), A @ B)
    close(X[0].addmv(X, Y[0]), A[0] + A @ B[0])
    close(Tensor(1.0).baddbmm(Tensor(STACK), Tensor(STACK).mT), 1 + STACK @ STACK.transpose(0, 2, 1))
    close(X.addcmul(X, Y, value=0.5), A + 0.5 * A * B)
    close(X.addcdiv(Y, X[0], value=-1), A - B / A[0])
    close(X.vdot(Y), np.vdot(A, B))
    close(X.kron(Y[0]), np.kron(A, B[0]))
    close(Tensor(STACK).kron(Y), np.kron(STACK, B))
    with pytest.raises(ValueError, match=r"mm of .*: 2 and 2 axes; @ takes others"):
        X.mm(Y[0])


def test_diagonals():
    v = np.array([1, 2, 3])
    for offset in (-2, 0, 1):
        np.testing.assert_array_equal(Tensor(v).diag(diagonal=offset).numpy(), np.diag(v, offset))
        np.testing.assert_array_equal(X.diag(offset).numpy(), np.diag(A, offset))
        np.testing.assert_array_equal(X.diagflat(offset).numpy(), np.diagflat(A, offset))
    # PyTorch 2.14
    rows = Tensor([[1, 2], [3, 4]])
    assert rows.diag_embed(offset=1).tolist() == [[[0, 1, 0], [0, 0, 2], [0, 0, 0]], [[0, 3, 0], [0, 0, 4], [0, 0, 0]]]
    assert rows.diag_embed(dim1=0, dim2=2).tolist() == [[[1, 0], [3, 0]], [[0, 2], [0, 4]]]
    with pytest.raises(ValueError, match=r"diag of \[2, 2, 3\]: one axis or two"):
        Tensor(STACK).diag()
