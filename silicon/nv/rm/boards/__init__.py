"""What the resource manager answers about a chip and its board: engines, vectors, shader cores, memory."""
