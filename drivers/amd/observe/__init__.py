"""What a card tells: reports, health, post-mortems, a look from a second process.

Imported by the card object and by commands; imports every room below.
"""
