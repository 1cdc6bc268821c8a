"""The reference engine: one instruction of one warp at a time over NumPy lanes."""
