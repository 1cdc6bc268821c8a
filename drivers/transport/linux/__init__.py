"""The way to a card over Linux's nodes: sysfs and VFIO, who holds a card, what must be so before it is touched.

Loaded by name as the transport `pci`; `usb4` and tools import parts of it.
"""
