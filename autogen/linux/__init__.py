"""Linux interfaces that drivers speak: VFIO and PCI configuration space."""
