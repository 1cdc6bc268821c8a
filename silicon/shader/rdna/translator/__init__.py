"""The fast engine: programs to host code, kept, and run in slices.

Imported by the cards and the servers, as the engine that they run.
"""
