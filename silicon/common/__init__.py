"""What every virtual card is made of: registers, time, memory, interrupts, posted writes, faults and the log.

Imported by every room of silicon; imports none of them.
"""
