"""Read NVIDIA's open kernel modules and class headers, by driver branch.

`manifest.toml` calls these readers by name.
"""
