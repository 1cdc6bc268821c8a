"""The command processors: queues and their packets (PM4 and AQL), the graphics ring, and the scheduler's firmware.

From outside, `processor.Cp` is the way in: it owns the queues, and what a packet does goes back through it. Inside,
packet modules know the parser, the parser knows its queue, and a queue knows the processor. The room imports `gc`; the
board's graphics core connects it.
"""
