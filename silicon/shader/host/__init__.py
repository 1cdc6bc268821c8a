"""Host code: LLVM IR as text, its compilation, the scheduler of waves, helpers for vector memory.

Knows no instruction set; imported by what writes programs.
"""
