"""A copy engine: its queues, and what its packets do.

Imported by the card.
"""
