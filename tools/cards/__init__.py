"""Commands that act on one card, one module for each, and their shared parts.

Loaded by name when the command is given; `ringup.tools.demo` imports some.
"""
