"""ringup brings up a GPU from user space and gives programs access to its queues."""

from __future__ import annotations

__version__ = "0.1.0"

# not imported from `typing`, so that `import ringup` loads no other module
TYPE_CHECKING = False
if TYPE_CHECKING:
    from ringup import array_api as array_api
    from ringup import linalg as linalg
    from ringup import nn as nn
    from ringup import onnx as onnx
    from ringup import optim as optim
    from ringup.cards import Found as Found
    from ringup.cards import cards as cards
    from ringup.cards import connect as connect
    from ringup.cards import open as open
    from ringup.compiler.graph.dtypes import bfloat16 as bfloat16
    from ringup.compiler.graph.dtypes import bool_ as bool_
    from ringup.compiler.graph.dtypes import float8_e4m3 as float8_e4m3
    from ringup.compiler.graph.dtypes import float8_e5m2 as float8_e5m2
    from ringup.compiler.graph.dtypes import float16 as float16
    from ringup.compiler.graph.dtypes import float32 as float32
    from ringup.compiler.graph.dtypes import float64 as float64
    from ringup.compiler.graph.dtypes import int8 as int8
    from ringup.compiler.graph.dtypes import int16 as int16
    from ringup.compiler.graph.dtypes import int32 as int32
    from ringup.compiler.graph.dtypes import int64 as int64
    from ringup.compiler.graph.dtypes import uint8 as uint8
    from ringup.compiler.graph.dtypes import uint16 as uint16
    from ringup.compiler.graph.dtypes import uint32 as uint32
    from ringup.compiler.graph.dtypes import uint64 as uint64
    from ringup.compiler.runtime.front import device as device
    from ringup.compiler.runtime.front import use as use
    from ringup.compiler.tensor import Size as Size
    from ringup.compiler.tensor import Tensor as Tensor
    from ringup.compiler.tensor import arange as arange
    from ringup.compiler.tensor import cat as cat
    from ringup.compiler.tensor import checked as checked
    from ringup.compiler.tensor import custom_gradient as custom_gradient
    from ringup.compiler.tensor import einsum as einsum
    from ringup.compiler.tensor import empty as empty
    from ringup.compiler.tensor import eye as eye
    from ringup.compiler.tensor import finfo as finfo
    from ringup.compiler.tensor import full as full
    from ringup.compiler.tensor import gradient as gradient
    from ringup.compiler.tensor import iinfo as iinfo
    from ringup.compiler.tensor import linspace as linspace
    from ringup.compiler.tensor import load as load
    from ringup.compiler.tensor import load_gguf as load_gguf
    from ringup.compiler.tensor import load_npy as load_npy
    from ringup.compiler.tensor import load_npz as load_npz
    from ringup.compiler.tensor import load_safetensors as load_safetensors
    from ringup.compiler.tensor import load_torch as load_torch
    from ringup.compiler.tensor import manual_seed as manual_seed
    from ringup.compiler.tensor import maximum as maximum
    from ringup.compiler.tensor import minimum as minimum
    from ringup.compiler.tensor import no_grad as no_grad
    from ringup.compiler.tensor import ones as ones
    from ringup.compiler.tensor import rand as rand
    from ringup.compiler.tensor import randint as randint
    from ringup.compiler.tensor import randn as randn
    from ringup.compiler.tensor import save_safetensors as save_safetensors
    from ringup.compiler.tensor import stack as stack
    from ringup.compiler.tensor import where as where
    from ringup.compiler.tensor import zeros as zeros
    from ringup.compiler.tensor.composed.functions import tensor as tensor
    from ringup.drivers.amd.card import Radeon as Radeon
    from ringup.drivers.card import Card as Card
    from ringup.errors import RingupError as RingupError
    from ringup.optim import SGD as SGD
    from ringup.optim import Adam as Adam
    from ringup.optim import AdamW as AdamW

_TENSORS = "ringup.compiler.tensor"
# public name: its module, which is imported when the name is first used
_HOME = {
    "open": "ringup.cards",
    "cards": "ringup.cards",
    "connect": "ringup.cards",
    "Found": "ringup.cards",
    "Card": "ringup.drivers.card",
    "Radeon": "ringup.drivers.amd.card",
    "RingupError": "ringup.errors",
    "device": "ringup.compiler.runtime.front",
    "use": "ringup.compiler.runtime.front",
    "Tensor": _TENSORS,
    "Size": _TENSORS,
    "tensor": "ringup.compiler.tensor.composed.functions",
    "gradient": _TENSORS,
    "custom_gradient": _TENSORS,
    "manual_seed": _TENSORS,
    "no_grad": _TENSORS,
    "checked": _TENSORS,
    "SGD": "ringup.optim",
    "Adam": "ringup.optim",
    "AdamW": "ringup.optim",
    "load": _TENSORS,
    "load_gguf": _TENSORS,
    "load_npy": _TENSORS,
    "load_npz": _TENSORS,
    "load_torch": _TENSORS,
    "load_safetensors": _TENSORS,
    "save_safetensors": _TENSORS,
    **dict.fromkeys(
        ("cat", "stack", "where", "einsum", "maximum", "minimum", "zeros", "ones", "full", "empty", "arange", "linspace",
         "eye", "rand", "randn", "randint", "finfo", "iinfo"), _TENSORS
    ),
    **dict.fromkeys(
        ("bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float8_e4m3", "float8_e5m2",
         "float16", "bfloat16", "float32", "float64"), "ringup.compiler.graph.dtypes"
    ),
}  # fmt: skip
# packages that are imported when their name is first used
_PACKAGES = ("array_api", "nn", "onnx", "optim")
__all__ = sorted((*_HOME, *_PACKAGES))


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    from importlib import import_module

    try:
        if name in _PACKAGES:
            return import_module(f"ringup.{name}")
        return getattr(import_module(_HOME[name]), name)
    except ImportError as error:
        from ringup.errors import missing_package

        if reason := missing_package(error, f"ringup.{name}", "tensor"):
            raise reason from error
        raise


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
