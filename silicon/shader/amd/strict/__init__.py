"""Strict rules that depend on a wave's history: no use of undefined values, no use of loads in flight.

Analysis proves what it can before a run. Both engines use this package.
"""
