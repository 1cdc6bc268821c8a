"""A small network learns XOR on a card: gradients, an optimiser, a loop.

python examples/training.py virtual:navi31
"""

import sys

import ringup
from ringup import Tensor


def main(name: str) -> None:
    inputs = [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    wanted = [[0.0], [1.0], [1.0], [0.0]]
    with ringup.device(name):
        ringup.manual_seed(3)
        x, y = Tensor(inputs), Tensor(wanted)
        w1, w2 = (Tensor.randn(2, 16).requires_grad_(), Tensor.randn(16, 1).requires_grad_())
        b1, b2 = (Tensor.zeros(16).requires_grad_(), Tensor.zeros(1).requires_grad_())
        optimiser = ringup.Adam([w1, b1, w2, b2], 0.1)
        losses = []
        for step in range(40):
            optimiser.zero_grad()
            hidden = (x @ w1 + b1).tanh()
            loss = ((hidden @ w2 + b2 - y) ** 2).mean()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
            if step % 10 == 0:
                print(f"step {step}: loss {losses[-1]:.4f}")
        result = ((x @ w1 + b1).tanh() @ w2 + b2).numpy().ravel()
        print(f"XOR: {result.round(2)}")
        assert losses[-1] < losses[0] / 10
        assert ((result > 0.5) == [False, True, True, False]).all()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
