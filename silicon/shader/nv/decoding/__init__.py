"""Decoding: words of a program become instructions with typed operands."""
