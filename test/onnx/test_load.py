"""Loading: what a model holds, what is an error, what the host works out without a card."""

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from ringup import SGD, Size, Tensor, gradient
from ringup.errors import CompileError, NotSupported
from ringup.onnx import load

ROOT = Path(__file__).resolve().parents[2]


def parsed(text, opset=17, head=""):
    """Return a model from onnx's text of a graph."""
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}{head}]>\n{text}')


PERCEPTRON = """mlp (float[N, 3] x) => (float[N, 2] y)
<float[3, 4] w1 = {0.1, -0.2, 0.3, 0.4, 0.5, -0.6, 0.7, 0.8, -0.9, 1, 1.1, 1.2}, float[4] b1 = {0.1, 0.2, 0.3, 0.4},
 float[4, 2] w2 = {1, 2, 3, -4, 5, 6, -7, 8}>
{ h = MatMul(x, w1)  s = Add(h, b1)  r = Relu(s)  y = MatMul(r, w2) }"""


@pytest.fixture
def x():
    return np.random.default_rng(5).standard_normal((5, 3)).astype(np.float32)


def test_a_model_says_what_goes_in_and_out():
    model = load(parsed(PERCEPTRON))
    assert [(one.name, one.dtype.name, one.shape) for one in model.inputs] == [("x", "float32", ("N", 3))]
    assert [(one.name, one.dtype.name, one.shape) for one in model.outputs] == [("y", "float32", ("N", 2))]
    assert model.opset == {"": 17}
    assert {name: one.shape for name, one in model.weights.items()} == {"w1": (3, 4), "b1": (4,), "w2": (4, 2)}
    assert repr(model) == "Model(mlp: x float32[N, 3] -> y float32[N, 2]; 3 weights)"


def test_inputs_go_in_by_position_by_name_and_as_tensors(x, evaluator):
    model = load(parsed(PERCEPTRON))
    (wanted,) = ReferenceEvaluator(parsed(PERCEPTRON)).run(None, {"x": x})
    for made in (model(x), model(x=x), model(Tensor(x)), model(x.tolist())):
        np.testing.assert_allclose(made["y"].numpy(), wanted, rtol=1e-5, atol=1e-6)


def test_a_file_its_bytes_and_its_proto_are_the_same(x, evaluator, tmp_path):
    proto = parsed(PERCEPTRON)
    onnx.save(proto, tmp_path / "m.onnx")
    made = [load(one)(x)["y"].tolist() for one in (proto, proto.SerializeToString(), tmp_path / "m.onnx")]
    made.append(load(str(tmp_path / "m.onnx"))(x)["y"].tolist())
    assert all(one == made[0] for one in made)


def test_weights_beside_the_file_are_found(x, evaluator, tmp_path):
    proto = parsed(PERCEPTRON)
    wanted = load(proto)(x)["y"].tolist()
    arrays = [(onnx.numpy_helper.to_array(one), one.name) for one in proto.graph.initializer]
    # raw bytes alone go to other files
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(*one) for one in arrays)
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    assert load(tmp_path / "m.onnx")(x)["y"].tolist() == wanted
    (tmp_path / "w.bin").unlink()
    with pytest.raises(CompileError, match=r"m\.onnx: its weights in other files cannot be read"):
        load(tmp_path / "m.onnx")


