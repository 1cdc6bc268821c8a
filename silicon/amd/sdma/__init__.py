"""A copy engine: its queues and its packets.

The card imports it.
"""
