"""Files that hold AMD's GPU programs: ELF, kernel descriptors, metadata and fat binaries, read for a loader.

The compiler's own objects share the formats: `elf`, `kernel_descriptor`, `hsa_metadata` and `processors`.
"""
