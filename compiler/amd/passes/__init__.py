"""Passes over selected code, one in each module: scheduling, dual issue, clauses, waits, delays and hazards.

Only the pipeline imports them.
"""
