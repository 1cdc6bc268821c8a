"""Read public headers and write the fact modules. No driver imports this package."""
