"""Facts about Qualcomm's Adreno: registers, packets, descriptors and the kernel interfaces that reach them."""
