"""The small decoder of `decoder_numpy` with tensors: training, and inference with a cache of keys and values."""

import numpy as np

from ringup.compiler.tensor import Size, Tensor, rotary_angles

LAYERS, WIDTH, HEADS, EPS = 2, 64, 4, 1e-6


class Decoder:
    """Weights by name, and a cache for one text of up to `room` letters."""

    def __init__(self, weights, room, most):
        """`most` is the number of letters that are read at once."""
        self.weights = {name: Tensor(one, requires_grad=True, name=name) for name, one in weights.items()}
        self.room, self.at, self.count = room, Size("at", 0, room - 1), Size("count", 1, most)
        # With the greatest values of both sizes, at + count is larger than `room`.
        shape = (
            1,
            HEADS,
            room + most,
            WIDTH // HEADS,
        )
        self.cache = [[Tensor(np.zeros(shape, np.float32), name=f"{i}.{what}") for what in "kv"] for i in range(LAYERS)]

    def loss(self, tokens):
        """Return the mean cross entropy of each next letter of tokens (batch, positions + 1)."""
        count = tokens.shape[1] - 1
        logits = self._body(
            tokens[:, :count],
            Tensor.arange(count),
            lambda i, q, k, v: q.scaled_dot_product_attention(k, v, causal=True),
        )
        return logits.reshape(-1, logits.shape[-1]).cross_entropy(tokens[:, 1:].reshape(-1))

    def logits(self, tokens):
        """Return the logits of tokens (batch, positions), read all at once and without the cache."""
        return self._body(
            tokens, Tensor.arange(tokens.shape[1]), lambda i, q, k, v: q.scaled_dot_product_attention(k, v, causal=True)
        )

    def following(self, tokens):
        """Return the logits after `count` of tokens (1, most), which stand at `at` and beyond. The evaluation is given
        both numbers.
        """
        at, end = self.at, self.at + self.count

        def attend(i, q, k, v):
            keys, values = self.cache[i]
            keys[:, :, at:end].assign(k)
            values[:, :, at:end].assign(v)
            return q.scaled_dot_product_attention(keys[:, :, :end], values[:, :, :end], causal=True)

        return self._body(tokens[:, : self.count], Tensor.arange(self.count) + at, attend)[0, -1]

    def _body(self, tokens, positions, attend):
        w = self.weights
        cosines, sines = rotary_angles(positions, WIDTH // HEADS)
        x = w["embedding"].embedding(tokens)
        for i in range(LAYERS):
            h = x.rms_norm(w[f"{i}.norm"], eps=EPS) @ w[f"{i}.qkv"]
            q, k, v = (part.unflatten(-1, (HEADS, -1)).permute(0, 2, 1, 3) for part in h.split(WIDTH, -1))
            taken = attend(i, q.rotary(cosines, sines), k.rotary(cosines, sines), v)
            x = x + taken.permute(0, 2, 1, 3).flatten(2) @ w[f"{i}.out"]
            g = x.rms_norm(w[f"{i}.inner norm"], eps=EPS)
            x = x + (g @ w[f"{i}.up"]).silu() @ w[f"{i}.down"]
        return x.rms_norm(w["norm"], eps=EPS) @ w["head"]
