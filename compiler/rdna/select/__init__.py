"""Instruction selection: from machine IR to RDNA instructions on virtual registers.

`rdna/target.py` imports it. It imports the instructions and `legalize`.
"""
