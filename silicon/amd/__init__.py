"""Virtual Radeons: the hardware blocks of AMD's cards, one module a block; chips are rows of `chips.py`."""
