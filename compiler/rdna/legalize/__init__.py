"""Rewrites of machine IR: what no RDNA instruction does becomes what instructions do.

Imported by instruction selection alone.
"""
