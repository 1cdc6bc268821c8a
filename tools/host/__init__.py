"""Commands about this computer: checks (`doctor`), rules for users, firmware files, header packages.

Loaded by name when the command is given.
"""
