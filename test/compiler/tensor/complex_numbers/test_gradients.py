"""Gradients by complex numbers are PyTorch's: that by the real part plus i times that by the imaginary part."""

import numpy as np
import pytest

from ringup import Tensor, complex64, gradient

FUNCTIONS = {
    **{name: getattr(Tensor, name) for name in (
        "exp", "log", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "asin", "acos", "atan", "asinh", "acosh", "atanh",
        "reciprocal", "abs", "angle", "sgn", "conj", "square", "expm1", "log1p", "log2", "log10", "rsqrt", "prod", "var",
        "std", "mean", "norm", "sigmoid", "sinc",
    )},
    "cumprod": lambda z: z.cumprod(0), "cumsum": lambda z: z.cumsum(0), "pow3": lambda z: z**3, "pow2.5": lambda z: z**2.5,
    "powz": lambda z: z**z, "2powz": lambda z: 2**z, "real": lambda z: z.real, "imag": lambda z: z.imag,
    "norm1": lambda z: z.norm(1), "div": lambda z: (1 + 2j) / z, "div2": lambda z: z / (1 + 2j), "zabs": lambda z: z * z.abs(),
    "vdot": lambda z: z.vdot(z * z), "real2": lambda z: z * z.real, "polar": lambda z: z.abs().polar(z.angle()),
    "view": lambda z: z.view_as_real()[..., 1] * 3, "to128": lambda z: z.cast("complex64") * 2j,
}  # fmt: skip
Z = np.array([0.5 + 1.25j, -1.5 + 0.75j, 0.25 - 0.5j])
W = np.array([1.0 - 0.5j, 0.25 + 2.0j, -0.75 + 0.5j])
# PyTorch 2.14, complex128: the gradient of the loss below
EXPECTED = {
    "sigmoid": [0.2271017776 + 0.3885625527j, -0.1083984277 - 0.2893602275j, -0.2064373593 - 0.1510556363j],
    "sinc": [5.635725794 + 76.29526914j, -6.093554501 + 3.727750208j, 1.051122144 + 1.290577183j],
    "exp": [3.75019223 - 0.4912638074j, -0.2402402325 - 0.3397160749j, -0.1583747643 - 1.718790646j],
    "log": [-0.8898551377 + 1.155942055j, -0.3141186786 - 0.2949040238j, -3.171437948 - 0.08571897424j],
    "sqrt": [0.07888740891 + 0.6521244274j, 0.3001077525 + 0.0283316155j, -0.740633754 - 0.2443558501j],
    "sin": [0.1935792344 + 3.926410828j, -1.569905053 - 0.3829015567j, -0.9489803059 - 1.001228938j],
    "cos": [-0.5285985889 + 1.648453195j, 0.3914837765 - 1.509025541j, 0.02187817053 + 0.4821950701j],
    "tan": [0.5154595483 + 0.04386632352j, -0.2164295222 + 0.7068389966j, -0.4131301367 - 0.9360967871j],
    "sinh": [1.13199793 + 0.06376214153j, 1.005797176 - 0.3196296706j, -0.5584216373 - 0.9909905514j],
    "cosh": [1.228539383 - 0.906688538j, -5.923789288 + 4.976303604j, 0.1408633449 - 0.5085568044j],
    "tanh": [-4.197202924 + 1.433900203j, -0.3614139463 - 0.1119606219j, -1.18433739 - 0.9256965087j],
    "asin": [0.8377804514 + 0.7968171509j, 0.5356964611 - 0.1936905248j, -0.583843108 - 0.9667811801j],
    "acos": [-0.5093642727 + 0.5014034921j, -1.754412654 + 1.095644114j, 0.6764762947 + 0.07712075824j],
    "atan": [-1.098016629 + 0.5254958426j, -0.2735231792 - 0.4378193529j, -1.189317189 - 0.8652808649j],
    "asinh": [-0.5419068722 + 1.540803162j, -0.1658144836 - 0.8473861522j, -0.9659363238 - 0.953305694j],
    "acosh": [-0.9027951885 + 0.8645901484j, -0.3618091082 - 0.2148924896j, -1.737658601 + 0.5035778402j],
    "atanh": [0.5955932822 + 0.301847572j, 0.2839282648 + 0.1978669698j, -0.4376862404 - 0.9209903583j],
    "reciprocal": [0.3273606954 - 0.4562712698j, 0.5914074074 + 0.5546666667j, -4.256 + 0.192j],
    "abs": [0.3713906764 + 0.9284766909j, -0.2236067977 + 0.1118033989j, -0.3354101966 + 0.6708203932j],
    "angle": [-0.6896551724 + 0.275862069j, -0.06666666667 - 0.1333333333j, -1.2 - 0.6j],
    "sgn": [0.2744508734 - 0.1097803494j, -0.3405469288 - 0.6810938577j, -2.071083506 - 1.035541753j],
    "conj": [1 + 0.75j, 0.25 + 2.75j, -0.75 - 0j],
    "square": [5.375 - 0.75j, -7.125 + 12.375j, 0.375 - 1.125j],
    "expm1": [3.75019223 - 0.4912638074j, -0.2402402325 - 0.3397160749j, -0.1583747643 - 1.718790646j],
    "log1p": [0.001725155345 + 0.7979298136j, -0.3004297819 + 0.1330468121j, -0.7601396902 - 0.4003492256j],
    "log2": [-1.808070403 + 1.877384194j, -0.9092664499 - 1.337634553j, -5.706789055 - 0.6893519662j],
    "log10": [-0.184780728 + 0.4213478767j, 0.03902665693 + 0.2228181412j, -0.9421261923 + 0.1803786267j],
    "rsqrt": [0.07343699121 - 0.3115904451j, 0.5232265904 - 0.3617055952j, -0.3226226704 - 0.87175845j],
    "prod": [0.908203125 - 0.9375j, 0.810546875 + 0.6640625j, -3.140625 - 0.134765625j],
    "cumprod": [-2.029296875 + 7.515625j, -4.814453125 - 2.0390625j, 1.3125 - 1.072265625j],
    "cumsum": [0.5 + 2.75j, -0.5 + 1j, -0.75 + 1j],
    "pow3": [-5.87109375 - 1.719726562j, -16.55859375 + 15.05566406j, 0.7734375 - 0.298828125j],
    "pow2.5": [2.400922239 - 4.520356603j, 1.392005224 + 2.92971979j, 0.6794923371 - 0.7255897113j],
    "powz": [0.2633960644 - 0.5025483164j, 0.1615123432 + 0.3415924786j, 0.1081261298 - 0.5168869009j],
    "2powz": [1.813250182 + 0.2544648621j, -0.1689228926 - 0.4184572166j, -0.328363614 - 0.9108115964j],
    "real": [1 + 0j, 0.25 + 0j, -0.75 + 0j],
    "imag": [0 + 1j, 0 + 0.25j, 0 - 0.75j],
    "var": [0.75 + 0.75j, -1.25 + 0.25j, 0.5 - 1j],
    "std": [0.2651650429 + 0.2651650429j, -0.4419417382 + 0.08838834765j, 0.1767766953 - 0.3535533906j],
    "mean": [0.3333333333 + 0.3333333333j, 0.3333333333 + 0.3333333333j, 0.3333333333 + 0.3333333333j],
    "norm": [0.2250175802 + 0.5625439505j, -0.6750527406 + 0.3375263703j, 0.1125087901 - 0.2250175802j],
    "norm1": [0.3713906764 + 0.9284766909j, -0.894427191 + 0.4472135955j, 0.4472135955 - 0.894427191j],
    "div": [0.06560334577 - 1.310426832j, 2.459259259 - 1.007407407j, -1.824 + 19.968j],
    "div2": [-0.02 + 0.51j, 0.55 - 0.15j, 0.13 - 0.44j],
    "zabs": [2.545355713 + 5.936431878j, 1.252563729 - 1.661377458j, -0.3288118961 - 0.6166601966j],
    "vdot": [8.2109375 + 24.54882812j, -3.3046875 + 16.33007812j, -0.7421875 + 3.583984375j],
    "real2": [2.40625 + 0.5625j, -3.09375 + 4.6875j, -0.0625 - 0.15625j],
    "polar": [1 + 1.75j, 0.25 - 1.25j, -0.75 - 1j],
    "view": [0 + 3j, 0 + 0.75j, 0 - 2.25j],
    "to128": [3 - 2j, -10 - 0.5j, 0 + 1.5j],
}


