"""Chooses where tensors are computed: `ringup.device`, `ringup.use`, and the tensors that a card creates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import numpy as np

import ringup
from ringup.compiler.compile import Chooser
from ringup.compiler.graph import dtypes
from ringup.compiler.graph.nodes import Op, Storage
from ringup.compiler.runtime.device import Device
from ringup.compiler.tensor import realize
from ringup.compiler.tensor.core import as_dtype
from ringup.compiler.tensor.tensor import Tensor

if TYPE_CHECKING:
    from ringup.drivers.card import Card


def device_of(card: Card) -> Device:
    """Return the evaluator of an open card, the same one each time. Raises `ValueError` for a closed card."""
    if card.is_closed:
        raise ValueError(f"{card.name} was closed; open it again")
    if card.tensors.evaluator is None:
        card.tensors.evaluator = Device(card)
    return cast(Device, card.tensors.evaluator)


@contextmanager
def device(where: str | Card | Device | None, *, tuning: Chooser | None = None, **options: Any) -> Iterator[Device]:
    """Compute tensors on a device inside the block: `with ringup.device("virtual:navi31"):`.

    `where` is one of four. A card's name: the card is opened with `options` (those of `ringup.open`) and closed at the
    end of the block. An open card: it stays open. A `Device`. None: nowhere, so that nothing is computed by mistake.
    `tuning` knows better shapes of kernels. Yields the `Device`; its `card` is the open card. Raises what `ringup.open`
    raises, and `ValueError` for a closed card.
    """
    if isinstance(where, str):
        with ringup.open(where, **options) as card, device(card, tuning=tuning) as made:
            yield made
        return
    if options:
        raise TypeError(f"{', '.join(sorted(options))}: options are for a card that is opened here, by its name")
    chosen = _evaluator(where, tuning)
    with realize.device(chosen):
        yield chosen


def use(where: Card | Device | None, *, tuning: Chooser | None = None) -> None:
    """Compute tensors there from now on, in this context: on an open card, with a `Device`, or nowhere (None)."""
    if isinstance(where, str):
        raise TypeError(f"{where!r} is a name: open the card first, ringup.use(ringup.open({where!r})), and close it")
    realize.use(_evaluator(where, tuning))


def _evaluator(where: Any, tuning: Chooser | None) -> Any:
    if where is None or hasattr(where, "evaluate"):
        return where
    if not hasattr(where, "is_closed"):
        raise TypeError(f"expected the name of a card or an open card (`ringup.open`), not {where!r:.80}")
    return Device(where, tuning=tuning) if tuning is not None else device_of(where)


def tensor_on(card: Card, data: object, dtype: Any = None, *, requires_grad: bool = False, name: str = "") -> Tensor:
    """Return a tensor of `data` whose graphs `card` computes if no other card was chosen by `device` or `use`."""
    home = device_of(card)
    if isinstance(data, (bool, int, float, complex)) and not isinstance(data, np.generic):
        # A single number is a constant of the graph. It has no memory that could be bound to a card.
        kind = dtypes.of_scalar(data) if dtype is None else as_dtype(dtype)
        made = Tensor(np.array(data, dtypes.of_scalar(data).numpy), kind, name=name)
    else:
        made = Tensor(data, dtype, name=name)
    for node in made.node.ordered():
        if node.op is Op.BUFFER and isinstance(node.arg, Storage) and node.arg.home is None:
            node.arg.home = home
    if requires_grad:
        made.requires_grad_()
    return made
