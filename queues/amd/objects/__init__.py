"""Parsers of the files that hold AMD's GPU programs, for a loader: ELF, kernel descriptors, metadata, fat binaries.

The compiler uses `elf`, `kernel_descriptor`, `hsa_metadata` and `processors` for the objects that it writes.
"""
