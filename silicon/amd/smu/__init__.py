"""The power controller: mailbox, tables, power and temperature.

The board imports it.
"""
