"""The parts of assembly text that do not depend on the instruction set: tokens, expressions, macros, source lines.

The vendors' folders import it. It imports none of them.
"""
