"""A driver's accesses written down as a transcript, and a transcript played as a card.

Loaded by name as the transport `replay`; tools import the recorder.
"""
