"""Windows over the last axes, as convolutions and pooling lay them: padding rules, sizes, the windows themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ringup.compiler.tensor import Tensor
from ringup.onnx.common.node import Node
from ringup.onnx.common.values import known_size


class Windows(NamedTuple):
    """How windows lie over the last axes: sizes, steps, distances between taps, and (before, after) of padding."""

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    pads: list[tuple[int, int]]
    # what the last window of each axis reaches beyond the padding, with `ceil_mode`
    beyond: list[int]

    @property
    def spans(self) -> list[int]:
        """Return the size of each axis that a window reaches over."""
        return [dilation * (size - 1) + 1 for size, dilation in zip(self.kernel, self.dilations, strict=True)]


def same_pads(node: Node, sizes: Sequence[int], spans: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Return the padding with which windows cover each axis in size / stride steps."""
    made = []
    for size, span, stride in zip(sizes, spans, strides, strict=True):
        whole = max((-(-size // stride) - 1) * stride + span - size, 0)
        less = whole // 2
        made.append((less, whole - less) if node.get("auto_pad") == "SAME_UPPER" else (whole - less, less))
    return made


def windows_of(node: Node, x: Tensor, kernel: Sequence[int]) -> Windows:
    """Return how a node's windows lie over an input (N, C, …)."""
    n = len(kernel)
    strides, dilations = node.ints("strides", [1] * n), node.ints("dilations", [1] * n)
    spans = [dilation * (size - 1) + 1 for size, dilation in zip(kernel, dilations, strict=True)]
    auto, given = node.get("auto_pad", "NOTSET"), node.ints("pads", [0] * (2 * n))
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        sizes = [known_size(size, str(node)) for size in x.shape[2:]]
        pads = same_pads(node, sizes, spans, strides)
    elif auto == "VALID":
        pads = [(0, 0)] * n
    else:
        pads = list(zip(given[:n], given[n:], strict=True))
    beyond = [0] * n
    if node.get("ceil_mode", 0):
        for i, (size, span, stride) in enumerate(zip(x.shape[2:], spans, strides, strict=True)):
            length = known_size(size, str(node)) + sum(pads[i])
            count = -(-(length - span) // stride) + 1
            # no window begins in the padding behind
            if (count - 1) * stride >= known_size(size, str(node)) + pads[i][0]:
                count -= 1
            beyond[i] = max((count - 1) * stride + span - length, 0)
    return Windows(list(kernel), strides, dilations, pads, beyond)


def windowed(x: Tensor, how: Windows, value: Any, beyond: Any = None) -> Tensor:
    """Return the windows of an input padded with `value` (and `beyond` behind that): (N, C, outputs…, taps…)."""
    n = len(how.kernel)
    lead: list[tuple[int, int]] = [(0, 0)] * (x.ndim - n)
    made = _padded(x, [*lead, *how.pads], value)
    made = _padded(made, [*lead, *((0, one) for one in how.beyond)], value if beyond is None else beyond)
    for i, (span, stride, dilation) in enumerate(zip(how.spans, how.strides, how.dilations, strict=True)):
        made = made.unfold(x.ndim - n + i, span, stride)
        if dilation != 1:
            made = made[..., ::dilation]
    return made


def _padded(x: Tensor, widths: list[tuple[int, int]], value: Any) -> Tensor:
    return x.pad(widths, value=value) if any(map(any, widths)) else x
