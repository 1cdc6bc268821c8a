"""Register allocation: liveness, coalescing, budgets, spilling.

Imported by the pipeline and by passes that ask what registers cost.
"""
