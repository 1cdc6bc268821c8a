"""Gradients with PyTorch's names: `grad`, functions with a gradient of their own, and in `functional` the matrices of
derivatives.
"""

from ringup.autograd import functional as functional
from ringup.autograd.function import Function as Function
from ringup.autograd.function import FunctionCtx as FunctionCtx
from ringup.autograd.gradients import backward as backward
from ringup.autograd.gradients import grad as grad
from ringup.compiler.tensor.history import enable_grad as enable_grad
from ringup.compiler.tensor.history import inference_mode as inference_mode
from ringup.compiler.tensor.history import no_grad as no_grad
from ringup.compiler.tensor.history import set_grad_enabled as set_grad_enabled
