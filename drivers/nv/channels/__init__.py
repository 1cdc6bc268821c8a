"""Channels of a card whose GSP-RM ringup has started: the objects of GSP-RM, engines, contexts, faults, queues."""
