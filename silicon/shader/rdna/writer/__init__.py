"""A program while it is translated: registers, lanes, memory as LLVM IR.

Imported by the rules and the translator.
"""
