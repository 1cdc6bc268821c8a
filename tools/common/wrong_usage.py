"""Errors of a command's words and input. Imports nothing, so it works even if other modules are damaged."""


class WrongUsage(Exception):
    """Words that argparse accepts and the command refuses; the command ends with status 2."""


class BadInput(Exception):
    """A file with contents that the command cannot use; the command ends with status 1."""
