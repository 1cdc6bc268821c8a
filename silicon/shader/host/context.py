"""Memory that translated code, the native scheduler and Python share: numbered 64-bit words, exit reasons, fault
kinds.
"""

from __future__ import annotations

from enum import IntEnum


class Word(IntEnum):
    """Words of a dispatch's context."""

    # Instructions that the wave may still run before it must yield; below 0 once it has exceeded that.
    FUEL = 0
    REGIONS = 3  # address: known regions, by page, four words each
    BASE = 4  # gpu_va of the program
    SHARED = 5  # aperture of the LDS, gpu_va >> 48
    PRIVATE = 6
    LDS_SIZE = 7
    UNALIGNED = 8  # 1: vector memory may be misaligned
    INTERPRET = 9  # address of the function that executes one instruction of a wave
    MISS = 10  # address of the function that finds a region
    FAULT_KIND = 11
    FAULT_DETAIL = 13
    LANES = 14  # counters from here
    MEMORY_TRANSACTIONS = 15
    CACHE_LINES = 16
    LDS_CONFLICTS = 17
    # Of the scheduler.
    BUDGET = 20  # instructions left in this slice
    QUANTUM = 21  # instructions of a wave's turn
    NEXT = 22  # number of the next group to start, among those that run here; x counts first
    LAST = 23  # end of those numbers
    COUNT_X = 24
    COUNT_Y = 25
    COUNT_Z = 26
    START_X = 27
    START_Y = 28
    START_Z = 29
    SLOT = 30  # position of the scheduler: group slot, wave
    WAVE = 31
    SLOTS = 32  # group slots
    GROUP_WAVES = 33  # wave slots in a group slot
    WAVE_BYTES = 34
    STATES = 35  # address: wave states
    GROUPS = 36  # address: group slots, GROUP_WORDS words each
    LDS = 37  # address
    LDS_STRIDE = 38
    TEMPLATES = 39  # address: for full and partial groups by axis, eight addresses of templates
    PLACE_X = 40  # byte offset in a wave's state where the group's number along x is stored
    PLACE_Y = 41
    PLACE_Z = 42
    SCRATCH_BASE = 43
    SCRATCH_BYTES = 44
    HARDWARE_IDS = 45  # address: HW_ID1 and HW_ID2 of each wave slot
    STARTED = 46  # waves
    PARTIAL = 47  # bit i: the last group along axis i is partial
    HEAD_BYTES = 48  # of a wave's template: its words up to VGPR 1
    LIVE = 49  # group slots in use
    HIGH = 50  # group slots that were ever in use
    # Distance in bytes from a byte of LDS to its shadow, which says whether it was written; in strict mode only.
    LDS_SHADOW = 51
    # Byte offset in a wave's state where the group's numbers along y (low half) and z are stored.
    PLACE_YZ = 52
    # Which groups of the grid run here: own number, number of dies, groups in a chunk; chunks go to the dies in turn.
    SHARE_OWN = 53
    SHARE_DIES = 54
    SHARE_CHUNK = 55
    # Byte offset in a wave's state where the address of its scratch memory is stored.
    PLACE_SCRATCH = 56


CONTEXT_WORDS = 64


class GroupWord(IntEnum):
    """Words of a group slot. The slot is free when no waves are left."""

    LEFT = 0  # waves that have not ended
    ARRIVED = 1  # waves at the barrier
    WAVES = 2
    NUMBER = 3
    SIGNALS = 4  # of the group's split barrier
    TRAP_SIGNALS = 5  # of the trap handler's


GROUP_WORDS = 8

# Words of a wave's state that belong to the scheduler.
STATUS_WORD = 146
ENTRY_WORD = 147  # where the wave continues
CODE_WORD = 148  # and the next: address of its program
COUNTS_WORD = 152  # and the next: address, how often each block of that program ran
SITES_WORD = 154  # and the next: address, region caches of its memory instructions, four words of 64 bits each
# and the next: what strict rules need of the wave's last instructions, a number of its translation
SEQUENCE_WORD = 160
SPARE_WORD = 150  # dummy target for registers that are not enabled


class Status(IntEnum):
    """The state of a wave slot."""

    ENDED = 0
    READY = 1
    WAITS = 2  # at the barrier
    STOPPED = 3  # halted, or broke a rule


class Leave(IntEnum):
    """What Python must do first; in the bits above the low byte of `Exit.LEAVE`."""

    AT_ONCE = 0
    INTERPRET = 1  # execute the instruction
    # The wave loads LDS bytes that were never written: it continues in code that tracks them.
    TRACK = 2


class Exit(IntEnum):
    """Why a program or the scheduler returned, in the low byte.

    Above it is the entry at which the wave continues, or a `Leave`.
    """

    NEXT = 0
    END = 1
    YIELD = 2
    BARRIER = 3
    FAULT = 4  # a rule was broken: FAULT_KIND, FAULT_DETAIL, PC of the wave
    LEAVE = 5  # no code was translated for PC, or the interpreter executes its instruction
    ERROR = 6  # a callback raised
    DONE = 7  # every wave of every group has ended
    STOPPED = 9  # the interpreter found a broken rule, or the wave has halted
    BUDGET = 8  # the slice is used up, or no wave can continue
    SIGNAL = 10  # the wave signals the group's split barrier, and continues
    SIGNAL_FIRST = 11  # the same; SCC becomes whether it is the first
    WAIT = 12  # it waits for a split barrier; once woken it looks again


FAULT_KINDS = ("memory", "alignment", "uninitialised", "hazard", "lds", "register", "illegal", "trap")
# In FAULT_DETAIL: the rest is the number of a text of the translation.
NOTE = 1 << 62
# In the detail of a hazard: bits 32 and up. In that of an uninitialised VGPR the lane is there.
COUNTERS = (
    "vmcnt", "lgkmcnt", "vscnt", "expcnt", "loadcnt", "storecnt", "samplecnt", "bvhcnt", "dscnt", "kmcnt",
)  # fmt: skip
# In the detail of `uninitialised`: the rest is an address in LDS.
LDS_UNWRITTEN = 1 << 60
# In the detail of `uninitialised`: these bits would be written to EXEC.
EXEC_BITS_UNWRITTEN = 1 << 61
