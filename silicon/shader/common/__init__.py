"""Waves and dispatches: the types that all vendors' cores and their callers share.

Every package of the cores imports this one; it imports none of them.
"""
