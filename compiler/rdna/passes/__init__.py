"""Passes over selected code, one a module: order, pairs, clauses, waits, delays and hazards.

Imported by the pipeline alone.
"""
