"""The memory controller: hubs, address spaces in them, page tables, page faults.

Imports `bus` alone.
"""
