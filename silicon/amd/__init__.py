"""Virtual Radeons: AMD's hardware blocks, a module or folder for each. Chips are rows of `board/chips.py`."""
