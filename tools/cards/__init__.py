"""Commands that act on one card, a module each, and what they share.

Loaded by name when the command is given; `ringup.tools.demo` imports some.
"""
