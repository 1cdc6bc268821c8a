"""Graphs of tensors to measure compilers with. The same statements build them in ringup and in tinygrad, which loads
this file too.

`Kit` translates names that differ between the two. Weights are empty memory: no graph here is run. Imports nothing of
ringup.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

T = Any  # a tensor of either language


class Kit(NamedTuple):
    """A tensor language: `empty` makes memory of (sizes, type), `layer_norm` normalises the last axis, `cat` joins
    along an axis.

    `cross_entropy` is the mean loss of logits and classes; `gradients` are those of a loss by some weights; `step`
    returns the results of an AdamW step for weights and a loss.
    """

    empty: Callable[[Sequence[int], str], T]
    layer_norm: Callable[[T], T]
    cat: Callable[[T, T, int], T]
    cross_entropy: Callable[[T, T], T]
    gradients: Callable[[T, Sequence[T]], Sequence[T]]
    weight: Callable[[Sequence[int]], T]
    step: Callable[[T, Sequence[T]], Sequence[T]]


class Maker:
    """Builds graphs with one kit."""

    def __init__(self, kit: Kit) -> None:
        self.kit = kit

    def new(self, *sizes: int, dtype: str = "float32") -> T:
        """Return an input or a weight."""
        return self.kit.empty(sizes, dtype)

    def matmul(self, size: int = 1024, dtype: str = "float32") -> T:
        """Return a product of two square matrices."""
        return self.new(size, size, dtype=dtype) @ self.new(size, size, dtype=dtype)

    def softmax(self) -> T:
        """Return the softmax of 1024 rows of 1024."""
        return self.new(1024, 1024).softmax(-1)

    def layer_norm(self) -> T:
        """Return 1024 rows of 1024, normalised, scaled and shifted."""
        return self.kit.layer_norm(self.new(1024, 1024)) * self.new(1024) + self.new(1024)

    def attention(self, queries: int = 256, keys: int = 256, dtype: str = "float32") -> T:
        """Return attention of queries, keys and values of (1, 8 heads, tokens, 64 wide)."""
        query, key, value = (self.new(1, 8, tokens, 64, dtype=dtype) for tokens in (queries, keys, keys))
        return query.scaled_dot_product_attention(key, value)

    def conv(self, channels: int = 64, size: int = 56) -> T:
        """Return a 3 x 3 convolution of one image, with equal numbers of input and output channels."""
        return self.new(1, channels, size, size).conv2d(self.new(channels, channels, 3, 3), padding=1)

    def _attended(self, x: T, past: int, heads: int) -> T:
        """Return attention of a sequence over itself, and over `past` tokens before it."""
        batch, tokens, dim = x.shape
        split = (batch, tokens, heads, dim // heads)
        query, key, value = ((x @ self.new(dim, dim)).reshape(*split).permute(0, 2, 1, 3) for _ in range(3))
        if past:
            before = (batch, heads, past, dim // heads)
            key, value = (self.kit.cat(self.new(*before), one, 2) for one in (key, value))
        found = query.scaled_dot_product_attention(key, value)
        return found.permute(0, 2, 1, 3).reshape(batch, tokens, dim) @ self.new(dim, dim)

    def _layer(self, x: T, heads: int, past: int = 0, gelu: str = "tanh") -> T:
        """Return a layer of a transformer: attention, then two matrices with a GELU between; norms before, sums after
        each.
        """
        dim = x.shape[-1]
        x = x + self._attended(self.kit.layer_norm(x), past, heads)
        inner = (self.kit.layer_norm(x) @ self.new(dim, 4 * dim) + self.new(4 * dim)).gelu(gelu)
        return x + (inner @ self.new(4 * dim, dim) + self.new(dim))

    def block(self, gelu: str = "tanh") -> T:
        """Return one layer of a transformer: 512 wide, 256 tokens, 8 heads."""
        return self._layer(self.new(1, 256, 512), 8, gelu=gelu)

    def decoder_step(self) -> T:
        """Return the logits of one token after 127 others: 2 layers, 256 wide, 4 heads, 1000 words."""
        x = self.new(1, 1, 256)
        for _ in range(2):
            x = self._layer(x, 4, past=127)
        return self.kit.layer_norm(x) @ self.new(256, 1000)

    def _batch_norm(self, x: T) -> T:
        """Return a batch norm for inference: all four vectors are weights."""
        mean, variance, scale, shift = (self.new(1, x.shape[1], 1, 1) for _ in range(4))
        return (x - mean) * (variance + 1e-5).rsqrt() * scale + shift

    def _residual(self, x: T, into: int, stride: int) -> T:
        """Return a block of two 3 x 3 convolutions and a skip connection."""
        channels = x.shape[1]
        y = self._batch_norm(x.conv2d(self.new(into, channels, 3, 3), stride=stride, padding=1)).relu()
        y = self._batch_norm(y.conv2d(self.new(into, into, 3, 3), padding=1))
        if stride != 1 or channels != into:
            x = self._batch_norm(x.conv2d(self.new(into, channels, 1, 1), stride=stride))
        return (y + x).relu()

    def resnet(self) -> T:
        """Return the classes of one image of 224 x 224 by a network with the shape of ResNet-18."""
        x = self._batch_norm(self.new(1, 3, 224, 224).conv2d(self.new(64, 3, 7, 7), stride=2, padding=3)).relu()
        x = x.max_pool2d((3, 3), stride=2, padding=1)
        for into, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
            x = self._residual(x, into, stride)
        return x.mean((2, 3)) @ self.new(512, 1000) + self.new(1000)

    def batch_norm_trained(self) -> tuple[T, ...]:
        """Return 8 images of 64 channels normalised by their own mean and variance, and the updated running mean and
        variance.
        """
        x, scale, shift = self.new(8, 64, 28, 28), self.new(1, 64, 1, 1), self.new(1, 64, 1, 1)
        running_mean, running_variance = self.new(64), self.new(64)
        mean = x.mean((0, 2, 3))
        apart = x - mean.reshape(1, 64, 1, 1)
        variance = (apart * apart).mean((0, 2, 3))
        normal = apart * (variance.reshape(1, 64, 1, 1) + 1e-5).rsqrt() * scale + shift
        running_mean.assign(running_mean * 0.9 + mean * 0.1)
        running_variance.assign(running_variance * 0.9 + variance * 0.1)
        return normal.relu(), running_mean, running_variance

    def layer_norm_gradients(self) -> tuple[T, ...]:
        """Return the gradients of 256 normalised rows of 512 by the rows, their scale and their shift."""
        x, scale, shift = (self.kit.weight(sizes) for sizes in ((256, 512), (512,), (512,)))
        loss = ((self.kit.layer_norm(x) * scale + shift) * self.new(256, 512)).sum()
        return tuple(self.kit.gradients(loss, (x, scale, shift)))

    def convolution_gradients(self) -> tuple[T, ...]:
        """Return the gradients of two convolutions of 4 images, by the images and both kernels."""
        x, first, second = (self.kit.weight(sizes) for sizes in ((4, 16, 28, 28), (32, 16, 3, 3), (32, 32, 3, 3)))
        y = x.conv2d(first, padding=1).relu().conv2d(second, padding=1, stride=2).relu()
        return tuple(self.kit.gradients((y * y).mean(), (x, first, second)))

    def perceptron_step(self) -> tuple[T, ...]:
        """Return a step of AdamW of a perceptron: 64 rows of 784, layers of 256, 128 and 10."""
        sizes = (784, 256, 128, 10)
        weights = [self.kit.weight(one) for i, o in pairwise(sizes) for one in ((i, o), (o,))]
        x = self.new(64, 784)
        for i in range(0, 6, 2):
            x = x @ weights[i] + weights[i + 1]
            x = x.relu() if i < 4 else x
        return tuple(self.kit.step(self.kit.cross_entropy(x, self.new(64, dtype="int32")), weights))

    def lstm(self, steps: int = 8, width: int = 256) -> tuple[T, ...]:
        """Return the last output and the last state of an LSTM for 32 sequences."""
        x, into, around, shift = (
            self.new(*one) for one in ((32, steps, 128), (128, 4 * width), (width, 4 * width), (4 * width,))
        )
        output, state = self.new(32, width), self.new(32, width)
        for i in range(steps):
            gates = x[:, i] @ into + output @ around + shift
            taken, kept, shown, new = (gates[:, k * width : (k + 1) * width] for k in range(4))
            state = kept.sigmoid() * state + taken.sigmoid() * new.tanh()
            output = shown.sigmoid() * state.tanh()
        return output, state


SEVERAL: dict[str, Callable[[Maker], tuple[T, ...]]] = {  # graphs of several results
    "batch norm, trained": lambda make: make.batch_norm_trained(),
    "layer norm, gradients": lambda make: make.layer_norm_gradients(),
    "convolutions, gradients": lambda make: make.convolution_gradients(),
    "perceptron, a step of AdamW": lambda make: make.perceptron_step(),
    "LSTM": lambda make: make.lstm(),
}


def results(graph: str, make: Maker) -> tuple[T, ...]:
    """Return the tensors that a graph of either kind computes."""
    return SEVERAL[graph](make) if graph in SEVERAL else (GRAPHS[graph](make),)


GRAPHS: dict[str, Callable[[Maker], T]] = {
    "matmul 1024": lambda make: make.matmul(),
    "softmax": lambda make: make.softmax(),
    "layer norm": lambda make: make.layer_norm(),
    "transformer block": lambda make: make.block(),
    "transformer block, GELU by erf": lambda make: make.block("none"),
    "ResNet-18": lambda make: make.resnet(),
    "decoder step": lambda make: make.decoder_step(),
    "attention": lambda make: make.attention(),
    "attention f16": lambda make: make.attention(dtype="float16"),
    "attention of one query": lambda make: make.attention(1, 1024),
    "attention of one query f16": lambda make: make.attention(1, 1024, "float16"),
    "matmul f16": lambda make: make.matmul(dtype="float16"),
    "conv": lambda make: make.conv(),
}
