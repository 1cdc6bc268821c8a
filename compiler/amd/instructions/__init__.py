"""Instructions on virtual registers, their effects, and the differences between processors.

Every pass imports it; it imports none of them.
"""
