"""From a tensor graph to an ordered list of kernels: what is computed together, what lies in memory, and where."""
