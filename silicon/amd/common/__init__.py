"""What the blocks of a Radeon know of each other, and what packets of several engines share.

Imported by every block; imports none of them.
"""
