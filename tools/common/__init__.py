"""What commands share: files, tables, progress, numbers and JSON as text.

All other folders of tools import it; it imports none of them.
"""
