"""The benches, one a module. Each measures ringup and its competitor in the same run.

Imported by `ringup.tools.bench.bench`, which lists them.
"""
