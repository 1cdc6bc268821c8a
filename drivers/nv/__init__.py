"""NVIDIA's cards: driven by ringup itself over PCI (`gsp`, `lifecycle`), or through the kernel's driver (`nodes`)."""
