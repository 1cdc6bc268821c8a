"""The GSP's firmware as behaviour: message queues in memory, calls by number, events, and the resource manager behind.

No RISC-V code runs. The card calls `firmware.GspFirmware` when the processor was started.
"""
