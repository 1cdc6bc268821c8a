"""Kernels that walk along one axis: elementwise work, reductions of rows, scans, sorts.

Imported by `choose.py`.
"""
