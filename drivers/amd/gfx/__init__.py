"""The graphics core for compute, its hardware queues and its copy engines.

Imports `bus` alone.
"""
