"""The graph of tensors: immutable nodes, element types, whole-number expressions of axes.

Imported by every room of the compiler; imports none of them.
"""
