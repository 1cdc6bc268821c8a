"""What instructions compute, as functions over NumPy lanes, by the ISA document.

Imported by the interpreter alone: the translator has rules of its own.
"""
