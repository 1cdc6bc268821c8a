"""Memory that translated code, the native scheduler and Python share: words of 64 bits by number, reasons to come back,
kinds of faults.
"""

from __future__ import annotations

from enum import IntEnum


class Word(IntEnum):
    """Words of a dispatch's context."""

    FUEL = 0  # instructions the wave may still run before it must let others run; below 0 when it went over
    REGIONS = 3  # address: regions met before, by page, four words each
    BASE = 4  # gpu_va of the program
    SHARED = 5  # aperture of the LDS, gpu_va >> 48
    PRIVATE = 6
    LDS_SIZE = 7
    UNALIGNED = 8  # 1: vector memory may be misaligned
    INTERPRET = 9  # address: executes one instruction of a wave
    MISS = 10  # address: finds a region
    FAULT_KIND = 11
    FAULT_DETAIL = 13
    LANES = 14  # counters from here
    MEMORY_TRANSACTIONS = 15
    CACHE_LINES = 16
    LDS_CONFLICTS = 17
    # the scheduler's
    BUDGET = 20  # instructions left in this slice
    QUANTUM = 21  # instructions a wave may run before the next one's turn
    NEXT = 22  # number of the next group to start, counted x first
    LAST = 23  # behind the last one
    COUNT_X = 24
    COUNT_Y = 25
    COUNT_Z = 26
    START_X = 27
    START_Y = 28
    START_Z = 29
    SLOT = 30  # where the round stands: group slot, wave
    WAVE = 31
    SLOTS = 32  # group slots
    GROUP_WAVES = 33  # wave slots in a group slot
    WAVE_BYTES = 34
    STATES = 35  # address: wave states
    GROUPS = 36  # address: group slots, GROUP_WORDS words each
    LDS = 37  # address
    LDS_STRIDE = 38
    TEMPLATES = 39  # address: for full and partial groups by axis, eight addresses of templates
    PLACE_X = 40  # byte offset in a wave's state that gets the group's number along x
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
    LDS_SHADOW = 51  # bytes from a byte of LDS to that which says whether it was written; in strict mode only


CONTEXT_WORDS = 64


class GroupWord(IntEnum):
    """Words of a group slot; it is free while no waves are left."""

    LEFT = 0  # waves that have not ended
    ARRIVED = 1  # waves at the barrier
    WAVES = 2
    NUMBER = 3


GROUP_WORDS = 8

# Words of a wave's state that are the scheduler's own.
STATUS_WORD = 146
ENTRY_WORD = 147  # where the wave goes on
CODE_WORD = 148  # and the next: address of its program
COUNTS_WORD = 152  # and the next: address, how often each block of that program ran
SITES_WORD = 154  # and the next: address, region caches of its memory instructions, four words of 64 bits each
SPARE_WORD = 150  # gets what no register is enabled for


class Status(IntEnum):
    """What a wave slot is doing."""

    ENDED = 0
    READY = 1
    WAITS = 2  # at the barrier
    STOPPED = 3  # halted, or broke a rule


class Leave(IntEnum):
    """What lies above the low byte of `Exit.LEAVE`: what is to be done first."""

    AT_ONCE = 0
    INTERPRET = 1  # the instruction
    TRACK = 2  # it reads LDS that nobody wrote: the wave goes on where such values are followed


class Exit(IntEnum):
    """Why a program or the scheduler returned: the low byte; what lies above is the entry at which the wave goes on, or
    a `Leave`.
    """

    NEXT = 0
    END = 1
    YIELD = 2
    BARRIER = 3
    FAULT = 4  # a rule was broken: FAULT_KIND, FAULT_DETAIL, PC of the wave
    LEAVE = 5  # PC is where no code was translated for, or at an instruction that the interpreter runs
    ERROR = 6  # a callback raised
    DONE = 7  # every wave of every group has ended
    STOPPED = 9  # the interpreter found a broken rule, or the wave has halted
    BUDGET = 8  # the slice is used up, or nobody can go on


FAULT_KINDS = ("memory", "alignment", "uninitialised", "hazard", "lds", "register", "illegal", "trap")
NOTE = 1 << 62  # in FAULT_DETAIL: the rest is the number of a text that goes with the translation
COUNTERS = (
    "vmcnt",
    "lgkmcnt",
    "vscnt",
    "expcnt",
)  # bits 32 and up of a hazard's detail; the lane is there for what is not written
LDS_UNWRITTEN = 1 << 60  # in the detail of what is not written: the rest is an address in LDS
EXEC_BITS_UNWRITTEN = 1 << 61  # in the detail of what is not written: bits that would get into EXEC
