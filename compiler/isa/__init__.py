"""Instruction sets as text and as machine code: a folder for each vendor, and the parts of assembly text that all
vendors have in common.
"""
