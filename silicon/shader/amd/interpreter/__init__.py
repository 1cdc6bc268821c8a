"""The reference engine: it executes one instruction of one wave at a time and checks every rule.

The translator uses it for instructions that have no rule of its own.
"""
