"""AMD's packets (PM4, SDMA), their streams and decoders, code objects and kernel arguments.

Imported by `drivers/amd`, the compiler's runtime and tools; imports the vendor-neutral queues above it.
"""
