"""The parts of a card around its engines: ROM, falcons, interrupts, timer, windows."""
