"""A card's start, resets and shutdown, from whatever state it is found in.

Imported by the card object and by commands that act on a card that no driver holds.
"""
