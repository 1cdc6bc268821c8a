"""The results of instructions as functions over NumPy lanes, by the ISA document.

Only the interpreter uses this package; the translator has its own rules.
"""
