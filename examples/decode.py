"""A small transformer decoder makes tokens one by one: keys and values stay in a cache, which fills without compiling.

python examples/decode.py virtual:navi31
"""

import sys
import time

import numpy as np

import ringup
from ringup import Tensor, nn

LETTERS = "abcdefghijklmnopqrstuvwxyz .,!?\n"
LAYERS, WIDTH, HEADS, ROOM = 2, 32, 4, 48
# the place of the token that is read: known when a tensor is computed
AT = ringup.Size("at", 0, ROOM - 1)


class Block(nn.Module):
    """One layer, with a cache (1, HEADS, ROOM, WIDTH // HEADS) of keys and one of values."""

    keys: Tensor
    values: Tensor

    def __init__(self) -> None:
        self.norm, self.inner_norm = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.inner = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        for name in ("keys", "values"):
            self.register_buffer(name, Tensor(np.zeros((1, HEADS, ROOM, WIDTH // HEADS), np.float32)), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        self.keys[:, :, AT : AT + 1] = k
        self.values[:, :, AT : AT + 1] = v
        seen = nn.functional.scaled_dot_product_attention(q, self.keys[:, :, : AT + 1], self.values[:, :, : AT + 1])
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        result: Tensor = x + self.inner(self.inner_norm(x))
        return result


class Decoder(nn.Module):
    def __init__(self) -> None:
        self.tokens, self.positions = nn.Embedding(len(LETTERS), WIDTH), nn.Embedding(ROOM, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.RMSNorm(WIDTH), nn.Linear(WIDTH, len(LETTERS), bias=False)

    def forward(self, token: Tensor) -> Tensor:
        x = self.tokens(token) + self.positions.weight[AT : AT + 1]
        for block in self.blocks:
            x = block(x)
        logits: Tensor = self.head(self.norm(x))[0, -1]
        return logits


def main(name: str) -> None:
    with ringup.device(name) as device, ringup.no_grad():
        # not trained: the letters mean nothing
        ringup.manual_seed(3)
        model = Decoder().eval()
        text = "r"
        for place in range(ROOM):
            start, before = time.perf_counter(), len(device.graphs)
            logits = model(Tensor([[LETTERS.index(text[-1])]]))
            text += LETTERS[int(logits.argmax().numpy(at=place))]
            took, compiled = time.perf_counter() - start, len(device.graphs) - before
            if place in (0, 1, 2, ROOM - 1):
                print(f"token {place}: {1000 * took:.0f} ms, graphs compiled: {compiled}")
            assert place == 0 or not compiled
        print(repr(text))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(*sys.argv[1:])