def test_a_damaged_file_is_one_error():
    data, draw = parsed(PERCEPTRON).SerializeToString(), random.Random(3)
    for broken in (b"", b"not a model", data[: len(data) // 2], bytes(draw.randbytes(200))):
        with pytest.raises(CompileError, match="not a model of ONNX, or a damaged one"):
            load(broken)


def test_a_file_with_bytes_changed_loads_or_is_a_known_error(x, evaluator):
    data, draw = parsed(PERCEPTRON).SerializeToString(), random.Random(8)
    refused = 0
    for _ in range(150):
        changed = bytearray(data)
        changed[draw.randrange(len(data))] = draw.randrange(256)
        try:
            load(bytes(changed))
        except (CompileError, NotSupported):
            refused += 1
    assert 30 < refused < 150


def test_all_operators_that_are_missing_are_named_at_once():
    text = """m (float[2] x) => (float[2] y) { a = Foo(x)  b = com.example.Bar(a)  c = Foo(b)  y = Abs(c) }"""
    with pytest.raises(
        NotSupported,
        match=r"operators that are missing here: Foo \(ai\.onnx, opset 17\), Bar \(com\.example, opset 3\)$",
    ):
        load(parsed(text, head=', "com.example": 3'))


def test_a_type_that_tensors_have_not_is_named():
    text = """m (float[2] x) => (complex64[2] y) <complex64[1] w = {1, 1}> { y = Mul(x, w) }"""
    proto = parsed("""m (float[2] x) => (float[2] y) { y = Cast<to = 8>(x) }""")
    with pytest.raises(NotSupported, match=r"node that makes 'y' \(Cast, opset 17\) is of ONNX's type string"):
        load(proto)(np.ones(2, np.float32))
    assert "complex64" in text


def test_an_operator_that_fails_is_named():
    model = load(parsed("""m (float[N, 3] x, float[M, 3] z) => (float[N, 3] y) { y = Add(x, z) }"""))
    with pytest.raises(
        CompileError, match=r"node that makes 'y' \(Add, opset 17\): shapes \[2, 3\] and \[5, 3\] do not"
    ):
        model(np.ones((2, 3), np.float32), np.ones((5, 3), np.float32))


@pytest.mark.parametrize(
    ("given", "named", "error", "said"),
    [
        ((np.ones((2, 3)),), {}, TypeError, "mlp: x is float32, not float64"),
        ((np.ones((2, 4), np.float32),), {}, ValueError, r"mlp: x has the shape \[N, 3\], not \[2, 4\]"),
        ((), {}, TypeError, "mlp needs x"),
        ((1, 2), {}, TypeError, r"mlp takes 1 inputs \(x\), not 2"),
        ((), {"z": 1}, TypeError, "mlp: z is no input; there are x"),
    ],
)
def test_wrong_inputs_are_refused(given, named, error, said):
    with pytest.raises(error, match=said):
        load(parsed(PERCEPTRON))(*given, **named)


SHAPES = """m (float[A, B, C] x) => (float[A, D] y)
<int64[1] first = {0}, int64[1] rest = {-1}, int64[1] two = {2}>
{ s = Shape(x)  a = Gather(s, first)  b = Mul(a, two)  c = Div(b, two)  w = Concat<axis = 0>(c, rest)
  y = Reshape(x, w) }"""


def test_shapes_that_follow_from_shapes_need_no_card():
    made = load(parsed(SHAPES))(np.zeros((2, 3, 4), np.float32))["y"]
    assert made.shape == (2, 12)


SQUEEZED = """m (float[N, 1] x) => (float y) <int64[1] first = {0}, int64[1] one = {1}> {
  s = Shape(x)  n = Gather(s, first)  d = Equal(n, one)  e = Cast<to = 9>(n)  c = And(d, e)
  y = If(c)<then_branch = a () => (float u) { u = Squeeze(x, first) }, else_branch = b () => (float u) { u = Identity(x) }> }"""


def test_symbolic_sizes_pass_through(evaluator):
    n = Size("n", 1, 8)
    values = np.arange(24, dtype=np.float32).reshape(8, 3)
    x = Tensor(values).shrink([(0, n), None])
    made = load(parsed(PERCEPTRON), sizes={"N": (1, 8)})(x)["y"]
    assert made.shape[0] == n
    (wanted,) = ReferenceEvaluator(parsed(PERCEPTRON)).run(None, {"x": values[:5]})
    np.testing.assert_allclose(made.numpy(n=5), wanted, rtol=1e-5)
    flat = load(parsed(SHAPES.replace("Div(b, two)", "Sub(b, a)")))(x.unsqueeze(2))["y"]
    assert flat.shape == (n, 3)


def test_a_branch_by_an_open_size_is_refused_unless_its_bounds_decide():
    model = load(parsed(SQUEEZED))
    x = np.arange(4, dtype=np.float32).reshape(4, 1)
    with pytest.raises(NotSupported, match=r"\(If, opset 17\): the host has to know a value that depends on sizes"):
        model(Tensor(x).shrink([(0, Size("n", 1, 4)), None]))
    n = Size("n", 2, 4)
    assert model(Tensor(x).shrink([(0, n), None]))["y"].shape == (n, 1)
    assert model(x[:1])["y"].shape == (1,)


def test_bounds_of_a_symbol_are_a_size():
    model = load(parsed(PERCEPTRON), sizes={"N": (1, 8)})
    assert model.inputs[0].shape == (Size("N", 1, 8), 3)


def test_weights_are_trained(x, evaluator):
    model = load(parsed(PERCEPTRON))
    weights = model.parameters()
    assert all(one.requires_grad for one in weights)
    loss = model(x)["y"].square().mean()
    slope = gradient(loss, [model.weights["w2"]])[0].numpy()
    # the derivative of the mean of squares by hand
    hidden = np.maximum(x @ model.weights["w1"].numpy() + model.weights["b1"].numpy(), 0)
    wanted = hidden.T @ (2 * (hidden @ model.weights["w2"].numpy()) / 10)
    np.testing.assert_allclose(slope, wanted, rtol=1e-4)


def test_an_optimiser_lowers_the_loss(x, evaluator):
    model = load(parsed(PERCEPTRON))
    optimiser, losses = SGD(model.parameters(), 0.002), []
    for _ in range(4):
        optimiser.zero_grad()
        loss = (model(x)["y"] - 1).square().mean().backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] / 2


BRANCHES = """m (float[2] x, bool c) => (float[2] y) {
  y = If(c)<then_branch = a () => (float[2] u) <float[2] w = {1, 2}> { u = Mul(x, w) },
            else_branch = b () => (float[2] u) <float[2] w = {3, 4}> { u = Mul(x, w) }> }"""


def test_weights_of_branches_are_weights(evaluator):
    model = load(parsed(BRANCHES))
    assert {name: one.tolist() for name, one in model.weights.items()} == {"w": [1, 2], "w.2": [3, 4]}
    made = [model(np.array([5, 6], np.float32), np.array(c))["y"].tolist() for c in (True, False)]
    assert made == [[5, 12], [15, 24]]


def test_an_operator_set_newer_than_the_package_is_refused():
    with pytest.raises(NotSupported, match=r"opset 999; the onnx package that is installed knows \d+ and older"):
        load(parsed("m (float[2] x) => (float[2] y) { y = Abs(x) }", 999))


def test_a_name_that_nothing_makes_is_one_error():
    with pytest.raises(
        CompileError, match="damaged model of ONNX: node 'Abs' reads 'z', which nothing makes before it"
    ):
        load(parsed("m (float[2] x) => (float[2] y) { y = Abs(z) }"))


def test_functions_of_a_model_are_expanded(x, evaluator):
    text = """
<ir_version: 8, opset_import: ["": 17, "own": 1]>
m (float[N, 3] x) => (float[N, 3] y) { y = own.twice_squared(x) }
<domain: "own", opset_import: ["": 17]>
twice_squared (a) => (b) { c = Mul(a, a)  b = Add(c, c) }"""
    np.testing.assert_allclose(load(onnx.parser.parse_model(text))(x)["y"].numpy(), 2 * x * x, rtol=1e-6)


def test_a_constant_is_the_default_of_an_input_of_its_name(x, evaluator):
    proto = parsed(PERCEPTRON)
    proto.graph.input.append(onnx.helper.make_tensor_value_info("b1", onnx.TensorProto.FLOAT, [4]))
    model = load(proto)
    assert [one.name for one in model.inputs] == ["x"]
    np.testing.assert_allclose(model(x)["y"].numpy(), load(parsed(PERCEPTRON))(x)["y"].numpy())


# onnx.reference 1.23
@pytest.mark.parametrize(
    ("opset", "text", "wanted"),
    [
        (11, "y = Softmax<axis = 1>(x)", lambda x: _softmax(x.reshape(2, 6)).reshape(2, 3, 2)),
        (13, "y = Softmax<axis = 1>(x)", lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True)),
        (6, "y = Clip<min = -0.5, max = 0.5>(x)", lambda x: np.clip(x, -0.5, 0.5)),
        (9, "y = Slice<starts = [0, 1], ends = [9, 3], axes = [0, 1]>(x)", lambda x: x[:, 1:3]),
        (11, "y = ReduceSum<axes = [1], keepdims = 0>(x)", lambda x: x.sum(1)),
        (11, "y = Unsqueeze<axes = [0, 4]>(x)", lambda x: x[None, ..., None]),
        (2, "y = Split<axis = 1, split = [1, 2]>(x)", lambda x: x[:, :1]),
        (6, "y, m = Dropout(x)", lambda x: x),
        (5, "y = Reshape<shape = [0, -1]>(x)", lambda x: x.reshape(2, 6)),
    ],
)
def test_older_versions_of_operators(opset, text, wanted, evaluator):
    draw = np.random.default_rng(2).standard_normal((2, 3, 2)).astype(np.float32)
    text = text.replace("y = Split", "y, z = Split") if "Split" in text else text
    made = load(parsed(f"m (float[2, 3, 2] x) => (float y) {{ {text} }}", opset))(draw)["y"]
    np.testing.assert_allclose(made.numpy(), wanted(draw), rtol=1e-5)


