"""Layers and losses compute their formulas."""

import math

import numpy as np
import pytest

from ringup.compiler.graph.nodes import Op
from ringup.compiler.tensor import Tensor, rotary_angles

RNG = np.random.default_rng(8)


def normal(*shape, kind="float64"):
    return RNG.normal(size=shape).astype(kind)


def softmax(x, axis=-1):
    raised = np.exp(x - x.max(axis, keepdims=True))
    return raised / raised.sum(axis, keepdims=True)


def normalised(x, axes, eps=1e-5):
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + eps)


@pytest.mark.parametrize("kind", ["float64", "float32", "float16"])
def test_normalisation(kind):
    x, w, b = normal(4, 6, 5, kind=kind), normal(5, kind=kind), normal(5, kind=kind)
    wide = x.astype(np.float64)
    tolerance = {"float64": 1e-12, "float32": 1e-5, "float16": 4e-3}[kind]

    def close(found, expected):
        assert found.dtype.name == kind
        np.testing.assert_allclose(found.numpy(), expected, rtol=tolerance, atol=tolerance)

    close(Tensor(x).layer_norm(Tensor(w), Tensor(b)), normalised(wide, -1) * w + b)
    close(Tensor(x).layer_norm(axes=(1, 2)), normalised(wide, (1, 2)))
    close(Tensor(x).rms_norm(Tensor(w)), wide / np.sqrt((wide**2).mean(-1, keepdims=True) + 1e-6) * w)
    c, d = normal(6, kind=kind), normal(6, kind=kind)
    groups = normalised(wide.reshape(4, 3, 2, 5), (2, 3)).reshape(x.shape)
    close(Tensor(x).group_norm(3, Tensor(c), Tensor(d)), groups * c[:, None] + d[:, None])
    close(Tensor(x).instance_norm(), normalised(wide, -1))
    close(Tensor(x).batch_norm(weight=Tensor(c), bias=Tensor(d)), normalised(wide, (0, 2)) * c[:, None] + d[:, None])
    m, v = normal(6, kind=kind), np.abs(normal(6, kind=kind)) + 0.5
    close(Tensor(x).batch_norm(Tensor(m), Tensor(v)), (wide - m[:, None]) / np.sqrt(v[:, None].astype(float) + 1e-5))
    with pytest.raises(ValueError, match="4 groups"):
        Tensor(x).group_norm(4)


def attention(q, k, v, keep=None, add=0.0):
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1]) + add
    scores = scores if keep is None else np.where(keep, scores, -np.inf)
    with np.errstate(invalid="ignore"):
        return np.nan_to_num(softmax(scores)) @ v


def test_attention():
    q, k, v = normal(2, 3, 4, 8), normal(2, 3, 6, 8), normal(2, 3, 6, 5)
    a, b, c = Tensor(q), Tensor(k), Tensor(v)
    np.testing.assert_allclose(a.scaled_dot_product_attention(b, c).numpy(), attention(q, k, v))
    last_sees_all = np.tri(4, 6, 2, bool)
    np.testing.assert_allclose(
        a.scaled_dot_product_attention(b, c, causal=True).numpy(), attention(q, k, v, last_sees_all)
    )
    np.testing.assert_allclose(
        a.scaled_dot_product_attention(b, c, causal=True, start=0).numpy(), attention(q, k, v, np.tri(4, 6, 0, bool))
    )
    keep = RNG.random((2, 1, 4, 6)) > 0.4
    # One row sees nothing.
    keep[0, 0, 1] = False
    found = a.scaled_dot_product_attention(b, c, Tensor(keep)).numpy()
    np.testing.assert_allclose(found, attention(q, k, v, keep))
    assert not found[0, :, 1].any()
    add = normal(4, 6)
    np.testing.assert_allclose(
        a.scaled_dot_product_attention(b, c, Tensor(add), scale=1 / math.sqrt(8)).numpy(), attention(q, k, v, add=add)
    )
    many = normal(2, 6, 4, 8)
    repeated = [np.repeat(one, 2, 1) for one in (k, v)]
    np.testing.assert_allclose(
        Tensor(many).scaled_dot_product_attention(b, c, grouped=True, causal=True).numpy(),
        attention(many, *repeated, last_sees_all),
    )
    np.testing.assert_allclose(
        Tensor(many).scaled_dot_product_attention(b, c, Tensor(keep), grouped=True).numpy(),
        attention(many, *repeated, keep),
    )
    with pytest.raises(ValueError, match="4 heads of queries and 3 of keys"):
        Tensor(normal(2, 4, 4, 8)).scaled_dot_product_attention(b, c, grouped=True)
    with pytest.raises(ValueError, match=r"attention of q"):
        a.scaled_dot_product_attention(c, b)


def test_attention_in_f16_keeps_scores_in_f32():
    q, k, v = (normal(1, 2, 16, 8, kind="float16") for _ in range(3))
    made = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), causal=True)
    assert made.dtype.name == "float16"
    assert all(node.dtype.name == "float32" for node in made.node.ordered() if node.op is Op.REDUCE)
    expected = attention(*(one.astype(np.float64) for one in (q, k, v)), np.tri(16, dtype=bool))
    np.testing.assert_allclose(made.numpy(), expected, atol=2e-3)


