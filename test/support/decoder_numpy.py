"""A small decoder-only transformer in NumPy, f64, with hand-written gradients and AdamW: the reference for the same
model trained on a card.

Rotary positions (Su and others, 2021) on pairs (i, i + width / 2), RMS norms before each half of a layer (Zhang and
Sennrich, 2019), SiLU between two matrices, and a separate output matrix. The gradients were derived for this file;
`test_decoder` compares them with finite differences.
"""

import numpy as np

EPS = 1e-6
LAYERS, WIDTH, HEADS, INNER, LETTERS = 2, 64, 4, 128, 256
BASE = 10000.0


def initial(seed):
    """Return weights by name, f32."""
    random = np.random.default_rng(seed)
    made = {
        "embedding": random.normal(0, 0.1, (LETTERS, WIDTH)),
        "norm": np.ones(WIDTH),
        "head": random.normal(0, 0.02, (WIDTH, LETTERS)),
    }
    for i in range(LAYERS):
        made |= {
            f"{i}.norm": np.ones(WIDTH),
            f"{i}.qkv": random.normal(0, WIDTH**-0.5, (WIDTH, 3 * WIDTH)),
            f"{i}.out": random.normal(0, WIDTH**-0.5, (WIDTH, WIDTH)),
            f"{i}.inner norm": np.ones(WIDTH),
            f"{i}.up": random.normal(0, WIDTH**-0.5, (WIDTH, INNER)),
            f"{i}.down": random.normal(0, INNER**-0.5, (INNER, WIDTH)),
        }
    return {name: one.astype(np.float32) for name, one in made.items()}


def angles(count):
    """Return cosines and sines, (positions, half the width of a head)."""
    half = WIDTH // HEADS // 2
    turned = np.arange(count)[:, None] * BASE ** (-np.arange(half) / half)
    return np.cos(turned), np.sin(turned)


def turn(x, cosines, sines):
    """Return (…, positions, width) with its pairs rotated."""
    a, b = np.split(x, 2, -1)
    return np.concatenate([a * cosines - b * sines, b * cosines + a * sines], -1)


def norm(x, weight):
    """Return x divided by the root of its mean square and multiplied by the weight, and the values that the gradient
    needs.
    """
    root = np.sqrt((x * x).mean(-1, keepdims=True) + EPS)
    return x / root * weight, (x / root, root, weight)


def norm_back(given, kept):
    """Return the gradients of x and of the weight."""
    y, root, weight = kept
    inner = given * weight
    return (inner - y * (inner * y).mean(-1, keepdims=True)) / root, (given * y).sum(tuple(range(given.ndim - 1)))


def product_back(given, x, weight):
    """Return the gradients of x and of the weight of x @ weight."""
    return given @ weight.T, x.reshape(-1, x.shape[-1]).T @ given.reshape(-1, given.shape[-1])


def split(x):
    """Return (batch, positions, width) as (batch, heads, positions, width of a head)."""
    return x.reshape(*x.shape[:2], HEADS, -1).transpose(0, 2, 1, 3)


def join(x):
    """Undo `split`."""
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def forward(weights, tokens):
    """Return logits (batch, positions, letters), and the values that the gradients need."""
    w, count, kept = weights, tokens.shape[1], []
    cosines, sines = angles(count)
    seen = np.tril(np.ones((count, count), bool))
    x = w["embedding"][tokens]
    for i in range(LAYERS):
        h, norm1 = norm(x, w[f"{i}.norm"])
        q, k, v = (split(one) for one in np.split(h @ w[f"{i}.qkv"], 3, -1))
        q, k = turn(q, cosines, sines), turn(k, cosines, sines)
        scores = np.where(seen, q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]), -np.inf)
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        shares = powers / powers.sum(-1, keepdims=True)
        taken = join(shares @ v)
        x = x + taken @ w[f"{i}.out"]
        g, norm2 = norm(x, w[f"{i}.inner norm"])
        u = g @ w[f"{i}.up"]
        gate = 1 / (1 + np.exp(-u))
        x = x + (u * gate) @ w[f"{i}.down"]
        kept.append((h, norm1, q, k, v, shares, taken, g, norm2, u, gate))
    last, norm3 = norm(x, w["norm"])
    return last @ w["head"], (kept, last, norm3)


def loss_and_gradients(weights, tokens):
    """Return the mean cross entropy of each next letter of tokens (batch, positions + 1), and its gradients by name."""
    w, known, wanted = weights, tokens[:, :-1], tokens[:, 1:]
    logits, (kept, last, norm3) = forward(w, known)
    top = logits - logits.max(-1, keepdims=True)
    logs = top - np.log(np.exp(top).sum(-1, keepdims=True))
    hit = np.eye(LETTERS)[wanted]
    loss = -(hit * logs).sum() / wanted.size
    gradients = {}
    given, gradients["head"] = product_back((np.exp(logs) - hit) / wanted.size, last, w["head"])
    dx, gradients["norm"] = norm_back(given, norm3)
    cosines, sines = angles(known.shape[1])
    for i in reversed(range(LAYERS)):
        h, norm1, q, k, v, shares, taken, g, norm2, u, gate = kept[i]
        given, gradients[f"{i}.down"] = product_back(dx, u * gate, w[f"{i}.down"])
        given, gradients[f"{i}.up"] = product_back(given * (gate + u * gate * (1 - gate)), g, w[f"{i}.up"])
        given, gradients[f"{i}.inner norm"] = norm_back(given, norm2)
        dx = dx + given
        given, gradients[f"{i}.out"] = product_back(dx, taken, w[f"{i}.out"])
        given = split(given)
        dshares, dv = given @ v.swapaxes(-1, -2), shares.swapaxes(-1, -2) @ given
        dscores = shares * (dshares - (dshares * shares).sum(-1, keepdims=True)) / np.sqrt(q.shape[-1])
        dq, dk = turn(dscores @ k, cosines, -sines), turn(dscores.swapaxes(-1, -2) @ q, cosines, -sines)
        given, gradients[f"{i}.qkv"] = product_back(
            np.concatenate([join(one) for one in (dq, dk, dv)], -1), h, w[f"{i}.qkv"]
        )
        given, gradients[f"{i}.norm"] = norm_back(given, norm1)
        dx = dx + given
    gradients["embedding"] = np.zeros_like(w["embedding"])
    np.add.at(gradients["embedding"], known, dx)
    return loss, gradients


class AdamW:
    """Kingma and Ba, 2014, algorithm 1, with the decay of Loshchilov and Hutter, 2017, algorithm 2."""

    def __init__(self, weights, rate, betas=(0.9, 0.999), eps=1e-8, decay=0.01):
        self.weights, self.rate, self.betas, self.eps, self.decay, self.steps = weights, rate, betas, eps, decay, 0
        self.means = {name: np.zeros_like(one) for name, one in weights.items()}
        self.squares = {name: np.zeros_like(one) for name, one in weights.items()}

    def step(self, gradients):
        """Change the weights."""
        self.steps += 1
        first, second = self.betas
        for name, one in gradients.items():
            self.means[name] = first * self.means[name] + (1 - first) * one
            self.squares[name] = second * self.squares[name] + (1 - second) * one * one
            mean, square = self.means[name] / (1 - first**self.steps), self.squares[name] / (1 - second**self.steps)
            before = self.weights[name]
            self.weights[name] = before - self.rate * (mean / (np.sqrt(square) + self.eps) + self.decay * before)
