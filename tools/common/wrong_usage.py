"""Errors of a command's words and input alone. Imports nothing, so it is there whatever else is damaged."""


class WrongUsage(Exception):
    """Words of the command line that argparse takes and no command does; the command ends with status 2."""


class BadInput(Exception):
    """A file that holds something else than the command takes; the command ends with status 1."""
