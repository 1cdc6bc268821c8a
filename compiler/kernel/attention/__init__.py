"""Attention in one kernel, by three lowerings.

`choose.py` imports it. It imports the tiles of `contraction`.
"""
