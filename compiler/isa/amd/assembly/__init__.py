"""Whole programs as text: assembler, disassembler, and shader code written in Python.

Imported by tools and tests; the compiler itself emits instructions without text.
"""
