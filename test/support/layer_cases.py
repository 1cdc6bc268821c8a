"""Layers and functions in which PyTorch and ringup are compared: outputs, gradients by inputs and parameters, buffers.

A case makes a module, or a function, of a package `nn`, which is torch.nn or ringup.nn; `t` makes a constant of it.
Weights are loaded by name, so names and shapes are compared too.
"""

from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from optim_cases import numbers


class Given(NamedTuple):
    """One input: an array, and whether a gradient by it is asked for."""

    array: np.ndarray
    wanted: bool = False


class Case(NamedTuple):
    """What makes a module, and its inputs by position and by name."""

    make: object
    inputs: tuple
    options: dict = MappingProxyType({})
    modes: tuple = ("train",)


def x(*shape, seed=5, scale=2.0):
    return Given(numbers(shape, seed) * scale, True)


def fixed(*shape, seed=6):
    return Given(numbers(shape, seed))


def unit(*shape, seed=7, wanted=False):
    return Given(numbers(shape, seed) * 0.45 + 0.5, wanted)


def classes(*shape, count, seed=8):
    return Given(((numbers(shape, seed) + 1) * 0.5 * count).astype(np.int64) % count)


def signs(*shape, seed=9):
    return Given(np.where(numbers(shape, seed) > 0, 1.0, -1.0))


def bits(*shape, seed=10):
    return Given(numbers(shape, seed) > 0)


def ints(*values):
    return Given(np.array(values, np.int64))


CAUSAL = np.triu(np.ones((4, 4), bool), 1)
PADDED = np.array([[False, False, False, True], [False] * 4])

