"""What a board adds to the blocks: chips by name, discovery table, VBIOS, firmware images, bus interface, interrupts.

The card imports it; it imports the blocks.
"""
