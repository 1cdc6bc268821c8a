"""Tensors on a card: what NumPy and PyTorch users expect, compiled to the card's own machine code.

python examples/tensors.py virtual:navi31
"""

import sys

import numpy as np

import ringup


def main(name: str) -> None:
    draw = np.random.default_rng(7)
    image, weight = draw.random((1, 3, 16, 16), np.float32), draw.random((8, 3, 3, 3), np.float32)
    with ringup.device(name):
        x, w = ringup.Tensor(image), ringup.Tensor(weight)
        y = x.conv2d(w, padding=1).relu()
        pooled = y.max_pool2d(2)  # nothing is computed yet: this is a graph
        probabilities = pooled.mean((2, 3)).softmax(-1)
        print(repr(probabilities))  # a debugger sees the graph
        print(probabilities)  # computed here
        assert abs(float(probabilities.sum()) - 1) < 1e-5

    with ringup.open(name) as card:  # the same on a card that is open: its tensors are computed on it
        a = card.tensor([[1.0, 2.0], [3.0, 4.0]])
        print((a @ a).tolist())
        assert (a @ a).tolist() == [[7.0, 10.0], [15.0, 22.0]]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
