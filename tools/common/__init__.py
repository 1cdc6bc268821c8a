"""What commands share: files, tables, progress, numbers and JSON as text.

Imported by every room of tools; imports none of them.
"""
