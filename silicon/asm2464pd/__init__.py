"""A virtual enclosure: an ASM2464PD USB to PCI Express bridge with its firmware, a card behind it, and the USB host it is plugged into."""
