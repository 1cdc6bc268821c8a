"""The chip on its bus: registers, which chip it is, its ROM, its interrupts, and a window into its memory."""