def loss_of(y):
    """Return a real loss that every part of a result takes part in."""
    if not y.is_complex():
        return (y * (Tensor(W.real.copy()) if y.ndim else 1)).sum()
    return (y * (Tensor(W) if y.ndim else complex(W[0]))).real.sum() + y.imag.square().sum() * 0.5


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_are_pytorchs(name):
    z = Tensor(Z)
    (found,) = gradient(loss_of(FUNCTIONS[name](z)), [z])
    rtol = 1e-6 if name == "to128" else 1e-8
    np.testing.assert_allclose(found.numpy(), EXPECTED[name], rtol=rtol, atol=1e-8)


def test_products_of_real_and_complex_matrices():
    a, b = Tensor([[1 + 2j, 0.5 - 1j], [-1j, 2.0]], "complex128"), Tensor([[0.5, 1.0], [2.0, -1.0]], "float64")
    x = Tensor([1.5, -0.5], "float64")
    for one in (a, b, x):
        one.requires_grad_()
    ((a @ b @ (x * 1j)).abs() ** 2).sum().backward()
    # PyTorch 2.14
    np.testing.assert_allclose(a.grad.numpy(), [[1 - 1.5j, 14 - 21j], [3.5 - 0.125j, 49 - 1.75j]])
    np.testing.assert_allclose(b.grad.numpy(), [[-11.25, 3.75], [54, -18]])
    np.testing.assert_allclose(x.grad.numpy(), [68.25, -43.5])


