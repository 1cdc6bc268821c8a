"""The sentence embedder in NumPy, in f64, one sentence at a time without padding: the reference for the card. Written
from BERT's paper.

Source: Devlin and others, "BERT: Pre-training of Deep Bidirectional Transformers", 2018; the model's config.json;
Sentence-BERT's mean pooling.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import erf, sqrt
from typing import Any

import numpy as np

from ringup.tools.embedder.files import Files, library

Array = np.ndarray[Any, Any]
gauss = np.vectorize(lambda x: 0.5 * (1 + erf(x / sqrt(2))), otypes=[np.float64])
WORDS = "embeddings.word_embeddings.weight"  # half of all weights; only the rows of a sentence are needed in f64


class MiniLm:
    """The model, from its files."""

    def __init__(self, files: Files) -> None:
        read = library("safetensors.numpy").load_file(files.weights)
        self._words = read[WORDS]
        self._weights: dict[str, Array] = {
            name: one.astype(np.float64) for name, one in read.items() if name != WORDS and one.dtype.kind == "f"
        }
        self._layers, self._heads = files.config["num_hidden_layers"], files.config["num_attention_heads"]
        self._eps = files.config["layer_norm_eps"]

    def embed(self, tokens: Sequence[int]) -> Array:
        """Return the embedding, of length 1, of a list of token numbers."""
        at = "embeddings."
        x = self._words[np.asarray(tokens)].astype(np.float64) + self._weights[at + "token_type_embeddings.weight"][0]
        x = self._norm(x + self._weights[at + "position_embeddings.weight"][: len(tokens)], at + "LayerNorm")
        for i in range(self._layers):
            at = f"encoder.layer.{i}."
            x = self._norm(x + self._attention(x, at + "attention."), at + "attention.output.LayerNorm")
            inner = self._dense(x, at + "intermediate.dense")
            x = self._norm(x + self._dense(inner * gauss(inner), at + "output.dense"), at + "output.LayerNorm")
        mean = x.mean(0)
        return np.asarray(mean / np.linalg.norm(mean))

    def _attention(self, x: Array, at: str) -> Array:
        """Return the attention output of each token."""
        width = x.shape[1] // self._heads
        q, k, v = (self._dense(x, f"{at}self.{name}") for name in ("query", "key", "value"))
        made = np.empty_like(x)
        for start in range(0, x.shape[1], width):
            head = slice(start, start + width)
            scores = q[:, head] @ k[:, head].T / sqrt(width)
            powers = np.exp(scores - scores.max(1, keepdims=True))
            made[:, head] = powers / powers.sum(1, keepdims=True) @ v[:, head]
        return self._dense(made, at + "output.dense")

    def _dense(self, x: Array, at: str) -> Array:
        """Return a layer's matrix product and bias; the file has matrices (out, in)."""
        return np.asarray(x @ self._weights[at + ".weight"].T + self._weights[at + ".bias"])

    def _norm(self, x: Array, at: str) -> Array:
        """Return the layer norm."""
        apart = x - x.mean(1, keepdims=True)
        spread = np.sqrt((apart**2).mean(1, keepdims=True) + self._eps)
        return np.asarray(apart / spread * self._weights[at + ".weight"] + self._weights[at + ".bias"])
