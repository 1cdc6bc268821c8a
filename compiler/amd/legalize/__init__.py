"""Rewrites of machine IR: operations without an RDNA instruction become operations with one.

Only instruction selection imports it.
"""
