"""Drivers: transports, the blocks of each vendor's cards, the card objects that wire them."""
