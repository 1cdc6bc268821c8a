"""The security processor, and the firmware that goes through it.

Imports `bus` alone.
"""
