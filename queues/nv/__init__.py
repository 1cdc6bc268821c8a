"""NVIDIA's methods, GPFIFO queues, their streams and decoders, launch descriptors, cubins and kernel arguments.

Imported by `drivers/nv`, the compiler's runtime and tools; imports the vendor-neutral queues above it.
"""
