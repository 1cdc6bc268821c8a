"""Observing a card: reports, health, post-mortems, watching it from a second process.

Imported by the card object and by commands; imports every room below.
"""
