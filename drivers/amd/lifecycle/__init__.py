"""A card's start, resets and rest, from whatever state it is found in.

Imported by the card object and by commands that act on a card which nobody drives.
"""
