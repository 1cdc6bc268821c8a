"""Commands about programs and packets: assemble, disassemble, compile, explain, tune, decode. They need no card.

Loaded by name when the command is given.
"""
