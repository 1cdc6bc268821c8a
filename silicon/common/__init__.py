"""The parts of every virtual card: registers, time, memory, interrupts, posted writes, faults and the log.

Every folder of silicon imports it; it imports none of them.
"""
