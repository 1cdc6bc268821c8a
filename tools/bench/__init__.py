"""What all benches share: their arguments, timing, figures and how figures are shown.

The command and the benches import it. No test depends on a figure.
"""
