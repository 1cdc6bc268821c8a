"""ringup: bring a GPU up from user space and put its queues in your hands."""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # `typing` is loaded for nobody who only wants the version
if TYPE_CHECKING:
    from ringup.cards import cards as cards
    from ringup.cards import connect as connect
    from ringup.cards import open as open
    from ringup.errors import RingupError as RingupError

_HOME = {
    "open": "ringup.cards",
    "cards": "ringup.cards",
    "connect": "ringup.cards",
    "Found": "ringup.cards",
    "RingupError": "ringup.errors",
}  # public name: module


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)
