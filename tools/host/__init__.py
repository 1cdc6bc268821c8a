"""Commands about this computer: what is missing (`doctor`), rules for users, firmware files, header packages.

Loaded by name when the command is given.
"""
