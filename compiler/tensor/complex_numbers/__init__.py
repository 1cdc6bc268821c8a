"""What tensors of complex numbers do that others do not, composed of their real and imaginary parts. The modules of
`tensor` come here where a tensor is complex.

Functions are good to a few units in the last place of the greater part, as NumPy's are. Signs of zeros tell the sides
of a branch cut apart; infinities and NaN give what the Python array API standard lists.
"""
