"""RDNA's back end: machine IR to instructions on virtual registers, and those to machine code."""