LAYERS = {
    "linear": Case(lambda nn, t: nn.Linear(4, 3), (x(2, 5, 4),)),
    "linear without bias": Case(lambda nn, t: nn.Linear(4, 3, bias=False), (x(4),)),
    "bilinear": Case(lambda nn, t: nn.Bilinear(3, 4, 2), (x(5, 3), x(5, 4, seed=11))),
    "flatten": Case(lambda nn, t: nn.Sequential(nn.Flatten(), nn.Linear(6, 2), nn.Identity()), (x(2, 3, 2),)),
    "unflatten": Case(lambda nn, t: nn.Unflatten(1, (2, 3)), (x(2, 6),)),
    "perceptron": Case(
        lambda nn, t: nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2), nn.Softmax(dim=1)), (x(4, 3),)
    ),
    # convolutions
    "conv1d": Case(lambda nn, t: nn.Conv1d(4, 6, 3, stride=2, padding=1, groups=2), (x(2, 4, 7),)),
    "conv1d unbatched": Case(lambda nn, t: nn.Conv1d(2, 3, 3, dilation=2), (x(2, 8),)),
    "conv2d": Case(lambda nn, t: nn.Conv2d(2, 3, 3, padding=1), (x(1, 2, 4, 5),)),
    "conv2d strided": Case(
        lambda nn, t: nn.Conv2d(2, 4, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2, bias=False),
        (x(1, 2, 5, 5),),
    ),
    "conv2d same": Case(lambda nn, t: nn.Conv2d(1, 2, (2, 3), padding="same"), (x(1, 1, 4, 4),)),
    "conv2d valid": Case(lambda nn, t: nn.Conv2d(1, 2, 2, padding="valid"), (x(1, 3, 3),)),
    "conv2d reflect": Case(lambda nn, t: nn.Conv2d(1, 2, 3, padding=(1, 2), padding_mode="reflect"), (x(1, 1, 4, 4),)),
    "conv1d same circular": Case(
        lambda nn, t: nn.Conv1d(1, 2, 4, padding="same", padding_mode="circular"), (x(1, 1, 5),)
    ),
    "conv1d replicate": Case(lambda nn, t: nn.Conv1d(1, 1, 3, padding=2, padding_mode="replicate"), (x(1, 1, 4),)),
    "conv3d": Case(lambda nn, t: nn.Conv3d(1, 2, 2, stride=2), (x(1, 1, 4, 3, 4),)),
    "conv_transpose1d": Case(
        lambda nn, t: nn.ConvTranspose1d(4, 2, 3, stride=2, padding=1, output_padding=1, groups=2), (x(1, 4, 4),)
    ),
    "conv_transpose2d": Case(
        lambda nn, t: nn.ConvTranspose2d(2, 3, (2, 3), stride=2, padding=(0, 1), dilation=(2, 1)), (x(1, 2, 3, 2),)
    ),
    "conv_transpose3d": Case(lambda nn, t: nn.ConvTranspose3d(1, 2, 2, bias=False), (x(1, 2, 2, 2),)),
    # norms: two batches, then in use
    "batch_norm1d": Case(lambda nn, t: nn.BatchNorm1d(3), (x(4, 3),), modes=("train", "train", "eval")),
    "batch_norm1d of sequences": Case(
        lambda nn, t: nn.BatchNorm1d(2, momentum=None), (x(3, 2, 4),), modes=("train", "train", "eval")
    ),
    "batch_norm2d": Case(
        lambda nn, t: nn.BatchNorm2d(2, eps=1e-3, momentum=0.3), (x(2, 2, 2, 3),), modes=("train", "eval")
    ),
    "batch_norm2d without statistics": Case(
        lambda nn, t: nn.BatchNorm2d(2, track_running_stats=False, affine=False),
        (x(2, 2, 2, 2),),
        modes=("train", "eval"),
    ),
    "batch_norm3d": Case(lambda nn, t: nn.BatchNorm3d(2), (x(1, 2, 2, 2, 2),), modes=("train", "eval")),
    "instance_norm1d": Case(lambda nn, t: nn.InstanceNorm1d(2), (x(2, 2, 5),), modes=("train", "eval")),
    "instance_norm2d tracked": Case(
        lambda nn, t: nn.InstanceNorm2d(2, affine=True, track_running_stats=True),
        (x(3, 2, 2, 2),),
        modes=("train", "train", "eval"),
    ),
    "instance_norm3d unbatched": Case(lambda nn, t: nn.InstanceNorm3d(2, affine=True), (x(2, 2, 1, 2),)),
    "group_norm": Case(lambda nn, t: nn.GroupNorm(2, 4), (x(2, 4, 3),)),
    "group_norm plain": Case(lambda nn, t: nn.GroupNorm(3, 3, affine=False), (x(1, 3, 2, 2),)),
    "layer_norm": Case(lambda nn, t: nn.LayerNorm(5), (x(3, 5),)),
    "layer_norm over two axes": Case(lambda nn, t: nn.LayerNorm((2, 3), eps=1e-2, bias=False), (x(2, 2, 3),)),
    "rms_norm": Case(lambda nn, t: nn.RMSNorm(4), (x(3, 4),)),
    "rms_norm over two axes": Case(lambda nn, t: nn.RMSNorm((2, 2), eps=1e-3), (x(2, 2, 2),)),
    # tables
    "embedding": Case(lambda nn, t: nn.Embedding(5, 3), (ints([1, 4, 1], [0, 2, 3]),)),
    "embedding padded": Case(lambda nn, t: nn.Embedding(4, 2, padding_idx=-3), (ints(1, 2, 1, 0),)),
    "embedding_bag": Case(lambda nn, t: nn.EmbeddingBag(5, 2), (ints([0, 3], [4, 4]),)),
    "embedding_bag of parts": Case(
        lambda nn, t: nn.EmbeddingBag(5, 2, mode="sum"),
        (ints(0, 3, 4, 1, 1), ints(0, 2, 2)),
    ),
    "embedding_bag means": Case(lambda nn, t: nn.EmbeddingBag(5, 2), (ints(0, 3, 4, 1, 1), ints(0, 2, 2))),
    "embedding_bag greatest": Case(
        lambda nn, t: nn.EmbeddingBag(5, 2, mode="max"),
        (ints(0, 3, 4, 2, 1), ints(0, 2, 2)),
    ),
    "embedding_bag weighted": Case(
        lambda nn, t: nn.EmbeddingBag(4, 2, mode="sum"),
        (ints([0, 3], [1, 2]),),
        {"per_sample_weights": x(2, 2)},
    ),
    # recurrent layers
    "rnn": Case(lambda nn, t: nn.RNN(2, 3, num_layers=2), (x(3, 2, 2),)),
    "rnn relu": Case(
        lambda nn, t: nn.RNN(2, 2, nonlinearity="relu", bias=False, bidirectional=True),
        (x(3, 2), x(2, 2, seed=12)),
    ),
    "lstm": Case(
        lambda nn, t: nn.LSTM(2, 2, num_layers=2, bidirectional=True, batch_first=True),
        (x(2, 3, 2),),
    ),
    "lstm from a state": Case(
        lambda nn, t: Called(nn.LSTM(2, 3), lambda layer, x, h, c: layer(x, (h, c))),
        (x(2, 1, 2), x(1, 1, 3, seed=12), x(1, 1, 3, seed=13)),
    ),
    "gru": Case(lambda nn, t: nn.GRU(3, 2, bidirectional=True), (x(3, 2, 3), x(2, 2, 2, seed=12))),
    "rnn cell": Case(lambda nn, t: nn.RNNCell(3, 2, nonlinearity="relu"), (x(2, 3),)),
    "lstm cell": Case(
        lambda nn, t: Called(nn.LSTMCell(3, 2), lambda cell, x, h, c: cell(x, (h, c))),
        (x(2, 3), x(2, 2, seed=12), x(2, 2, seed=13)),
    ),
    "gru cell": Case(lambda nn, t: nn.GRUCell(3, 2, bias=False), (x(2, 3), x(2, 2, seed=12))),
    # attention
    "attention": Case(
        lambda nn, t: nn.MultiheadAttention(4, 2), (x(3, 2, 4), x(4, 2, 4, seed=12), x(4, 2, 4, seed=13))
    ),
    "attention to itself": Case(
        lambda nn, t: Called(
            nn.MultiheadAttention(4, 2, batch_first=True, bias=False),
            lambda a, x, m, p: a(x, x, x, attn_mask=m, key_padding_mask=p, average_attn_weights=False),
        ),
        (x(2, 4, 4), Given(CAUSAL), Given(PADDED)),
    ),
    "attention without weights": Case(
        lambda nn, t: Called(
            nn.MultiheadAttention(4, 2, batch_first=True),
            lambda a, x, m: a(x, x, x, attn_mask=m, need_weights=False)[:1],
        ),
        (x(2, 3, 4), x(4, 3, 3, seed=14)),
    ),
    "attention of other widths": Case(
        lambda nn, t: nn.MultiheadAttention(4, 2, kdim=3, vdim=2, add_bias_kv=True, add_zero_attn=True),
        (x(3, 4), x(2, 3, seed=12), x(2, 2, seed=13)),
        {"attn_mask": bits(3, 2, seed=15)},
    ),
    "encoder layer": Case(
        lambda nn, t: nn.TransformerEncoderLayer(4, 2, 5, dropout=0.0),
        (x(3, 2, 4),),
    ),
    "encoder": Case(
        lambda nn, t: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(4, 2, 3, 0.0, "gelu", batch_first=True, norm_first=True), 2, nn.LayerNorm(4)
        ),
        (x(2, 4, 4),),
        {"mask": Given(CAUSAL), "src_key_padding_mask": Given(PADDED)},
    ),
    "decoder layer": Case(
        lambda nn, t: nn.TransformerDecoderLayer(4, 2, 3, 0.0, batch_first=True),
        (x(2, 4, 4), x(2, 4, 4, seed=12)),
        {"tgt_mask": Given(CAUSAL), "memory_key_padding_mask": Given(PADDED)},
    ),
    "transformer": Case(
        lambda nn, t: nn.Transformer(4, 2, 1, 1, 3, 0.0),
        (x(3, 1, 4), x(2, 1, 4, seed=12)),
    ),
    # pooling
    "max_pool1d": Case(lambda nn, t: nn.MaxPool1d(3, 2, padding=1), (x(2, 2, 7),)),
    "max_pool2d": Case(lambda nn, t: nn.MaxPool2d((2, 3), stride=1, dilation=(2, 1)), (x(1, 2, 4, 4),)),
    "max_pool2d rounded up": Case(lambda nn, t: nn.MaxPool2d(2, ceil_mode=True), (x(1, 5, 5),)),
    "max_pool3d": Case(lambda nn, t: nn.MaxPool3d(2), (x(1, 1, 2, 4, 4),)),
    "avg_pool1d": Case(lambda nn, t: nn.AvgPool1d(3, 2, 1), (x(1, 2, 6),)),
    "avg_pool2d": Case(
        lambda nn, t: nn.AvgPool2d(3, 2, padding=1, count_include_pad=False, ceil_mode=True), (x(1, 1, 4, 4),)
    ),
    "avg_pool2d over another count": Case(lambda nn, t: nn.AvgPool2d(2, 1, 1, divisor_override=3), (x(1, 1, 3, 3),)),
    "avg_pool3d": Case(lambda nn, t: nn.AvgPool3d(2, ceil_mode=True), (x(1, 1, 3, 2, 2),)),
    "lp_pool1d": Case(lambda nn, t: nn.LPPool1d(2, 2), (x(1, 1, 6),)),
    "lp_pool2d": Case(lambda nn, t: nn.LPPool2d(3, 2), (unit(1, 1, 4, 4, wanted=True),)),
    "adaptive_avg_pool1d": Case(lambda nn, t: nn.AdaptiveAvgPool1d(3), (x(1, 2, 7),)),
    "adaptive_avg_pool2d": Case(lambda nn, t: nn.AdaptiveAvgPool2d((2, None)), (x(1, 2, 5, 3),)),
    "adaptive_avg_pool3d": Case(lambda nn, t: nn.AdaptiveAvgPool3d(1), (x(1, 2, 2, 3, 2),)),
    "adaptive_max_pool1d": Case(lambda nn, t: nn.AdaptiveMaxPool1d(2), (x(1, 2, 6),)),
    "adaptive_max_pool2d": Case(lambda nn, t: nn.AdaptiveMaxPool2d((3, 2)), (x(2, 5, 3),)),
    "adaptive_max_pool3d": Case(lambda nn, t: nn.AdaptiveMaxPool3d(2), (x(1, 1, 2, 3, 2),)),
    # edges and images
    "zero_pad2d": Case(lambda nn, t: nn.ZeroPad2d((1, 0, 2, -1)), (x(1, 1, 3, 2),)),
    "constant_pad1d": Case(lambda nn, t: nn.ConstantPad1d(2, 0.5), (x(1, 2, 2),)),
    "reflection_pad2d": Case(lambda nn, t: nn.ReflectionPad2d((1, 2, 0, 1)), (x(1, 1, 2, 3),)),
    "replication_pad3d": Case(lambda nn, t: nn.ReplicationPad3d(1), (x(1, 1, 1, 2, 2),)),
    "circular_pad1d": Case(lambda nn, t: nn.CircularPad1d((2, 1)), (x(1, 1, 3),)),
    "upsample nearest": Case(lambda nn, t: nn.Upsample(scale_factor=2), (x(1, 2, 3),)),
    "upsample bilinear": Case(lambda nn, t: nn.Upsample((5, 4), mode="bilinear"), (x(1, 1, 3, 2),)),
    "upsample corners": Case(
        lambda nn, t: nn.Upsample(scale_factor=(2, 3), mode="bilinear", align_corners=True), (x(1, 1, 2, 2),)
    ),
    "unfold": Case(lambda nn, t: nn.Unfold((2, 3), dilation=(1, 1), padding=(0, 1), stride=(1, 2)), (x(1, 2, 3, 4),)),
    "pixel_shuffle": Case(lambda nn, t: nn.PixelShuffle(2), (x(1, 4, 2, 3),)),
    "pixel_unshuffle": Case(lambda nn, t: nn.PixelUnshuffle(2), (x(2, 2, 4),)),
    "upsampling nearest": Case(lambda nn, t: nn.UpsamplingNearest2d(4), (x(1, 1, 2, 3),)),
    "upsampling bilinear": Case(lambda nn, t: nn.UpsamplingBilinear2d(scale_factor=2), (x(1, 1, 2, 2),)),
    "fold": Case(lambda nn, t: nn.Fold((4, 5), (2, 3), dilation=(1, 2), padding=(0, 1), stride=(2, 1)), (x(1, 12, 6),)),
    "channel_shuffle": Case(lambda nn, t: nn.ChannelShuffle(2), (x(1, 4, 2),)),
    "local_response_norm": Case(lambda nn, t: nn.LocalResponseNorm(3, alpha=0.5, k=2.0), (x(2, 4, 2),)),
    "softmax2d": Case(lambda nn, t: nn.Softmax2d(), (x(2, 3, 1, 2),)),
    "cosine similarity": Case(lambda nn, t: nn.CosineSimilarity(dim=0), (x(3, 2), x(3, 2, seed=12))),
    "pairwise distance": Case(lambda nn, t: nn.PairwiseDistance(p=1.0, keepdim=True), (x(3, 2), x(3, 2, seed=12))),
    # what does nothing in use
    "dropout in use": Case(
        lambda nn, t: nn.Sequential(nn.Dropout(0.3), nn.Dropout3d(), nn.AlphaDropout(), nn.RReLU()),
        (x(1, 2, 3, 2, 2),),
        modes=("eval",),
    ),
}

