"""Complex matrices: values are NumPy's, gradients PyTorch's."""

import numpy as np
import pytest

from ringup import Tensor, gradient, linalg

DRAW = np.random.default_rng(4)


def numbers(*shape):
    return DRAW.normal(size=shape) + 1j * DRAW.normal(size=shape)


A, B = numbers(2, 4, 4), numbers(2, 4, 3)
H = A @ A.conj().swapaxes(-1, -2) + np.eye(4)
FOUND = {
    "inv": (lambda: linalg.inv(Tensor(A)), np.linalg.inv(A)),
    "det": (lambda: linalg.det(Tensor(A)), np.linalg.det(A)),
    "logdet": (lambda: linalg.logdet(Tensor(A)), np.log(np.linalg.det(A))),
    "sign": (lambda: linalg.slogdet(Tensor(A))[0], np.linalg.slogdet(A)[0]),
    "logarithm": (lambda: linalg.slogdet(Tensor(A))[1], np.linalg.slogdet(A)[1]),
    "solve": (lambda: linalg.solve(Tensor(A), Tensor(B)), np.linalg.solve(A, B)),
    "solve of reals": (lambda: linalg.solve(Tensor(A), Tensor(B.real.copy())), np.linalg.solve(A, B.real)),
    "cholesky": (lambda: linalg.cholesky(Tensor(H)), np.linalg.cholesky(H)),
    "upper": (lambda: linalg.cholesky(Tensor(H), upper=True), np.linalg.cholesky(H, upper=True)),
    "lu_solve": (lambda: linalg.lu_solve(*linalg.lu_factor(Tensor(A)), Tensor(B)), np.linalg.solve(A, B)),
    "cholesky_solve": (
        lambda: linalg.cholesky_solve(Tensor(B), linalg.cholesky(Tensor(H))),
        np.linalg.solve(H, B),
    ),
    "cholesky_inverse": (lambda: linalg.cholesky_inverse(linalg.cholesky(Tensor(H))), np.linalg.inv(H)),
    "pinv": (lambda: linalg.pinv(Tensor(B)), np.linalg.pinv(B)),
    "svdvals": (lambda: linalg.svdvals(Tensor(B)), np.linalg.svd(B, compute_uv=False)),
    "eigvalsh": (lambda: linalg.eigvalsh(Tensor(H)), np.linalg.eigvalsh(H)),
    "upper eigvalsh": (lambda: linalg.eigvalsh(Tensor(A), "U"), np.linalg.eigvalsh(A, "U")),
    "rank": (lambda: linalg.matrix_rank(Tensor(B @ B.swapaxes(-1, -2))), np.array([3, 3])),
    "cond": (lambda: linalg.cond(Tensor(A)), np.linalg.cond(A)),
    "power": (lambda: linalg.matrix_power(Tensor(A), -2), np.linalg.matrix_power(A, -2)),
    "cross": (lambda: linalg.cross(Tensor(B[0]), Tensor(B[1])), np.linalg.cross(B[0], B[1])),
    "vecdot": (lambda: linalg.vecdot(Tensor(B[0]), Tensor(B[1])), np.linalg.vecdot(B[0], B[1])),
    "vector norm": (lambda: linalg.vector_norm(Tensor(A), 3), np.asarray(np.linalg.norm(A.reshape(-1), 3))),
    **{
        f"norm {order}": (
            lambda order=order: linalg.matrix_norm(Tensor(A), order),
            np.linalg.norm(A, order, axis=(1, 2)),
        )
        for order in ("fro", "nuc", 2, -2, 1, -1, np.inf, -np.inf)
    },
}


@pytest.mark.parametrize("name", FOUND)
def test_values_are_numpys(name):
    make, wanted = FOUND[name]
    np.testing.assert_allclose(make().numpy(), wanted, rtol=1e-10, atol=1e-12)


