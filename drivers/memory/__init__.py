"""Memory of a card's address space, whoever made the card: ranges, tables of buffers, the CPU's access."""
