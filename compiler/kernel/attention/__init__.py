"""Attention in one kernel, by three lowerings.

Imported by `choose.py`; imports the tiles of `contraction`.
"""
