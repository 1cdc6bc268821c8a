"""The same kernels through LLVM's AMDGPU back end, to compare our code with.

Only the bench of compiled code imports it.
"""
