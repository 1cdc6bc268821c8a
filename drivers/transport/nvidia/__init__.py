"""NVIDIA's kernel driver as a path to its cards: its device nodes, the calls that they take, what they map.

No library of NVIDIA's is in the process: these are the system calls that such a library makes.
"""
