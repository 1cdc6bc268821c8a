"""A card that NVIDIA's kernel driver drives: memory, channels and events through its nodes.

The driver starts the card, makes page tables and schedules the channels of all processes. Rings, pushbuffers and
timelines are this process's, so streams and queues are those of every path. No library of NVIDIA's is in the process.
"""
