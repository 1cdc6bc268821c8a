"""A bare card's memory: the windows through which the CPU reaches VRAM, and the address space of its queues."""
