"""Reads Mesa's XML of Adreno's registers and packets.

Called by name from `manifest.toml`.
"""
