"""Register allocation: liveness, coalescing, budgets, spilling.

The pipeline imports it, and passes that need to know register pressure.
"""