ACTIVATIONS = [
    "ReLU", "ReLU6", "SELU", "SiLU", "Mish", "Hardswish", "Hardsigmoid", "Sigmoid", "Tanh", "LogSigmoid", "Softsign",
    "Tanhshrink", "LeakyReLU", "ELU", "CELU", "GELU", "Softplus", "Hardtanh", "Hardshrink", "Softshrink", "PReLU", "GLU",
]  # fmt: skip
LAYERS |= {name: Case(lambda nn, t, name=name: getattr(nn, name)(), (x(3, 4, scale=4.0),)) for name in ACTIVATIONS}
LAYERS |= {
    "LeakyReLU(0.2)": Case(lambda nn, t: nn.LeakyReLU(0.2, inplace=False), (x(5),)),
    "ELU(2)": Case(lambda nn, t: nn.ELU(2.0), (x(5),)),
    "CELU(0.5)": Case(lambda nn, t: nn.CELU(0.5), (x(5),)),
    "GELU tanh": Case(lambda nn, t: nn.GELU(approximate="tanh"), (x(5),)),
    "Softplus(2)": Case(lambda nn, t: nn.Softplus(beta=2.0), (x(5),)),
    "Hardtanh(-0.5, 2)": Case(lambda nn, t: nn.Hardtanh(-0.5, 2.0), (x(5),)),
    "Hardshrink(0.3)": Case(lambda nn, t: nn.Hardshrink(0.3), (x(5),)),
    "Softshrink(0.3)": Case(lambda nn, t: nn.Softshrink(0.3), (x(5),)),
    "Threshold": Case(lambda nn, t: nn.Threshold(0.1, -3.0), (x(5),)),
    "PReLU of channels": Case(lambda nn, t: nn.PReLU(3), (x(2, 3, 2),)),
    "GLU(1)": Case(lambda nn, t: nn.GLU(1), (x(2, 4, 2),)),
    "Softmax": Case(lambda nn, t: nn.Softmax(dim=1), (x(2, 3, 2),)),
    "Softmin": Case(lambda nn, t: nn.Softmin(dim=0), (x(2, 3),)),
    "LogSoftmax": Case(lambda nn, t: nn.LogSoftmax(dim=-1), (x(2, 3),)),
}

