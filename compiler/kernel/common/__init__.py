"""What lowerings share: arguments, index arithmetic, operations of the graph as machine IR, staging in LDS.

Imported by every lowering; imports none of them.
"""