def test_least_squares_are_numpys():
    found, wanted = linalg.lstsq(Tensor(B[0]), Tensor(A[0])), np.linalg.lstsq(B[0], A[0])
    np.testing.assert_allclose(found.solution.numpy(), wanted[0], rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(found.residuals.numpy(), wanted[1], rtol=1e-10)
    assert found.rank.item() == 3


def test_the_exponential_of_a_matrix_is_that_of_its_eigenvalues():
    values, vectors = np.linalg.eig(A[0])
    wanted = vectors @ np.diag(np.exp(values)) @ np.linalg.inv(vectors)
    np.testing.assert_allclose(linalg.matrix_exp(Tensor(A[0])).numpy(), wanted, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("rows", "columns"), [(5, 3), (2, 3), (1, 1), (4, 4)])
def test_decompositions_put_together_again_give_the_matrix(rows, columns):
    a = numbers(2, rows, columns)
    x, count = Tensor(a), min(rows, columns)
    q, r = linalg.qr(x)
    wanted = np.linalg.qr(a)
    np.testing.assert_allclose(q.numpy(), wanted.Q, atol=1e-13)
    np.testing.assert_allclose(r.numpy(), wanted.R, atol=1e-13)
    u, s, vh = linalg.svd(x)
    np.testing.assert_allclose(s.numpy(), np.linalg.svd(a).S, rtol=1e-12)
    for one, size in ((u, rows), (vh, columns)):
        np.testing.assert_allclose((one @ one.mH).numpy(), np.broadcast_to(np.eye(size), (2, size, size)), atol=1e-13)
    again = (u[..., :count] * s.unsqueeze(-2)) @ vh[..., :count, :]
    np.testing.assert_allclose(again.numpy(), a, atol=1e-13)


def test_matrices_without_elements_have_no_singular_values():
    for shape in ((0, 3), (2, 0, 2)):
        x = Tensor(np.ones(shape, np.complex64))
        assert linalg.svdvals(x).numpy().shape == np.linalg.svd(x.numpy()).S.shape
        assert linalg.svdvals(x).dtype == "float32"
        assert not linalg.matrix_rank(x).numpy().any()


def test_eigenvectors_of_hermitian_matrices():
    for a in (H, np.diag([1.0, 1.0, 2.0]) + 0j):
        values, vectors = linalg.eigh(Tensor(a))
        np.testing.assert_allclose(values.numpy(), np.linalg.eigvalsh(a), rtol=1e-12)
        turned = vectors.numpy()
        np.testing.assert_allclose(a @ turned, turned * values.numpy()[..., None, :], atol=1e-12)
        unit = np.broadcast_to(np.eye(a.shape[-1]), a.shape)
        np.testing.assert_allclose(turned.conj().swapaxes(-1, -2) @ turned, unit, atol=1e-13)


GENERAL = {
    "real": DRAW.normal(size=(2, 3, 3)),
    "complex": A[0, :3, :3],
    "turn": np.array([[0.0, 1.0], [-1.0, 0.0]]),
    "circle": np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]),
    "defective": np.array([[1.0, 1.0], [0.0, 1.0]]),
    "triangle": np.array([[1.0, 2.0, 3.0], [0.0, 4.0, 5.0], [0.0, 0.0, 1.0]]),
    "zeros": np.zeros((3, 3)),
    "one": np.array([[2.0 + 1j]]),
}


@pytest.mark.parametrize("name", GENERAL)
def test_eigenvectors_of_general_matrices(name):
    a = GENERAL[name]
    values, vectors = linalg.eig(Tensor(a))
    assert values.dtype == vectors.dtype == "complex128"
    w, v = values.numpy(), vectors.numpy()
    np.testing.assert_allclose(a @ v, v * w[..., None, :], atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(v, axis=-2), 1, rtol=1e-12)
    for one, other in zip(w.reshape(-1, w.shape[-1]), a.reshape(-1, *a.shape[-2:]), strict=True):
        # each of NumPy's is among them
        apart = np.abs(one[:, None] - np.linalg.eigvals(other)[None])
        assert apart.min(0).max() < 1e-7
        assert apart.min(1).max() < 1e-7


def test_eigenvalues_of_general_matrices_have_no_gradient():
    x = Tensor(X)
    with pytest.raises(TypeError, match="the gradient of eig is not known"):
        gradient(linalg.eigvals(x).abs().sum(), [x])
    assert linalg.eigvals(Tensor(np.zeros((2, 0, 0), np.float32))).numpy().shape == (2, 0)
    assert linalg.eigvals(Tensor(np.array([[0.0, 1.0], [-1.0, 0.0]], np.float32))).dtype == "complex64"


def test_vectors_of_a_complex_svd_have_no_gradient():
    x = Tensor(X)
    u, _, _ = linalg.svd(x)
    with pytest.raises(TypeError, match="vectors of svd of complex matrices"):
        gradient(u.abs().sum(), [x])


