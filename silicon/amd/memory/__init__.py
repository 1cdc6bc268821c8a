"""A card's memory as its engines see it: VM hubs, page tables, caches, the host data path.

Imported by the graphics core and the board.
"""
