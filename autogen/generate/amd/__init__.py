"""Reads AMD's headers: registers, packets, chips, and fingerprints of published firmware.

Called by name from `manifest.toml`.
"""
