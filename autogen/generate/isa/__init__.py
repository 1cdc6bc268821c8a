"""Facts about instructions, from an independent disassembler that is asked about every opcode and field.

`manifest.toml` calls this reader by name; it imports none of the other readers.
"""
