"""all-MiniLM-L6-v2 in NumPy, f64, one sentence at a time and none padded: the judge of what a card makes of it. Written from BERT's paper.

Source: Devlin and others, "BERT: Pre-training of Deep Bidirectional Transformers", 2018; the model's config.json; Sentence-BERT's mean pooling.
"""

import json
from math import erf, sqrt

import numpy as np
from safetensors.numpy import load_file

gauss = np.vectorize(lambda x: 0.5 * (1 + erf(x / sqrt(2))))


class MiniLm:
    """The model of a folder."""

    def __init__(self, folder):
        self.config = json.loads((folder / "config.json").read_text())
        self.weights = {name: one.astype(np.float64) for name, one in load_file(folder / "model.safetensors").items() if one.dtype.kind == "f"}

    def embed(self, tokens):
        """Return the embedding of a list of token numbers."""
        w = self.weights
        at = "embeddings."
        x = w[at + "word_embeddings.weight"][tokens] + w[at + "token_type_embeddings.weight"][0]
        x = self.norm(x + w[at + "position_embeddings.weight"][: len(tokens)], at + "LayerNorm")
        for i in range(self.config["num_hidden_layers"]):
            at = f"encoder.layer.{i}."
            x = self.norm(x + self.attention(x, at + "attention."), at + "attention.output.LayerNorm")
            inner = self.dense(x, at + "intermediate.dense")
            x = self.norm(x + self.dense(inner * gauss(inner), at + "output.dense"), at + "output.LayerNorm")
        mean = x.mean(0)
        return mean / np.linalg.norm(mean)

    def attention(self, x, at):
        """Return what each token takes from the others."""
        width = x.shape[1] // self.config["num_attention_heads"]
        q, k, v = (self.dense(x, f"{at}self.{name}") for name in ("query", "key", "value"))
        made = np.empty_like(x)
        for start in range(0, x.shape[1], width):
            head = slice(start, start + width)
            scores = q[:, head] @ k[:, head].T / sqrt(width)
            powers = np.exp(scores - scores.max(1, keepdims=True))
            made[:, head] = powers / powers.sum(1, keepdims=True) @ v[:, head]
        return self.dense(made, at + "output.dense")

    def dense(self, x, at):
        """Return a layer's matrix product and bias; the file has matrices (out, in)."""
        return x @ self.weights[at + ".weight"].T + self.weights[at + ".bias"]

    def norm(self, x, at):
        """Return the layer norm."""
        apart = x - x.mean(1, keepdims=True)
        spread = np.sqrt((apart**2).mean(1, keepdims=True) + self.config["layer_norm_eps"])
        return apart / spread * self.weights[at + ".weight"] + self.weights[at + ".bias"]
