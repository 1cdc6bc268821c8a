"""The graphics core's blocks: its register bus, hardware queues, dispatcher, sequencers and RLC; `cp/` has the command
processors.

It imports `memory` and `common`; the board connects it.
"""
