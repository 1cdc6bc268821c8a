"""Instructions to bits and back, and to text, from one row of facts an opcode.

Imported by the assembly and the object files beside it.
"""
