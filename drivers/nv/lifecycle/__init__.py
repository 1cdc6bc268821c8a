"""A card from power-on to power-off: the states in which it is found, its start, its end, resets."""
