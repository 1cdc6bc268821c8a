"""RDNA machine code to instructions, control flow, and what each reads and writes. Both engines share it.

Imports no other room of RDNA.
"""
