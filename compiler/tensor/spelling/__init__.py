"""How users write what the tensor language has: other words for parameters, other names of types, values as text.

This room knows no tensors. The class `Tensor` is decorated with it.
"""
