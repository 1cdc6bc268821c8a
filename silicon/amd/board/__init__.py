"""What a board adds: chips by name, discovery table, VBIOS, firmware images, bus interface, interrupts.

Imported by the card; imports the blocks.
"""
