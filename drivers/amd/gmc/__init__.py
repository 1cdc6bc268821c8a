"""The memory controller: VM hubs and their address spaces, page tables, page faults.

Imports `bus` alone.
"""
