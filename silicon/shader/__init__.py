"""The shader core: runs a GPU's real machine code, by a reference interpreter and by translation to host vector
code.
"""
