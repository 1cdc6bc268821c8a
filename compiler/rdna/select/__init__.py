"""Instruction selection: machine IR to RDNA instructions on virtual registers.

Imported by `compile.py`; imports the instructions and `legalize`.
"""
