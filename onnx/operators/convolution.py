"""Convolutions and what is made like them."""

from __future__ import annotations

import math

from ringup.compiler.tensor import Tensor
from ringup.compiler.tensor.composed.sampling import sampled
from ringup.onnx.common.node import Node
from ringup.onnx.common.row import Row
from ringup.onnx.common.values import Array, known_size, numbers
from ringup.onnx.operators.windows import windows_of


def convolved(node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the convolution as a node's attributes describe it."""
    how = windows_of(node, x, node.ints("kernel_shape", [known_size(size, str(node)) for size in weight.shape[2:]]))
    return x.conv(
        weight, bias, stride=how.strides, padding=how.pads, dilation=how.dilations, groups=node.get("group", 1)
    )


def conv(node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the convolution (cross-correlation) of (N, C, …)."""
    return convolved(node, x, weight, bias).cast(x.dtype)


def conv_transpose(node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return the transposed convolution of (N, C, …)."""
    n = weight.ndim - 2
    kernel = node.ints("kernel_shape", [known_size(size, str(node)) for size in weight.shape[2:]])
    strides, dilations = node.ints("strides", [1] * n), node.ints("dilations", [1] * n)
    more, given = node.ints("output_padding", [0] * n), node.ints("pads", [0] * (2 * n))
    pads = list(zip(given[:n], given[n:], strict=True))
    auto, shape = node.get("auto_pad", "NOTSET"), node.get("output_shape")
    if auto.startswith("SAME") or shape is not None:
        sizes = [known_size(size, str(node)) for size in x.shape[2:]]
        want = [size * stride for size, stride in zip(sizes, strides, strict=True)] if shape is None else shape[-n:]
        for i, size in enumerate(sizes):
            whole = strides[i] * (size - 1) + more[i] + (kernel[i] - 1) * dilations[i] + 1 - want[i]
            if whole < 0:
                more[i], whole = more[i] - whole, 0
            less = whole // 2
            pads[i] = (less, whole - less) if auto == "SAME_UPPER" else (whole - less, less)
    groups = node.get("group", 1)
    # what an output padding wider than a stride adds is zeros, and the bias
    extra = [max(one - max(stride - 1, 0), 0) for one, stride in zip(more, strides, strict=True)]
    made = x.conv_transpose(
        weight, stride=strides, padding=pads, dilation=dilations, groups=groups,
        output_padding=[one - above for one, above in zip(more, extra, strict=True)],
    )  # fmt: skip
    if any(extra):
        made = made.pad([(0, 0), (0, 0), *((0, one) for one in extra)])
    return made if bias is None else made + bias.reshape((-1, *[1] * n))


def columns_to_image(node: Node, x: Tensor, image: Array, block: Array) -> Tensor:
    """Return blocks (N, C · taps, places) added up where they lie in an image."""
    size, kernel = numbers(image), numbers(block)
    n = len(kernel)
    strides, dilations = node.ints("strides", [1] * n), node.ints("dilations", [1] * n)
    given = node.ints("pads", [0] * (2 * n))
    taps = math.prod(kernel)
    spans = [dilation * (one - 1) + 1 for one, dilation in zip(kernel, dilations, strict=True)]
    counts = [(size[i] + given[i] + given[n + i] - spans[i]) // strides[i] + 1 for i in range(n)]
    channels = known_size(x.shape[1], str(node)) // taps
    parts = x.reshape((x.shape[0] * channels, taps, *counts))
    # each tap is a channel, and the weight that puts it in its place is 1 there and 0 elsewhere
    weight = Tensor.eye(taps, dtype=x.dtype).reshape((taps, 1, *kernel))
    made = parts.conv_transpose(weight, stride=strides, dilation=dilations)
    full = [size[i] + given[i] + given[n + i] for i in range(n)]
    made = made.pad([(0, 0), (0, 0), *((0, full[i] - known_size(made.shape[2 + i], "")) for i in range(n))])
    made = made.shrink([None, None, *((given[i], given[i] + size[i]) for i in range(n))])
    return made.reshape((x.shape[0], channels, *size))


def deformed_conv(
    node: Node, x: Tensor, weight: Tensor, offset: Tensor, bias: Tensor | None = None, mask: Tensor | None = None
) -> Tensor:
    """Return a convolution of (N, C, H, W) whose taps lie beside their places, each by an offset of its own."""
    if x.ndim != 4:
        raise node.refuse(f"a deformed convolution of {x.ndim - 2} axes, only of 2")
    kernel = node.ints("kernel_shape", [known_size(size, str(node)) for size in weight.shape[2:]])
    how = windows_of(node, x, kernel)
    groups, apart = node.get("group", 1), node.get("offset_group", 1)
    batch, channels = x.shape[0], known_size(x.shape[1], str(node))
    height, width = (known_size(size, str(node)) for size in offset.shape[2:])
    taps = math.prod(kernel)
    shifts = offset.reshape((batch, apart, taps, 2, height, width))
    coordinates = []
    for axis, size in enumerate((height, width)):
        outputs = Tensor.arange(size).cast(x.dtype) * how.strides[axis] - how.pads[axis][0]
        inside = Tensor.arange(kernel[axis]).cast(x.dtype) * how.dilations[axis]
        spread = inside.reshape((-1, 1) if axis == 0 else (1, -1)).expand(kernel).reshape((taps, 1, 1))
        places = spread + outputs.reshape((-1, 1) if axis == 0 else (1, -1))
        coordinates.append((shifts[:, :, :, axis] + places).reshape((batch * apart, taps * height * width)))
    values = sampled(x.reshape((batch * apart, channels // apart, *x.shape[2:])), coordinates, "linear", "zeros")
    values = values.reshape((batch, apart, channels // apart, taps, height, width))
    if mask is not None:
        values = values * mask.reshape((batch, apart, 1, taps, height, width))
    outputs_each = known_size(weight.shape[0], str(node)) // groups
    values = values.reshape((batch, groups, (channels // groups) * taps, height * width))
    made = weight.reshape((groups, outputs_each, -1)).matmul(values).reshape((batch, -1, height, width))
    return made if bias is None else made + bias.reshape((-1, 1, 1))


def causal_conv(
    node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None, past: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return a convolution of each channel (N, C, L) that looks only back, and the last inputs for the next call."""
    reach = known_size(weight.shape[-1], str(node)) - 1
    before = Tensor.zeros((*x.shape[:2], reach), dtype=x.dtype) if past is None else past
    whole = Tensor.cat([before, x], axis=2)
    made = whole.conv(weight, bias, groups=known_size(x.shape[1], str(node)))
    if node.get("activation", "none") in ("silu", "swish"):
        made = made.silu()
    return made, whole[:, :, known_size(whole.shape[2], str(node)) - reach :]


ROWS = (
    Row("Conv", conv),
    Row("ConvTranspose", conv_transpose),
    Row("Col2Im", columns_to_image, host=(1, 2)),
    Row("DeformConv", deformed_conv),
    Row("CausalConvWithState", causal_conv),
)
