"""The benches, one a module. Each measures ringup and its competitor side by side in one run.

Imported by `ringup.tools.bench.bench`, which lists them.
"""