REDUCTIONS = ("mean", "sum", "none")
MARGINS = ints([1, 3, -1, 0], [0, 1, 2, 3], [-1, 2, 2, 2])
LOSSES = {
    "L1Loss": (lambda nn, t, r: nn.L1Loss(reduction=r), (x(2, 3), fixed(2, 3))),
    "MSELoss": (lambda nn, t, r: nn.MSELoss(reduction=r), (x(2, 3), fixed(2, 3))),
    "HuberLoss": (lambda nn, t, r: nn.HuberLoss(r, delta=0.7), (x(2, 3), fixed(2, 3))),
    "SmoothL1Loss": (lambda nn, t, r: nn.SmoothL1Loss(reduction=r, beta=0.6), (x(2, 3), fixed(2, 3))),
    "CrossEntropyLoss": (lambda nn, t, r: nn.CrossEntropyLoss(reduction=r), (x(3, 4), classes(3, count=4))),
    "CrossEntropyLoss of all options": (
        lambda nn, t, r: nn.CrossEntropyLoss(
            t([0.5, 2.0, 1.5]), ignore_index=1, reduction=r, label_smoothing=0.2), (x(2, 3, 4), classes(2, 4, count=3)),
    ),
    "CrossEntropyLoss of ignored targets": (
        lambda nn, t, r: nn.CrossEntropyLoss(reduction=r, label_smoothing=0.1), (x(3, 4), ints(2, -100, 0)),
    ),
    "CrossEntropyLoss of probabilities": (
        lambda nn, t, r: nn.CrossEntropyLoss(t([0.5, 2.0, 1.5]), reduction=r, label_smoothing=0.1),
        (x(2, 3, 2), unit(2, 3, 2)),
    ),
    "CrossEntropyLoss of one": (lambda nn, t, r: nn.CrossEntropyLoss(reduction=r), (x(4), ints(2)._replace(array=np.array(2)))),
    "NLLLoss": (
        lambda nn, t, r: nn.NLLLoss(t([0.5, 2.0, 1.5]), ignore_index=0, reduction=r), (x(4, 3), classes(4, count=3)),
    ),
    "BCELoss": (lambda nn, t, r: nn.BCELoss(t([0.5, 2.0, 1.0]), reduction=r), (unit(2, 3, wanted=True), unit(2, 3, seed=16))),
    "BCEWithLogitsLoss": (lambda nn, t, r: nn.BCEWithLogitsLoss(reduction=r), (x(2, 3, scale=30.0), unit(2, 3))),
    "BCEWithLogitsLoss, weighted": (
        lambda nn, t, r: nn.BCEWithLogitsLoss(t([0.5, 2.0, 1.0]), reduction=r, pos_weight=t([3.0, 1.0, 0.2])),
        (x(2, 3), unit(2, 3)),
    ),
    "KLDivLoss": (lambda nn, t, r: nn.KLDivLoss(reduction=r), (x(2, 3), unit(2, 3))),
    "KLDivLoss of logarithms": (
        lambda nn, t, r: nn.KLDivLoss(reduction="batchmean" if r == "mean" else r, log_target=True), (x(2, 3), fixed(2, 3)),
    ),
    "PoissonNLLLoss": (lambda nn, t, r: nn.PoissonNLLLoss(reduction=r, full=True), (x(2, 3), classes(2, 3, count=5))),
    "PoissonNLLLoss of means": (
        lambda nn, t, r: nn.PoissonNLLLoss(log_input=False, reduction=r), (unit(2, 3, wanted=True), fixed(2, 3)),
    ),
    "GaussianNLLLoss": (
        lambda nn, t, r: nn.GaussianNLLLoss(full=True, reduction=r, eps=0.4),
        (x(2, 3), fixed(2, 3), unit(2, 3, wanted=True)),
    ),
    "SoftMarginLoss": (lambda nn, t, r: nn.SoftMarginLoss(reduction=r), (x(2, 3), signs(2, 3))),
    "HingeEmbeddingLoss": (lambda nn, t, r: nn.HingeEmbeddingLoss(0.8, reduction=r), (x(2, 3), signs(2, 3))),
    "MarginRankingLoss": (
        lambda nn, t, r: nn.MarginRankingLoss(0.3, reduction=r), (x(5), x(5, seed=12), signs(5)),
    ),
    "CosineEmbeddingLoss": (
        lambda nn, t, r: nn.CosineEmbeddingLoss(-0.2, reduction=r), (x(4, 3), x(4, 3, seed=12), signs(4)),
    ),
    "TripletMarginLoss": (
        lambda nn, t, r: nn.TripletMarginLoss(2.0, swap=True, reduction=r), (x(4, 3), x(4, 3, seed=12), x(4, 3, seed=13)),
    ),
    "MultiLabelSoftMarginLoss": (
        lambda nn, t, r: nn.MultiLabelSoftMarginLoss(t([0.5, 2.0, 1.5]), reduction=r), (x(2, 3), bits(2, 3)._replace(
            array=np.array([[1.0, 0, 0], [1, 1, 0]]))),
    ),
    # through log_softmax: PyTorch's gradient by log-probabilities takes it for granted
    "CTCLoss": (
        lambda nn, t, r: spelled(nn, nn.CTCLoss(reduction=r)),
        (x(5, 3, 4), ints([1, 1, 3], [2, 3, 0], [3, 0, 0]), ints(5, 4, 3), ints(3, 2, 1)),
    ),
    "CTCLoss of joined targets": (
        lambda nn, t, r: spelled(nn, nn.CTCLoss(2, r, zero_infinity=True)),
        (x(4, 3, 3), ints(0, 1, 1, 1, 1, 0), ints(4, 2, 3), ints(2, 3, 1)),
    ),
    "CTCLoss of one": (
        lambda nn, t, r: spelled(nn, nn.CTCLoss(reduction=r)),
        (x(3, 4), ints(2), Given(np.array(3)), Given(np.array(1))),
    ),
    "MultiMarginLoss": (
        lambda nn, t, r: nn.MultiMarginLoss(2, 0.7, t([0.5, 2.0, 1.5]), reduction=r), (x(4, 3), classes(4, count=3)),
    ),
    "MultiMarginLoss of one row": (lambda nn, t, r: nn.MultiMarginLoss(2, reduction=r), (x(4), ints(2))),
    "MultiLabelMarginLoss": (lambda nn, t, r: nn.MultiLabelMarginLoss(reduction=r), (x(3, 4), MARGINS)),
    "TripletMarginWithDistanceLoss": (
        lambda nn, t, r: nn.TripletMarginWithDistanceLoss(
            distance_function=lambda a, b: (a - b).abs().amax(-1), swap=True, reduction=r),
        (x(3, 4), x(3, 4, seed=12), x(3, 4, seed=13)),
    ),
    "HingeEmbeddingLoss of other targets": (
        lambda nn, t, r: nn.HingeEmbeddingLoss(reduction=r), (x(4), Given(np.array([1.0, -1.0, 0.0, 2.0]))),
    ),
}  # fmt: skip

