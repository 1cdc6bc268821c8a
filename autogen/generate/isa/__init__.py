"""Facts about instructions, by asking an independent disassembler about every opcode and field.

Called by name from `manifest.toml`; imports nothing of the other readers.
"""
