"""Decode RDNA machine code: instructions, control flow, and what each instruction reads and writes.

Both engines use this package. It imports no other package of RDNA.
"""
