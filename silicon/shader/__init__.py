"""The shader cores: they run a GPU's real machine code, in a reference interpreter or translated to host vector
code.
"""
