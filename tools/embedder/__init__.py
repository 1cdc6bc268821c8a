"""A published sentence embedder as tensors, and the same in NumPy to compare with.

Imported by the demo and by tests.
"""
