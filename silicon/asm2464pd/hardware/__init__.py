"""The bridge's silicon: CPU memory, TLP engine, PCI Express side, SRAM, flash.

The firmware models import it; it imports none of them.
"""
