"""Code objects: ELF files, kernel descriptors and metadata, written and read.

Imported by the assembly beside it and by the back end.
"""
