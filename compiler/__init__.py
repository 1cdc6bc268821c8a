"""The tensor compiler: from a lazy graph of tensor operations to machine code. Needs no card; `compiler/isa` knows the instruction sets."""
