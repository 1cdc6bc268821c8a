"""The way to a card: the seam every driver stands on, and the transports that supply it."""
