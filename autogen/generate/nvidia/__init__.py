"""Reads NVIDIA's open kernel modules and class headers, by driver branch.

Called by name from `manifest.toml`.
"""
