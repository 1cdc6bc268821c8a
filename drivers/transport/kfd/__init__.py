"""A card that stays with the kernel's amdgpu driver: its compute node /dev/kfd, its render node, its files in sysfs.

Imports `drivers/transport` and `drivers/transport/linux`.
"""
