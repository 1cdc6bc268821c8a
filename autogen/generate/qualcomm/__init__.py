"""Read Mesa's XML of Adreno's registers and packets.

`manifest.toml` calls this reader by name.
"""
