"""The resource manager as its client sees it: objects, controls, what it tells of a card. Two doors lead to it: calls
of the kernel's driver, and messages of the card's own firmware.
"""
