"""Models in ONNX files as functions of tensors: `load` reads one, and `Model` is what it becomes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringup.onnx.model import Model as Model
    from ringup.onnx.reading import load as load

_PLACES = {"load": "reading", "Model": "model"}
__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"ringup.onnx has no {name!r}; there are {', '.join(__all__)}")
    return getattr(import_module(f"ringup.onnx.{place}"), name)


def __dir__() -> list[str]:
    return list(__all__)
