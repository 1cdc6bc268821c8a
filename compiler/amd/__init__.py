"""The back end of RDNA and CDNA3: from machine IR to instructions on virtual registers, and from those to machine
code.
"""
