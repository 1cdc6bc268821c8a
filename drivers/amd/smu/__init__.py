"""The power controller: messages, tables, sensors, limits.

Imports `bus` and `psp`.
"""
