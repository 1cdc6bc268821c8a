"""Kernels that work along one axis: elementwise work, reductions of rows, scans, sorts.

`choose.py` imports it.
"""
