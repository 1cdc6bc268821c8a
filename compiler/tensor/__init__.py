"""The language of tensors: `Tensor` and what goes with it, down to graphs. Names are loaded on first use.

`core` holds a tensor's state. The operations are functions by topic (`movement` to `creation`), whose first argument is
the tensor; `tensor` binds them as the methods of `Tensor`.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ringup.errors import missing_package

# here, so that `import ringup.nn` and other packages of tensors say what to install
if find_spec("numpy") is None:
    _missing = ModuleNotFoundError(name="numpy")
    raise ModuleNotFoundError(str(missing_package(_missing, "the tensor language")), name="numpy")

if TYPE_CHECKING:
    from ringup.compiler.tensor.composed.functions import arange as arange
    from ringup.compiler.tensor.composed.functions import cat as cat
    from ringup.compiler.tensor.composed.functions import complex as complex
    from ringup.compiler.tensor.composed.functions import einsum as einsum
    from ringup.compiler.tensor.composed.functions import empty as empty
    from ringup.compiler.tensor.composed.functions import eye as eye
    from ringup.compiler.tensor.composed.functions import full as full
    from ringup.compiler.tensor.composed.functions import linspace as linspace
    from ringup.compiler.tensor.composed.functions import maximum as maximum
    from ringup.compiler.tensor.composed.functions import minimum as minimum
    from ringup.compiler.tensor.composed.functions import ones as ones
    from ringup.compiler.tensor.composed.functions import polar as polar
    from ringup.compiler.tensor.composed.functions import rand as rand
    from ringup.compiler.tensor.composed.functions import randint as randint
    from ringup.compiler.tensor.composed.functions import randn as randn
    from ringup.compiler.tensor.composed.functions import stack as stack
    from ringup.compiler.tensor.composed.functions import where as where
    from ringup.compiler.tensor.composed.functions import zeros as zeros
    from ringup.compiler.tensor.core import Size as Size
    from ringup.compiler.tensor.files import Weights as Weights
    from ringup.compiler.tensor.files import load as load
    from ringup.compiler.tensor.files import load_gguf as load_gguf
    from ringup.compiler.tensor.files import load_npy as load_npy
    from ringup.compiler.tensor.files import load_npz as load_npz
    from ringup.compiler.tensor.files import load_safetensors as load_safetensors
    from ringup.compiler.tensor.files import load_torch as load_torch
    from ringup.compiler.tensor.files import save as save
    from ringup.compiler.tensor.files import save_safetensors as save_safetensors
    from ringup.compiler.tensor.gradients import custom_gradient as custom_gradient
    from ringup.compiler.tensor.gradients import gradient as gradient
    from ringup.compiler.tensor.history import enable_grad as enable_grad
    from ringup.compiler.tensor.history import inference_mode as inference_mode
    from ringup.compiler.tensor.history import is_grad_enabled as is_grad_enabled
    from ringup.compiler.tensor.history import no_grad as no_grad
    from ringup.compiler.tensor.history import set_grad_enabled as set_grad_enabled
    from ringup.compiler.tensor.layers import rotary_angles as rotary_angles
    from ringup.compiler.tensor.movement import meshgrid as meshgrid
    from ringup.compiler.tensor.places import checked as checked
    from ringup.compiler.tensor.random import Source as Source
    from ringup.compiler.tensor.random import manual_seed as manual_seed
    from ringup.compiler.tensor.realize import Evaluator as Evaluator
    from ringup.compiler.tensor.realize import device as device
    from ringup.compiler.tensor.realize import use as use
    from ringup.compiler.tensor.spelling.limits import finfo as finfo
    from ringup.compiler.tensor.spelling.limits import iinfo as iinfo
    from ringup.compiler.tensor.tensor import Tensor as Tensor


_FUNCTIONS = (
    "cat", "stack", "where", "einsum", "maximum", "minimum", "zeros", "ones", "full", "empty", "eye", "arange", "linspace",
    "rand", "randn", "randint", "complex", "polar",
)  # fmt: skip
_PLACES = {  # public name: module
    "Tensor": "tensor",
    "Size": "core",
    "manual_seed": "random",
    "Source": "random",
    "gradient": "gradients",
    "custom_gradient": "gradients",
    "device": "realize",
    "use": "realize",
    **dict.fromkeys(("no_grad", "enable_grad", "set_grad_enabled", "is_grad_enabled", "inference_mode"), "history"),
    "finfo": "spelling.limits",
    "iinfo": "spelling.limits",
    "Evaluator": "realize",
    "checked": "places",
    "meshgrid": "movement",
    "rotary_angles": "layers",
    "load_safetensors": "files",
    "save": "files",
    "save_safetensors": "files",
    "load_gguf": "files",
    **dict.fromkeys(_FUNCTIONS, "composed.functions"),
    "load": "files",
    "load_npy": "files",
    "load_npz": "files",
    "load_torch": "files",
    "Weights": "files",
}
__all__ = sorted(_PLACES)


def __getattr__(name: str) -> Any:
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"ringup.compiler.tensor has no {name!r}; there are {', '.join(__all__)}")
    return getattr(import_module(f"ringup.compiler.tensor.{place}"), name)


def __dir__() -> list[str]:
    return list(__all__)
