"""Firmware images: containers read, checked and built, and the store that finds the files. Nothing here talks to a
card.
"""
