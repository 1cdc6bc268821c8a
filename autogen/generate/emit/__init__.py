"""Facts, and writing them as modules and databases: the same facts give the same bytes.

Every reader imports this package; it imports none of them.
"""
