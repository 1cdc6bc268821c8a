"""`ringup demo`: its steps, its output and the page that it writes.

Loaded by name when the command is given; nothing else imports it.
"""
