"""Servers that lend virtual devices to kernels: vfio-user for PCI functions, USB/IP for bridges.

Imported by the command alone; the cards know nothing of them.
"""
