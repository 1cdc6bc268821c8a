"""Tables of vectors: rows by number, and sums of rows."""

from __future__ import annotations

from ringup.compiler.tensor.core import DTypeLike, number_of
from ringup.compiler.tensor.tensor import Tensor
from ringup.nn import functional as F  # noqa: N812
from ringup.nn import init
from ringup.nn.linear import empty
from ringup.nn.module import Module
from ringup.nn.parameter import Parameter


class Embedding(Module):
    """Rows of a table (num_embeddings, embedding_dim) by number."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        """Make a table, normally distributed; the row of `padding_idx` is zero and gets no gradient."""
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ValueError(f"padding_idx of {padding_idx} in a table of {num_embeddings}")
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        self.weight = empty(num_embeddings, embedding_dim, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the table again."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            init.zeros_(self.weight[self.padding_idx])

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, padding_idx: int | None = None) -> Embedding:
        """Return a table of given rows, which is not trained if `freeze`."""
        rows, width = (number_of(size, "a table") for size in embeddings.shape)
        made = cls(rows, width, padding_idx)
        made.weight = Parameter(embeddings, not freeze)
        return made

    def forward(self, input: Tensor) -> Tensor:
        """Return (…, embedding_dim) of integers (…)."""
        return F.embedding(input, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        """Return the sizes."""
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        return text if self.padding_idx is None else f"{text}, padding_idx={self.padding_idx}"


class EmbeddingBag(Module):
    """Means, sums or maxima of the rows of bags."""

    def __init__(
        self, num_embeddings: int, embedding_dim: int, *, mode: str = "mean", dtype: DTypeLike | None = None
    ) -> None:
        """Make a table, normally distributed; `mode` is mean, sum or max."""
        self.num_embeddings, self.embedding_dim, self.mode = num_embeddings, embedding_dim, mode
        self.weight = empty(num_embeddings, embedding_dim, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the table again."""
        init.normal_(self.weight)

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        """Return (bags, embedding_dim). Bags are the rows of (N, L), or parts of (L) that begin at `offsets`."""
        return F.embedding_bag(input, self.weight, offsets, mode=self.mode, per_sample_weights=per_sample_weights)

    def extra_repr(self) -> str:
        """Return the sizes and the mode."""
        return f"{self.num_embeddings}, {self.embedding_dim}, mode={self.mode!r}"
