"""Reads and writes code objects: ELF files, kernel descriptors and metadata.

The assembly package and the back end import it.
"""
