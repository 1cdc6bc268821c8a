"""Matrix products and convolutions, by multiply-adds or by matrix instructions.

Imported by `choose.py` and by attention.
"""
