"""Host code: LLVM IR as text, its compilation, the wave scheduler, helpers for vector memory.

This package knows no instruction set. Translators use it.
"""
