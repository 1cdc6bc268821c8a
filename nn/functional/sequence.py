"""The loss of sequences that are not aligned with their targets (Graves and others, 2006)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ringup.compiler.tensor.conversions import narrowed, widened
from ringup.compiler.tensor.core import number_of
from ringup.compiler.tensor.tensor import Tensor

# stands for the logarithm of 0: an infinity less another one would be NaN in gradients
NOTHING = -1e30
REDUCTIONS = ("mean", "sum", "none")


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Return minus the log-probability that (steps, N, classes) spell the targets, blanks and repeats left out.

    `targets` are (N, length), or all one after the other; lengths are known on the host. "mean" divides each loss by
    its target's length first. A target that does not fit in its steps costs infinity, or 0 with `zero_infinity`.
    """
    if reduction not in REDUCTIONS:
        raise ValueError(f"a loss is not reduced by {reduction!r}; there are {', '.join(REDUCTIONS)}")
    if log_probs.ndim == 2:
        made = ctc_loss(
            log_probs.unsqueeze(1), targets.unsqueeze(0), _listed(input_lengths), _listed(target_lengths), blank,
            reduction, zero_infinity,
        )  # fmt: skip
        return made.reshape(()) if made.ndim else made
    steps, batch, _ = (number_of(size, "ctc_loss") for size in log_probs.shape)
    ends, lengths = _listed(input_lengths), _listed(target_lengths)
    if len(ends) != batch or len(lengths) != batch or max(ends, default=0) > steps:
        raise ValueError(f"ctc_loss of {list(log_probs.shape)} with {ends} steps and targets of {lengths}")
    labels = _labels(targets, lengths, blank)
    width = number_of(labels.shape[1], "ctc_loss")
    x = widened(log_probs)
    # (steps, N, places): what each place of the targets, with a blank around each class, costs at each step
    shown = x.gather(2, labels.unsqueeze(0).expand((steps, batch, width)))
    # a class follows another one directly, a blank and a repeated class do not
    before = labels[:, :2].full_like(blank).cat(labels[:, :-2], axis=1) if width > 2 else labels.full_like(blank)
    skips = labels.ne(blank).logical_and(labels.ne(before))
    first = np.arange(width) < 2
    state = Tensor(first[None, :]).where(shown[0], NOTHING)
    for step in range(1, steps):
        moved = state.logaddexp(_shifted(state, 1)).logaddexp(skips.where(_shifted(state, 2), NOTHING))
        goes_on = Tensor((step < np.array(ends))[:, None])
        state = goes_on.where((moved + shown[step]).maximum(NOTHING), state)
    places = np.arange(width)[None, :]
    last = 2 * np.array(lengths)[:, None]
    final = Tensor((places == last) | (places == last - 1)).where(state, NOTHING)
    top = final.amax(1, keepdims=True).detach()
    lost = -((final - top).exp().sum(1).log() + top.squeeze(1))
    impossible = lost >= -NOTHING / 2
    lost = impossible.where(0.0 if zero_infinity else float("inf"), lost)
    if reduction == "mean":
        lost = (lost / Tensor(np.maximum(lengths, 1).astype(lost.dtype.numpy))).mean()
    return narrowed(lost.sum() if reduction == "sum" else lost, log_probs)


def _listed(lengths: Tensor | Sequence[int]) -> list[int]:
    """Return lengths as numbers of the host."""
    found = np.asarray(lengths.numpy() if isinstance(lengths, Tensor) else lengths)
    return [int(one) for one in found.reshape(-1)]


def _labels(targets: Tensor, lengths: list[int], blank: int) -> Tensor:
    """Return (N, 2 longest + 1): the classes of each target, with a blank before and after each."""
    longest, batch = max(lengths, default=0), len(lengths)
    starts = (
        np.cumsum([0, *lengths[:-1]])
        if targets.ndim == 1
        else np.arange(batch) * number_of(targets.shape[-1], "ctc_loss")
    )
    places = np.minimum(starts[:, None] + np.arange(longest)[None, :], max(number_of(targets.size, "ctc_loss") - 1, 0))
    if not longest:
        return Tensor(np.full((batch, 1), blank, np.int64))
    classes = targets.flatten().take(Tensor(places.reshape(-1)), 0).cast("int64").reshape((batch, longest))
    inside = Tensor(np.arange(longest)[None, :] < np.array(lengths)[:, None])
    classes = inside.where(classes, blank)
    blanks = classes.full_like(blank)
    return blanks.stack(classes, axis=2).flatten(1).cat(blanks[:, :1], axis=1)


def _shifted(state: Tensor, count: int) -> Tensor:
    """Return places moved on by `count`."""
    width = number_of(state.shape[1], "ctc_loss")
    if width <= count:
        return state.full_like(NOTHING)
    return state[:, :count].full_like(NOTHING).cat(state[:, : width - count], axis=1)
