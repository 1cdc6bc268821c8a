"""The security processor: boot loader, command ring, and what it checks of an image.

Imported by the board, whose firmware is signed for it.
"""
