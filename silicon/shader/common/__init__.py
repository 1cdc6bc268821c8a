"""What a wave and a dispatch are, for every vendor's cores and for whoever starts them.

Imported by every room of the cores; imports none of them.
"""
