"""A card's functions on the bus, and the host's path to them.

Cards and servers import it; it imports only `common`.
"""
