"""Whole programs as text: assembler, disassembler, and shader code written in Python.

Tools and tests import it. The compiler itself emits instructions without text.
"""
