"""Firmware images of AMD's cards."""
