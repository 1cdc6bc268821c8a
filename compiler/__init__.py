"""From a tensor graph to a GPU's machine code, with no vendor's compiler in between."""
