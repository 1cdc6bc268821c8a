"""Rules that need a wave's history: undefined values, loads in flight. Proven before a run where they can be.

Imported by both engines.
"""
