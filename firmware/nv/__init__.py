"""Firmware images of NVIDIA's cards."""
