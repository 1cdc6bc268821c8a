"""What assembly text has in common whatever the instruction set: tokens, expressions, macros, source lines.

Imported by the vendors' folders; imports none of them.
"""
