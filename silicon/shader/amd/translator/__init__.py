"""The fast engine: translates programs to host code, keeps the translations, and runs waves in time slices.

The cards and the servers use this engine.
"""
