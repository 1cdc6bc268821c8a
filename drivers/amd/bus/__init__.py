"""What lies between the host and a Radeon's blocks: registers, windows, discovery, doorbells, interrupts.

Imported by every other room of the driver; imports none of them.
"""
