"""Sequences of several lengths as one tensor."""

from __future__ import annotations

from collections.abc import Sequence

from ringup.compiler.tensor.core import number_of
from ringup.compiler.tensor.tensor import Tensor


def pad_sequence(
    sequences: Sequence[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Return sequences (length, …), whose other axes are equal, as one tensor (longest, count, …), the shorter ones
    filled up; (count, longest, …) with `batch_first`.
    """
    if padding_side not in ("left", "right"):
        raise ValueError(f"padding_side of {padding_side!r}: left or right")
    found = list(sequences)
    if not found:
        raise ValueError("pad_sequence of no sequence")
    for one in found:
        if not isinstance(one, Tensor) or not one.ndim or one.shape[1:] != found[0].shape[1:]:
            raise ValueError("pad_sequence takes tensors (length, …) whose other axes are equal")
    lengths = [number_of(one.shape[0], "pad_sequence") for one in found]
    longest = max(lengths)
    padded = []
    for one, length in zip(found, lengths, strict=True):
        room = longest - length
        sides = (room, 0) if padding_side == "left" else (0, room)
        padded.append(one.pad((sides, *((0, 0),) * (one.ndim - 1)), value=padding_value))
    first, *rest = padded
    return first.stack(*rest, axis=0 if batch_first else 1)


def unpad_sequence(
    padded_sequences: Tensor, lengths: Sequence[int] | Tensor, batch_first: bool = False
) -> list[Tensor]:
    """Return the sequences that `pad_sequence` made one tensor of, by their lengths."""
    counts = lengths.tolist() if isinstance(lengths, Tensor) else list(lengths)
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    if len(counts) != rows.shape[0]:
        raise ValueError(f"{len(counts)} lengths for {rows.shape[0]} sequences")
    return [rows[i, :count] for i, count in enumerate(counts)]