def test_attention_without_a_mask_is_the_softmax_chain_between_two_contractions():
    q = Tensor(normal(1, 2, 8, 4, kind="float16"))
    for causal in (False, True):
        made = q.scaled_dot_product_attention(q, q, causal=causal)
        ops = [
            node.op
            for node in made.node.ordered()
            if node.dtype.name == "float32" and node.op not in (Op.EXPAND, Op.RESHAPE, Op.CONST, Op.BITCAST, Op.CAST)
        ]
        masked = [Op.WHERE] if causal else []
        assert ops == [
            Op.MUL,
            Op.REDUCE,
            Op.MUL,
            *masked,
            Op.REDUCE,
            Op.SUB,
            Op.MUL,
            Op.EXP2,
            Op.REDUCE,
            Op.DIV,
            Op.MUL,
            Op.REDUCE,
        ]
    few = Tensor(normal(1, 1, 2, 4))
    # The first four rows see nothing.
    late = Tensor(normal(1, 1, 6, 4)).scaled_dot_product_attention(few, few, causal=True).numpy()
    assert not late[0, 0, :4].any()
    assert late[0, 0, 4:].all()


def test_softmax_is_max_sub_exp2_sum_div():
    ops = [
        node.op
        for node in Tensor(normal(3, 4, kind="float32")).softmax().node.ordered()
        if node.op not in (Op.EXPAND, Op.RESHAPE, Op.CONST, Op.BITCAST)
    ]
    assert ops == [Op.BUFFER, Op.REDUCE, Op.SUB, Op.MUL, Op.EXP2, Op.REDUCE, Op.DIV]


def test_rotary_positions():
    x = normal(2, 3, 5, 8)
    c, s = rotary_angles(Tensor.arange(5), 8)
    angles = np.arange(5)[:, None] * 10000.0 ** (-2 * np.arange(4) / 8)
    np.testing.assert_allclose(c.numpy(), np.cos(angles), atol=1e-6)
    np.testing.assert_allclose(s.numpy(), np.sin(angles), atol=1e-6)
    cosine, sine = np.cos(angles), np.sin(angles)
    a, b = x[..., :4], x[..., 4:]
    expected = np.concatenate([a * cosine - b * sine, b * cosine + a * sine], -1)
    np.testing.assert_allclose(Tensor(x).rotary(Tensor(cosine), Tensor(sine)).numpy(), expected)
    a, b = x[..., ::2], x[..., 1::2]
    expected = np.stack([a * cosine - b * sine, b * cosine + a * sine], -1).reshape(x.shape)
    np.testing.assert_allclose(Tensor(x).rotary(Tensor(cosine), Tensor(sine), interleaved=True).numpy(), expected)
    with pytest.raises(ValueError, match="half of it for both"):
        Tensor(x).rotary(Tensor(cosine[:, :2]), Tensor(sine[:, :2]))


def test_losses():
    x, classes = normal(5, 4), np.array([0, 3, 1, 1, 2])
    logs = np.log(softmax(x))
    picked = -logs[np.arange(5), classes]
    t, target = Tensor(x), Tensor(classes)
    for how, expected in (("mean", picked.mean()), ("sum", picked.sum()), ("none", picked)):
        np.testing.assert_allclose(t.cross_entropy(target, reduction=how).numpy(), expected)
        np.testing.assert_allclose(t.log_softmax().nll_loss(target, reduction=how).numpy(), expected)
    np.testing.assert_allclose(Tensor(x.T.copy()).cross_entropy(target, axis=0).item(), picked.mean())
    smooth = picked * 0.9 - logs.mean(1) * 0.1
    np.testing.assert_allclose(t.cross_entropy(target, smoothing=0.1).item(), smooth.mean())
    np.testing.assert_allclose(t.cross_entropy(target, ignore=1).item(), picked[classes != 1].mean())
    p = softmax(normal(5, 4))
    np.testing.assert_allclose(t.cross_entropy(Tensor(p)).item(), -(p * logs).sum(1).mean())
    y = normal(5, 4)
    np.testing.assert_allclose(t.mse_loss(Tensor(y)).item(), ((x - y) ** 2).mean())
    np.testing.assert_allclose(t.l1_loss(y).item(), np.abs(x - y).mean())
    apart = np.abs(x - y)
    np.testing.assert_allclose(t.huber_loss(y).item(), np.where(apart < 1, apart**2 / 2, apart - 0.5).mean())
    q, wanted = 1 / (1 + np.exp(-x)), (y > 0).astype(float)
    bce = -(wanted * np.log(q) + (1 - wanted) * np.log(1 - q))
    np.testing.assert_allclose(t.bce_with_logits_loss(Tensor(wanted)).item(), bce.mean())
    np.testing.assert_allclose(t.sigmoid().bce_loss(Tensor(wanted)).item(), bce.mean())
    np.testing.assert_allclose(Tensor(logs).kl_div(Tensor(p), reduction="sum").item(), (p * (np.log(p) - logs)).sum())
    assert Tensor([0.0, 1.0]).bce_loss(Tensor([1.0, 0.0])).item() == 100
    with pytest.raises(ValueError, match="not reduced by 'no'"):
        t.mse_loss(y, reduction="no")
    with pytest.raises(ValueError, match="that axis less"):
        t.cross_entropy(Tensor([1, 2]))
