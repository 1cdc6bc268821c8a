"""Target-neutral machine IR: what one thread of a kernel does, in single assignment, between the kernel IR and a
target's instructions.
"""
