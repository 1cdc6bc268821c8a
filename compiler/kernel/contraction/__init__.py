"""Matrix products and convolutions, by multiply-adds or by matrix instructions.

`choose.py` and attention import it.
"""
