"""The resource manager (RM): clients, their trees of objects, and what it does to the card.

It has no shape of any door. `gsp/` brings requests in by message queues; other doors may bring the same requests.
"""