def _softmax(x):
    return np.exp(x) / np.exp(x).sum(-1, keepdims=True)


def test_a_resized_picture_of_opset_10(evaluator):
    text = """m (float[1, 1, 2, 2] x) => (float y) <float[4] s = {1, 1, 2, 2}> { y = Resize<mode = "nearest">(x, s) }"""
    made = load(parsed(text, 10))(np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2))["y"]
    assert made.tolist() == [[[[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 3, 3], [2, 2, 3, 3]]]]


def test_regions_are_pooled_to_their_greatest(evaluator):
    text = """m (float[1, 1, 4, 4] x, float[2, 5] r) => (float y) { y = MaxRoiPool<pooled_shape = [2, 2]>(x, r) }"""
    regions = np.array([[0, 0, 0, 3, 3], [0, 1, 1, 2, 2]], np.float32)
    made = load(parsed(text))(np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4), regions)["y"]
    # by hand: quarters of the whole, and the four pixels in the middle
    assert made.tolist() == [[[[5, 7], [13, 15]]], [[[5, 6], [9, 10]]]]


def test_the_norm_of_whole_channels(evaluator):
    text = """m (float[1, 2, 2, 1] x) => (float y) { y = GlobalLpPool<p = 2>(x) }"""
    made = load(parsed(text))(np.array([3, 4, 6, 8], np.float32).reshape(1, 2, 2, 1))["y"]
    assert made.tolist() == [[[[5]], [[10]]]]


