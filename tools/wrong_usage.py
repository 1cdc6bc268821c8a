"""The error of words that argparse takes and no command does. Imports nothing, so it is there whatever else is damaged."""


class WrongUsage(Exception):
    """Words of the command line that argparse takes and no command does; the command ends with status 2."""
