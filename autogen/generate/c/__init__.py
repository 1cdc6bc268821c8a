"""Reads C headers as gcc 12 for x86-64 Linux would: macros, constants, structs. A header is hostile input.

Imported by the readers of the vendors' headers; imports the facts of `emit` alone.
"""
