"""A wave while its program is translated: registers, lanes and memory as LLVM IR.

The rules and the translator use these.
"""
