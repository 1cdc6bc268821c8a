"""The graph of tensors: immutable nodes, element types, integer expressions of axes.

Every package of the compiler imports it; it imports none of them.
"""
