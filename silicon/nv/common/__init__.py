"""What all parts of a card use: registers by address, and the identities of signed images."""
