"""The benchmarks' frame: what a bench is given, how things are timed, figures and how they are shown.

The command and the benches import it; a figure is never a test.
"""
