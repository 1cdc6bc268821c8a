"""A card's functions on the bus, and the host's way to them.

Imported by the cards and the servers; imports `common` alone.
"""
