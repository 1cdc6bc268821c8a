"""Read C headers as gcc 12 for x86-64 Linux would: macros, constants, structs. Headers are untrusted input.

The readers of the vendors' headers use this package; it imports only the facts of `emit`.
"""
