"""Virtual NVIDIA cards: a folder for each part. `chips/` describes them, `board/`, `memory/` and `firmware/` are the
card around its GSP, `rm/` is the resource manager that the GSP's firmware is, and `gsp/` how the CPU talks to it.

Written from NVIDIA's published register manuals and its open kernel modules.
"""
