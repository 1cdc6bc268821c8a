"""Servers that make virtual devices available to kernels: vfio-user for PCI functions, USB/IP for bridges.

Only the command imports it; the cards do not know it.
"""
