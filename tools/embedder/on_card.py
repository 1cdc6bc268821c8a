"""A sentence embedder on a card: the published transformer all-MiniLM-L6-v2, with its weights as tensors. `files.py`
provides its files.

It has six BERT layers (Devlin and others, 2018): attention with 12 heads and a GELU network, each added to its input
and normalised. An embedding is the mean over a sentence's tokens, normalised to length 1. Source: the model's own card
and config.json.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ringup.compiler.tensor import Tensor, load_safetensors, no_grad
from ringup.errors import CompileError
from ringup.tools.embedder.files import Files

if TYPE_CHECKING:
    from ringup.compiler.tensor.arrays import Array

STEP = 16  # tokens: sentences are padded to a multiple of this, so that few shapes are compiled
WANTED = ("num_hidden_layers", "num_attention_heads", "layer_norm_eps", "max_position_embeddings")


class Sentences:
    """The model: its tokens, and weights that move to the card at their first use."""

    def __init__(self, files: Files) -> None:
        """Load weights and tokens. Raises CompileError for a truncated file or a missing weight."""
        self._tokens = files.tokenizer()
        self._layers, self._heads, self._eps, self._longest = (files.config[name] for name in WANTED)
        self._path = files.weights
        self._weights = load_safetensors(files.weights)

    def embed(self, sentences: Sequence[str]) -> Array:
        """Return (sentences, 384) of length 1 each, f32, computed on the card in one batch."""
        places, mask = self.tokens(sentences)
        with no_grad():
            return self.forward(Tensor(places), Tensor(mask)).numpy()

    def tokens(self, sentences: Sequence[str]) -> tuple[Array, Array]:
        """Return token numbers and mask, (sentences, tokens) i32 and f32; the mask is 0 where a shorter sentence is
        padded.
        """
        if not sentences:
            raise ValueError("no sentence to embed")
        found = self._tokens.encode_batch(list(sentences))
        most = max(len(one.ids) for one in found)
        width = min(-(-most // STEP) * STEP, self._longest)
        places, mask = np.zeros((len(found), width), np.int32), np.zeros((len(found), width), np.float32)
        for row, one in enumerate(found):
            places[row, : len(one.ids)], mask[row, : len(one.ids)] = one.ids, 1
        return places, mask

    def forward(self, places: Tensor, mask: Tensor) -> Tensor:
        """Return the embeddings (sentences, width) of tokens (sentences, tokens) where `mask` is 1."""
        tokens = places.shape[1]
        x = self._weight("embeddings.word_embeddings").embedding(places)
        x = (
            x
            + self._weight("embeddings.position_embeddings")[:tokens]
            + self._weight("embeddings.token_type_embeddings")[0]
        )
        x = self._norm(x, "embeddings.LayerNorm")
        seen = mask.reshape(-1, 1, 1, tokens) > 0
        for number in range(self._layers):
            layer = f"encoder.layer.{number}"
            x = self._norm(x + self._attention(x, seen, f"{layer}.attention"), f"{layer}.attention.output.LayerNorm")
            inner = self._linear(x, f"{layer}.intermediate.dense").gelu()
            x = self._norm(x + self._linear(inner, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
        kept = mask.unsqueeze(-1)
        mean = (x * kept).sum(1) / kept.sum(1)
        return mean / (mean * mean).sum(-1, keepdims=True).sqrt()

    def _attention(self, x: Tensor, seen: Tensor, name: str) -> Tensor:
        count, tokens, width = x.shape
        q, k, v = (
            self._linear(x, f"{name}.self.{part}").reshape(count, tokens, self._heads, -1).permute(0, 2, 1, 3)
            for part in ("query", "key", "value")
        )
        made = q.scaled_dot_product_attention(k, v, mask=seen).permute(0, 2, 1, 3).reshape(count, tokens, width)
        return self._linear(made, f"{name}.output.dense")

    def _linear(self, x: Tensor, name: str) -> Tensor:
        return x.linear(self._weight(name), self._weight(name, "bias"))

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return x.layer_norm(self._weight(name), self._weight(name, "bias"), eps=self._eps)

    def _weight(self, name: str, kind: str = "weight") -> Tensor:
        found = self._weights.get(f"{name}.{kind}")
        if found is None:
            raise CompileError(f"{self._path} has no {name}.{kind}: it is not the model's file")
        return found


def nearest(embedding: Any, others: Any) -> list[tuple[int, float]]:
    """Return the nearest of `others` (rows of length 1), nearest first, with the cosine."""
    cosines = np.asarray(others) @ np.asarray(embedding)
    return [(int(i), float(cosines[i])) for i in np.argsort(-cosines, kind="stable")]
