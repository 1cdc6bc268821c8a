"""A card's memory: VRAM with its protected region, page tables, and the windows that the bus has into it."""
