"""Read AMD's headers: registers, packets, chips, and fingerprints of published firmware.

`manifest.toml` calls these readers by name.
"""
