"""A published sentence embedder as tensors, and in NumPy as reference.

Imported by the demo and by tests.
"""
