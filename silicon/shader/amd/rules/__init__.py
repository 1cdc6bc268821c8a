"""The results of instructions as LLVM IR: one module for each family of instructions.

The translator and strict mode use these. They share no code with `values`, which is independent.
"""
