"""Firmware images: read, check and build containers, and find files in the store. Nothing here talks to a card."""