X = np.array([[1 + 2j, 0.5 - 1j, 0.25], [-1j, 2.0, 1 + 1j], [0.5, -0.75j, 1.5 - 0.5j]])
Y = np.array([[1j, 2.0], [1 - 1j, 0.5], [0.25, -1.0]])
MAKE = {
    "inv": linalg.inv, "det": linalg.det, "logabsdet": lambda x: linalg.slogdet(x)[1],
    "solve": lambda x: linalg.solve(x, Tensor(Y)), "cholesky": lambda x: linalg.cholesky(x @ x.mH + Tensor.eye(3)),
    "pinv": lambda x: linalg.pinv(x[:, :2]), "svdvals": linalg.svdvals, "eigvalsh": lambda x: linalg.eigvalsh(x @ x.mH),
    "nuc": lambda x: linalg.matrix_norm(x, "nuc"), "fro": linalg.matrix_norm, "exp": linalg.matrix_exp,
    "qr": lambda x: (lambda q, r: q @ Tensor(Y) + r[:, :2] * 2)(*linalg.qr(x)),
    "eigh": lambda x: (lambda values, v: (v[:, 0] * v[:, 0].conj()).real * values)(*linalg.eigh(x @ x.mH)),
    "triangle": lambda x: linalg.solve_triangular(x, Tensor(Y), upper=True),
}  # fmt: skip
# PyTorch 2.14, complex128: gradients of sum(re * (1, 2, …)) + sum(im^2)
GRADIENTS = {
    "inv": [-0.641277218+0.586012158j, -0.873546786+0.532148955j, 0.416442541+1.50202203j, -1.24593552+0.462258972j,
        -2.18071833-0.0920633806j, -0.286846599+2.99183802j, -2.0800388-1.72391652j, -2.25618759-2.89255765j,
        -4.65673181+1.93731671j],
    "det": [0.125+19.375j, 18+6.5j, -1.75-14.875j, 13.03125-3.6875j, 23.625+17.6875j, 0.875-10.875j, -3.25+9j,
        -26.625+11.75j, 41.25+21j],
    "logabsdet": [0.23689946+0.261157965j, 0.322941344-0.130389463j, -0.204302094-0.180422629j,
        0.131905619-0.208187245j, 0.53501374-0.0470008528j, -0.120155406-0.15805932j, 0.0651947314+0.161470672j,
        -0.218326542+0.48251682j, 0.814176064-0.216052307j],
    "solve": [-0.355653545+0.841822353j, -0.798088626+2.08559264j, 1.54854875-0.740882435j, -1.43206158+1.175513j,
        -2.19332127+2.48073025j, 2.49865614-0.463242826j, -3.99967758-0.910045459j, -6.00640752+0.247890619j,
        4.0395957+2.44569183j],
    "cholesky": [0.332891564-1.57550997j, 2.77562298-2.82673155j, 4.5543745-0.927151633j, 1.10467066+1.1184359j,
        4.41955482-2.58530357j, 4.36380629-0.900529694j, 4.83270389+2.27324488j, 5.07779991-2.89622725j,
        9.63632387+0.451974638j],
    "pinv": [-0.493867757-0.246372125j, -0.551220678-0.113348789j, 0j, -0.66624926+0.0948096496j,
        -0.893317088+0.603130633j, 0j, 0.483590542+0.371428589j, 0.931099539+0.787621434j, 0j],
    "svdvals": [0.967394839+1.31463464j, 0.850970227-0.337315816j, -0.618620588-0.248629143j,
        0.522174983-0.931649323j, 1.46091353-0.147848122j, -0.0685005882-0.294979327j, 0.355416411+0.195960099j,
        -0.515488099+1.10073383j, 2.17683697-0.533188306j],
    "eigvalsh": [3.88347698+8.9465254j, 2.03772777-6.18976234j, 2.92626713-0.489672121j, -1.46998333-3.78503239j,
        10.9308157+0.318575757j, 5.83496478+6.6677966j, 2.09198312+0.580823796j, 0.560002515-6.04252003j,
        6.56858002-2.66313586j],
    "nuc": [0.448601099+0.745205723j, 0.341501962-0.332075497j, -0.0878407863-0.0938709524j,
        0.11166988-0.434145737j, 0.858466976-0.0349585154j, 0.194064212+0.152311363j, 0.189651956+0.0806531896j,
        -0.140729576+0.122921983j, 0.923439621-0.264332815j],
    "fro": [0.245255736+0.490511472j, 0.122627868-0.245255736j, 0.061313934, -0.245255736j, 0.490511472,
        0.245255736+0.245255736j, 0.122627868, -0.183941802j, 0.367883604-0.122627868j],
    "exp": [25.8260324-13.4386093j, 37.8138143-22.1602494j, 20.6797081+16.0990666j, 65.0895668+13.1116039j,
        168.80238-17.1893379j, 60.1752129+116.499358j, 85.8122545-42.1072647j, 148.455226-139.445358j,
        152.299719+26.7711464j],
    "qr": [-6.6234553+1.37730901j, -8.43708424+1.28097088j, 0.420117651-0.475721458j, -9.28714147-3.22588835j,
        -5.08942933+0.494934709j, 0.368044245-0.279784234j, -8.71410213+3.37406918j, -7.25984564+1.8714712j,
        0.503082062+1.89582503j],
    "eigh": [2.645237+4.46816249j, 3.70177486-5.13289182j, 3.05654292-1.25206973j, -0.287195703+1.23102891j,
        9.12693404-0.830013653j, 3.86438321+5.81160622j, -4.13866316+2.21901444j, 0.699597808-1.65574243j,
        -0.906313475-0.787365892j],
    "triangle": [-0.1639375-1.0719375j, -0.3325-0.16125j, 0.59125+0.10875j, 0j, -2.0925+0.1965625j,
        0.9915625-0.3178125j, 0j, 0j, 1.1815-0.342375j],
}  # fmt: skip


@pytest.mark.parametrize("name", MAKE)
def test_gradients_are_pytorchs(name):
    x = Tensor(X)
    y = MAKE[name](x)
    weights = Tensor(np.arange(1.0, y.numel() + 1).reshape(y.shape))
    loss = (y.real * weights).sum() + (y.imag.square().sum() if y.is_complex() else 0)
    np.testing.assert_allclose(gradient(loss, [x])[0].numpy().reshape(9), GRADIENTS[name], rtol=1e-7, atol=1e-8)
