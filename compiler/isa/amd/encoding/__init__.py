"""Converts instructions to bits, back, and to text, all from one row of facts for each opcode.

The assembly package and the object files import it.
"""
