"""Gradients held within bounds, parameters as one vector, sequences of several lengths; with PyTorch's names."""

from ringup.nn.utils import rnn as rnn
from ringup.nn.utils.clipping import clip_grad_norm_ as clip_grad_norm_
from ringup.nn.utils.clipping import clip_grad_value_ as clip_grad_value_
from ringup.nn.utils.clipping import get_total_norm as get_total_norm
from ringup.nn.utils.clipping import parameters_to_vector as parameters_to_vector
from ringup.nn.utils.clipping import vector_to_parameters as vector_to_parameters
