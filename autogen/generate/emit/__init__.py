"""Facts, and writing them as modules and databases: the same facts give the same bytes.

Imported by every reader; imports none of them.
"""
