"""Target-neutral machine IR, in single assignment: the code of one thread of a kernel, between the kernel IR and a
target's instructions.
"""
