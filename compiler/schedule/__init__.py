"""From a tensor graph to an ordered list of kernels: what is computed together, what is stored in memory, and where."""
