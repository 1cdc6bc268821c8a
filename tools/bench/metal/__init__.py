"""The check of a real card that stays with NVIDIA's kernel driver: its stages, their steps, its report.

`ringup.tools.bench.metal_nv` runs it. Only public interfaces of the driver and system calls are used; no library of
NVIDIA's is loaded.
"""
