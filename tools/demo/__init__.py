"""`ringup demo`: its steps, what it shows and the page that it leaves.

Loaded by name when the command is given; nothing else imports it.
"""
