"""Virtual NVIDIA cards: a folder for each part. `rm/` is the resource manager that the GSP's firmware is, and `gsp/`
how the CPU talks to it.
"""
