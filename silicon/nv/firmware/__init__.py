"""What a card's firmware does: images with their identities, FWSEC, the booter. No instruction of theirs is run."""
