"""The blocks of one card wired together, and the mark that a driver leaves on it.

Imports the blocks; starts none of them.
"""
