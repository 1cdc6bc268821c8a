"""The reference engine: one instruction of one wave at a time, every rule checked as it happens.

Imported by the translator, for what that has no rule for.
"""
