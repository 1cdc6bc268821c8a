"""Tables of vectors: rows by number, and sums of rows."""

from __future__ import annotations

from ringup.compiler.tensor.core import DTypeLike, number_of
from ringup.compiler.tensor.tensor import Tensor
from ringup.nn import functional as F  # noqa: N812
from ringup.nn import init
from ringup.nn.linear import empty
from ringup.nn.module import Module
from ringup.nn.parameter import Parameter


def _row(padding_idx: int | None, count: int) -> int | None:
    """Return the row of padding, counted from the front."""
    if padding_idx is not None and not -count <= padding_idx < count:
        raise ValueError(f"padding_idx of {padding_idx} in a table of {count}")
    return None if padding_idx is None else padding_idx % count


class Embedding(Module):
    """Rows of a table (num_embeddings, embedding_dim) by number."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        *,
        dtype: DTypeLike | None = None,
    ) -> None:
        """Make a table, normally distributed; the row of `padding_idx` is zero and gets no gradient. The other options
        are those of `functional.embedding`.
        """
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = _row(padding_idx, num_embeddings)
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
        return F.embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse
        )

    def extra_repr(self) -> str:
        """Return the sizes."""
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        return text if self.padding_idx is None else f"{text}, padding_idx={self.padding_idx}"


class EmbeddingBag(Module):
    """Means, sums or maxima of the rows of bags."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        *,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        dtype: DTypeLike | None = None,
    ) -> None:
        """Make a table, normally distributed; `mode` is mean, sum or max. The other options are those of
        `functional.embedding_bag`.
        """
        self.num_embeddings, self.embedding_dim, self.mode = num_embeddings, embedding_dim, mode
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse, self.include_last_offset = scale_grad_by_freq, sparse, include_last_offset
        self.padding_idx = _row(padding_idx, num_embeddings)
        self.weight = empty(num_embeddings, embedding_dim, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the table again."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            init.zeros_(self.weight[self.padding_idx])

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        """Return (bags, embedding_dim). Bags are the rows of (N, L), or parts of (L) that begin at `offsets`."""
        return F.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    def extra_repr(self) -> str:
        """Return the sizes and the mode."""
        return f"{self.num_embeddings}, {self.embedding_dim}, mode={self.mode!r}"
