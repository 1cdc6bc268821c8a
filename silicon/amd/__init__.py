"""Virtual Radeons: the hardware blocks of AMD's cards, a module or a room a block; chips are rows of
`board/chips.py`.
"""
