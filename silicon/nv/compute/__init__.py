"""Compute launches: the descriptor that a driver writes in memory, and the one form that shader cores take."""
