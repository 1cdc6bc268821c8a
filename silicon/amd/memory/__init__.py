"""A card's memory as its engines see it: VM hubs, page tables, caches, the host data path.

The graphics core and the board import it.
"""
