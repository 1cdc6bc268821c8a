"""Instruction selection: from machine IR to RDNA instructions on virtual registers.

`amd/target.py` imports it. It imports the instructions and `legalize`.
"""