def test_gradients_at_zero():
    z = Tensor([0j, 1j], "complex128")
    # PyTorch 2.14
    for make, wanted in ((z.abs(), [0, 1j]), (z.sgn().real, [0, 1]), (z.angle(), [0, -1])):
        assert gradient(make.sum(), [z])[0].tolist() == wanted


def test_gradients_pass_places_and_assignments():
    z = Tensor(Z)
    made = z * 2j
    made[1] = 1.0
    picked = made[[0, 0, 2]].flip(0).cat(z).reshape(2, 3).T
    (found,) = gradient((picked.real * Tensor([1.0, 2.0, 3.0]).unsqueeze(1)).sum(), [z])
    assert found.tolist() == [1 - 10j, 2, 3 - 2j]


def test_gradients_stop_at_the_part_that_was_written():
    z, x = Tensor(Z), Tensor([1.0, 2.0, 3.0])
    made = z * 1
    made.real = x
    by_z, by_x = gradient((made * (1 + 2j)).real.sum() + (made.imag * x).sum(), [z, x])
    assert by_z.tolist() == [-1j, 0, 1j]
    np.testing.assert_allclose(by_x.numpy(), 1 + Z.imag)


def test_a_convolution_has_a_gradient():
    z, kernel = Tensor(np.tile(Z, 2).reshape(1, 1, 6)), Tensor(W.reshape(1, 1, 3))
    by_z, by_kernel = gradient(z.conv1d(kernel).real.sum(), [z, kernel])
    # every element of the kernel meets four neighbours
    windows = np.lib.stride_tricks.sliding_window_view(np.tile(Z, 2), 3)
    np.testing.assert_allclose(by_kernel.numpy().reshape(3), np.conj(windows.sum(0)))
    full = np.convolve(np.ones(4), np.conj(W))
    np.testing.assert_allclose(by_z.numpy().reshape(6), full)


def test_a_complex_loss_needs_a_gradient_of_its_own():
    z = Tensor([1 + 1j])
    with pytest.raises(TypeError, match="a loss is real"):
        gradient((z * z).sum(), [z])
    (found,) = gradient(z * z, [z], Tensor([1j]))
    assert found.tolist() == [1j * (2 - 2j)]
    assert found.dtype is complex64


def test_a_step_of_descent_moves_complex_weights():
    weight = Tensor([2 + 2j], requires_grad=True)
    weight.abs().square().sum().backward()
    assert weight.grad.tolist() == [pytest.approx(4 + 4j)]


def test_second_gradients():
    z = Tensor(Z)
    (first,) = gradient((z**3).real.sum(), [z])
    (second,) = gradient(first.real.sum(), [z])
    # the gradient of Re z^3 is conj(3 z^2); its real part is 3 Re z^2
    np.testing.assert_allclose(second.numpy(), np.conj(6 * Z))
