"""Memory of an address space: ranges, buffers, the places that the driver keeps for itself.

Imports `bus`, `gmc` and `psp`.
"""
