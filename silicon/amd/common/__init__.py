"""What the blocks of a Radeon know of each other, and what the packets of several engines share.

Every block imports this folder; it imports none of them.
"""
