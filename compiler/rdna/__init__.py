"""RDNA's back end: from machine IR to instructions on virtual registers, and from those to machine code."""
