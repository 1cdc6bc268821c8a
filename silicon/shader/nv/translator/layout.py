"""Memory that translated code and Python share: the words of a warp's state, and of a launch's context."""

from __future__ import annotations

from enum import IntEnum

from ringup.silicon.shader.nv.state import CONVERGENCE_END, LANES, REGISTER_ROWS, ROWS

# Words of a warp's state.
UNIFORMS = 0
PREDICATES = 64
UNIFORM_PREDICATES = 72


class Field(IntEnum):
    """Single words of a warp's state."""

    ACTIVE = 80
    ALIVE = 81
    # threads that wait at a convergence barrier, and at the group's
    CONVERGING = 82
    GROUPED = 83
    # the lane whose path ran last
    LAST = 84
    CTAID_X = 88
    CTAID_Y = 89
    CTAID_Z = 90
    # host addresses of the warp's local memory and of the group's shared memory, two words each
    LOCAL = 92
    SHARED = 94


# Rows of 32 lanes. The masks of WARPSYNC are one more convergence barrier.
CONVERGENCE = ROWS
WARPSYNC = (CONVERGENCE_END - CONVERGENCE) // LANES
PCS = CONVERGENCE_END + LANES
WAITS_AT = PCS + LANES
TIDS = WAITS_AT + LANES
# Masks of lanes in which a register was given a value: 256 registers, 8 predicates, 64 uniform registers, 8 uniform
# predicates. `undefined.py` uses them.
DEFINED = TIDS + 3 * LANES
REGISTERS = REGISTER_ROWS


class Own(IntEnum):
    """Words of 64 bits of the context beside those of `host.context.Word`."""

    # host addresses of the constant banks
    BANKS = 48
    INSTRUCTIONS = 58
    FAULT_PC = 59
    SITES = 60
    # bytes of a thread's local memory, gpu_va of both windows
    LOCAL_SIZE = 61
    SHARED_WINDOW = 62
    LOCAL_WINDOW = 63
    # bytes and gpu_va of the constant banks
    BANK_SIZES = 64
    BANK_VAS = 72


CONTEXT_WORDS = Own.BANK_VAS + 8


class Ended(IntEnum):
    """Why a warp's code returned."""

    END = 0
    BARRIER = 1
    BUDGET = 2
    FAULT = 3
    # threads wait for each other forever
    STUCK = 4


class Slot(IntEnum):
    """The state of a warp for the driver."""

    READY = 0
    BARRIER = 1
    ENDED = 2
