"""The power controller: mailbox, tables, power and heat.

Imported by the board.
"""
