"""Code that all lowerings share: arguments, index arithmetic, operations of the graph as machine IR, staging in LDS.

Every lowering imports it; it imports none of them.
"""
