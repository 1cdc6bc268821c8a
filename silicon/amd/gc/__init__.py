"""The graphics core: its register bus, command processor, packets, queues, scheduler and dispatcher.

It imports `memory` and `common`; the card wires it.
"""