LOSSES = {
    f"{name}, {reduction}": Case(lambda nn, t, make=make, reduction=reduction: make(nn, t, reduction), inputs)
    for name, (make, inputs) in LOSSES.items()
    for reduction in REDUCTIONS
}

FUNCTIONS = {
    "normalize": Case(lambda nn, t: nn.functional.normalize, (x(2, 3),)),
    "normalize along 0": Case(lambda nn, t: lambda x: nn.functional.normalize(x, p=3.0, dim=0), (x(2, 3),)),
    "cosine_similarity": Case(lambda nn, t: nn.functional.cosine_similarity, (x(2, 3), x(2, 3, seed=12))),
    "pairwise_distance": Case(lambda nn, t: nn.functional.pairwise_distance, (x(2, 3), x(2, 3, seed=12))),
    "attention": Case(
        lambda nn, t: lambda q, k, v: nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3),
        (x(1, 2, 2, 3), x(1, 2, 4, 3, seed=12), x(1, 2, 4, 2, seed=13)),
    ),
    "attention with a mask": Case(
        lambda nn, t: lambda q, k, v, m: nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=m, enable_gqa=True),
        (x(1, 4, 2, 3), x(1, 2, 3, 3, seed=12), x(1, 2, 3, 2, seed=13), Given(np.array([[True, False, True], [True, True, False]]))),
    ),
    "pad": Case(lambda nn, t: lambda x: nn.functional.pad(x, (1, 2, 0, 1), value=0.25), (x(2, 2, 2),)),
    "pools of one axis": Case(
        lambda nn, t: lambda x: (
            nn.functional.max_pool1d(x, 2), nn.functional.avg_pool1d(x, 2, 1), nn.functional.lp_pool1d(x, 2, 3),
            nn.functional.adaptive_avg_pool1d(x, 4), nn.functional.adaptive_max_pool1d(x, 3),
        ),
        (x(1, 2, 7),),
    ),
    "pools of two axes": Case(
        lambda nn, t: lambda x: (
            nn.functional.max_pool2d(x, 2, 1, 1), nn.functional.avg_pool2d(x, (2, 1)),
            nn.functional.lp_pool2d(x, 2, 2), nn.functional.adaptive_avg_pool2d(x, (1, 2)),
            nn.functional.adaptive_max_pool2d(x, 2),
        ),
        (x(1, 4, 3),),
    ),
    "pools of three axes": Case(
        lambda nn, t: lambda x: (
            nn.functional.max_pool3d(x, 2), nn.functional.avg_pool3d(x, (1, 2, 2)),
            nn.functional.adaptive_avg_pool3d(x, 2), nn.functional.adaptive_max_pool3d(x, (1, 1, 2)),
        ),
        (x(1, 2, 3, 2),),
    ),
    "one_hot": Case(lambda nn, t: lambda x, c: x * nn.functional.one_hot(c, 4), (x(3, 4), ints(3, 0, 2))),
    "one_hot of as many classes as there are": Case(lambda nn, t: lambda x, c: x * nn.functional.one_hot(c), (x(3, 4), ints(3, 0, 2))),
    "attention with fewer batches of queries": Case(
        lambda nn, t: lambda q, k, v: nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        (x(4, 2, 3), x(2, 4, 3, 3, seed=12), x(2, 4, 3, 2, seed=13)),
    ),
    "pools with other divisors": Case(
        lambda nn, t: lambda x: (
            nn.functional.avg_pool2d(x, 2, 2, (1,), True, False, 3),
            nn.functional.avg_pool2d(x, (2,), (), 0, divisor_override=-2),
        ),
        (x(1, 4, 3),),
    ),
    "sizes recomputed": Case(
        lambda nn, t: lambda x: (
            nn.functional.interpolate(x, scale_factor=1.7, mode="bilinear", recompute_scale_factor=True),
            nn.functional.interpolate(x, scale_factor=(0.7, 2.5), mode="bicubic", recompute_scale_factor=False),
            nn.functional.upsample(x, scale_factor=2, mode="nearest"), nn.functional.upsample_nearest(x, (5, 7)),
            nn.functional.upsample_bilinear(x, scale_factor=2),
        ),
        (x(1, 1, 4, 3),),
    ),
    **{
        f"grid_sample, {mode}, {edge}, {aligned}": Case(
            lambda nn, t, mode=mode, edge=edge, aligned=aligned: lambda x, grid: nn.functional.grid_sample(
                x, grid, mode, edge, align_corners=aligned
            ),
            # no gradient passes the rounding of nearest
            (x(2, 1, 3, 4), x(2, 2, 2, 2, seed=12, scale=1.3)._replace(wanted=mode != "nearest")),
        )
        for mode in ("bilinear", "nearest", "bicubic")
        for edge in ("zeros", "border", "reflection")
        for aligned in (False, True)
    },
    "grid_sample of volumes": Case(
        lambda nn, t: lambda x, grid: nn.functional.grid_sample(x, grid, align_corners=False),
        (x(1, 2, 2, 3, 3), x(1, 1, 2, 3, 3, seed=12, scale=1.3)),
    ),
    "affine_grid": Case(
        lambda nn, t: lambda theta: (
            nn.functional.affine_grid(theta, (2, 3, 2, 3), align_corners=False),
            nn.functional.affine_grid(theta, [2, 1, 3, 1], align_corners=True),
        ),
        (x(2, 2, 3),),
    ),
    "embedding": Case(
        lambda nn, t: lambda table, i: (
            nn.functional.embedding(i, table, scale_grad_by_freq=True), nn.functional.embedding(i, table, -1, sparse=False),
        ),
        (x(4, 2), ints([0, 3, 0], [0, 1, 3])),
    ),
    "embedding_bag": Case(
        lambda nn, t: lambda table, i, w: tuple(
            nn.functional.embedding_bag(i, table, mode=mode, padding_idx=padding, per_sample_weights=weights)
            for mode, padding, weights in (("mean", 3, None), ("sum", -4, w), ("max", 3, None), ("max", None, None))
        ),
        (x(4, 2), ints([0, 3, 0], [3, 3, 3], [1, 2, 0]), x(3, 3, seed=12)),
    ),
    "embedding_bag of parts": Case(
        lambda nn, t: lambda table, i, w: (
            nn.functional.embedding_bag(i, table, t([0, 2, 2, 5]), include_last_offset=True, mode="max", padding_idx=0),
            nn.functional.embedding_bag(i, table, t([0, 2]), padding_idx=1, scale_grad_by_freq=True),
            nn.functional.embedding_bag(i, table, t([0, 0]), mode="sum", per_sample_weights=w),
        ),
        (x(4, 2), ints(0, 3, 0, 1, 3), x(5, seed=12)),
    ),
    "prelu of one": Case(lambda nn, t: lambda x, w: nn.functional.prelu(x, w), (x(), x(1, seed=12))),
    "pdist": Case(lambda nn, t: lambda x: (nn.functional.pdist(x), nn.functional.pdist(x, 1.0)), (x(4, 3),)),
    "softmax of nothing": Case(lambda nn, t: lambda x: nn.functional.softmax(x, 1), (x(2, 0),)),
}  # fmt: skip