def test_random_numbers_have_their_shares(evaluator):
    text = """m (float[4000] p, float r, bool t) => (float b, float d, bool k, float u, float n, int32 c)
    { b = Bernoulli(p)  d, k = Dropout(p, r, t)  u = RandomUniformLike<low = 2.0, high = 4.0>(p)
      n = RandomNormalLike<mean = 3.0, scale = 2.0>(p)  l = Constant<value = float[1, 2] {0, 1.0986123}>()
      c = Multinomial<sample_size = 4000>(l) }"""
    made = load(parsed(text))(np.full(4000, 0.25, np.float32), np.float32(0.75), np.array(True))
    b, d, k, u, n, c = (one.numpy() for one in made.values())
    assert set(b.tolist()) == {0, 1}
    assert abs(b.mean() - 0.25) < 0.03
    np.testing.assert_allclose(d, np.where(k, 1.0, 0.0), rtol=1e-6)
    assert abs(k.mean() - 0.25) < 0.03
    assert 2 <= u.min() < u.max() < 4
    assert abs(u.mean() - 3) < 0.05
    assert abs(n.mean() - 3) < 0.15
    assert abs(n.std() - 2) < 0.1
    # e to the power of the second is 3
    assert c.shape == (1, 4000)
    assert abs(c.mean() - 0.75) < 0.03


def test_a_seed_draws_the_same_again(evaluator):
    text = """m () => (float[9] u, float[9] n)
    { u = RandomUniform<shape = [9], seed = 7.0>()  n = RandomNormal<shape = [9], seed = 7.0>() }"""
    first, second = ([one.tolist() for one in load(parsed(text))().values()] for _ in range(2))
    assert first == second
    assert len({*first[0], *first[1]}) == 18


def test_the_package_is_imported_on_use_only():
    code = "import sys, ringup, ringup.onnx; assert 'onnx' not in sys.modules; ringup.onnx.load; print('fine')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd="/")
    assert done.stdout == "fine\n", done.stderr


def test_it_is_found_from_the_folder_of_a_checkout(tmp_path):
    (tmp_path / "m.onnx").write_bytes(parsed(PERCEPTRON).SerializeToString())
    code = "import sys, ringup; print(ringup.onnx.load(sys.argv[1]).inputs[0].name)"
    command = [sys.executable, "-c", code, str(tmp_path / "m.onnx")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stdout == "x\n", done.stderr


def test_a_model_runs_on_a_virtual_card(x):
    import ringup

    text = """m (float[1, 2, 6, 6] x) => (float y) <float[3, 2, 3, 3] w, float[3] b> {
    c = Conv<pads = [1, 1, 1, 1], strides = [2, 2]>(x, w, b)  r = Relu(c)  g = GlobalAveragePool(r)
    f = Flatten(g)  y = Softmax(f) }"""
    proto, draw = parsed(text), np.random.default_rng(4)
    arrays = {"w": draw.standard_normal((3, 2, 3, 3)), "b": draw.standard_normal(3)}
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(
        onnx.numpy_helper.from_array(one.astype(np.float32), name) for name, one in arrays.items()
    )
    picture = draw.standard_normal((1, 2, 6, 6)).astype(np.float32)
    (wanted,) = ReferenceEvaluator(proto).run(None, {"x": picture})
    with ringup.device("virtual:navi31"):
        made = load(proto)(picture)["y"].numpy()
    np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-6)
