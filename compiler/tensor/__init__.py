"""The language of tensors: `Tensor` and what goes with it, down to graphs. Names are loaded on first use."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_PLACES = {  # public name: module
    "Tensor": "tensor",
    "Size": "core",
    "manual_seed": "random",
    "Source": "random",
    "gradient": "gradients",
    "device": "realize",
    "use": "realize",
    "no_grad": "realize",
    "Evaluator": "realize",
    "meshgrid": "movement",
    "rotary_angles": "layers",
    "SGD": "optim",
    "Adam": "optim",
    "AdamW": "optim",
    "load_safetensors": "files",
    "save_safetensors": "files",
    "load_gguf": "files",
}
__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"ringup.compiler.tensor has no {name!r}; there are {', '.join(sorted(_PLACES))}")
    return getattr(import_module(f"ringup.compiler.tensor.{place}"), name)


def __dir__() -> list[str]:
    return sorted(_PLACES)
