"""The bridge's silicon: CPU memory, TLP engine, PCI Express side, SRAM, flash.

Imported by what runs on it; imports no firmware.
"""
