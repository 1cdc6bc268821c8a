"""Instruction sets as text and as machine code: a folder a vendor, and what assembly texts of all vendors share."""