class Called:
    """A module that is called in another way."""

    def __init__(self, module, call):
        self.module, self.call = module, call


def spelled(nn, loss):
    """Return a loss of scores by log-probabilities."""
    return lambda scores, *rest: loss(nn.functional.log_softmax(scores, -1), *rest)


def start(name, shape, seed):
    """Return the value that a parameter or buffer of that name begins with."""
    made = numbers(tuple(shape), seed)
    return made * 0.4 + 1.0 if name.endswith("running_var") else made * 0.8


def run(nn, tensor, case):
    """Return flat lists of outputs, gradients and buffers. `tensor(array, wanted)` makes one of f64 or integers."""
    made = case.make(nn, lambda values: tensor(np.array(values), False))
    module, call = (made.module, made.call) if isinstance(made, Called) else (made, None)
    is_module = hasattr(module, "state_dict")
    if is_module:
        module.double()
        own = [
            (name, value) for name, value in module.state_dict().items() if not name.endswith(("tracked", "weight_of"))
        ]
        given = {name: start(name, value.shape, 20 + i) for i, (name, value) in enumerate(own)}
        weights = {"weight", "pos_weight"} & {name for name, _ in module.named_buffers()}
        module.load_state_dict(
            {name: tensor(one, False) for name, one in given.items() if name not in weights}, strict=False
        )
    inputs = [tensor(*one) for one in case.inputs]
    options = {name: tensor(*one) for name, one in case.options.items()}
    found = {}
    for turn, mode in enumerate(case.modes):
        if is_module:
            module.train(mode == "train")
            module.zero_grad()
        for one in [*inputs, *options.values()]:
            one.grad = None
        # another batch each time
        now = [one * (1 + 0.5 * turn) if given.wanted else one for one, given in zip(inputs, case.inputs, strict=True)]
        result = call(module, *now, **options) if call else module(*now, **options)
        outputs = flattened(result)
        loss = sum((one * tensor(numbers(tuple(one.shape), 40 + i), False)).sum() for i, one in enumerate(outputs))
        has_slopes = any(one.wanted for one in case.inputs) or (is_module and any(True for _ in module.parameters()))
        if has_slopes:
            loss.backward()
        about = {f"output {i}": one for i, one in enumerate(outputs)}
        about |= {f"input {i}": one.grad for i, one in enumerate([*inputs, *options.values()])}
        if is_module:
            about |= {f"slope of {name}": one.grad for name, one in module.named_parameters()}
            about |= {f"buffer {name}": one for name, one in module.named_buffers()}
        found |= {f"{turn} {name}": flat(one) for name, one in about.items() if one is not None}
    return found


def flattened(result):
    """Return the tensors of nested tuples."""
    if isinstance(result, (tuple, list)):
        return [one for part in result for one in flattened(part)]
    return [] if result is None else [result]


def flat(value):
    return [float(one) for one in value.detach().numpy().ravel()]
