"""The same kernels through LLVM's AMDGPU back end, to compare our code with.

Imported by the bench of compiled code alone.
"""
