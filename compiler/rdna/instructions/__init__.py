"""Instructions on virtual registers, what each reads and does, and what processors differ in.

Imported by every pass; imports none of them.
"""
