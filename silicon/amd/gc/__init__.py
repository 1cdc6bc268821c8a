"""The graphics core: its register bus, command processor, packets, queues, scheduler and dispatcher.

Imports `memory` and the parts; the board wires it.
"""
