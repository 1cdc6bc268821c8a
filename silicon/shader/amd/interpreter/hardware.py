"""The hardware registers of a wave, which s_getreg_b32 reads and s_setreg_b32 writes.

Source: RDNA3 and RDNA4 ISA references, "Wave State Registers".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ringup.errors import Unmodelled
from ringup.silicon.shader.amd.decoding.generations import CDNA3, RDNA3, RDNA4
from ringup.silicon.shader.amd.interpreter.step import Exit
from ringup.silicon.shader.common.launch import (
    GROUP_BARRIER,
    STATUS_EXECZ,
    STATUS_IN_GROUP,
    STATUS_NO_VGPRS,
    STATUS_PRIV,
    STATUS_TRAP_EN,
    STATUS_VALID,
    STATUS_VCCZ,
    gfx9_place,
)
from ringup.silicon.shader.common.state import (
    EXCP_USER,
    EXEC_LO,
    FLAT_SCRATCH_HI,
    FLAT_SCRATCH_LO,
    HW_ID1,
    HW_ID2,
    MODE,
    SCC,
    SCHED_MODE,
    STATUS,
    TRAP_CTRL,
    TRAPSTS,
    VCC_LO,
    WAVE_IN_GROUP,
)

if TYPE_CHECKING:
    from ringup.silicon.shader.amd.interpreter.step import Step

STATUS_FATAL_HALT = 1 << 23
# Bits that a trap handler may write: SCC, priorities, HALT, export and debug bits.
STATUS_WRITABLE = 0x2A34_211F
CYCLES_MASK = 0xF_FFFF
LDS_ALLOC_BYTES = 512  # the unit of LDS_ALLOC.lds_size on CDNA3


def _status(step: Step) -> int:
    words = step.regs.words
    lanes = step.regs.lane_count // 32
    value = int(words[STATUS]) & ~(1 | STATUS_EXECZ | STATUS_VCCZ) | int(words[SCC]) & 1
    value |= STATUS_EXECZ * (not words[EXEC_LO : EXEC_LO + lanes].any())
    return value | STATUS_VCCZ * (not words[VCC_LO : VCC_LO + lanes].any())


def _bases(step: Step) -> int:
    return step.machine.dispatch.private_aperture | step.machine.dispatch.shared_aperture << 16


def _word(number: int) -> Callable[[Step], int]:
    return lambda step: int(step.regs.words[number])


def _cycles(step: Step) -> int:
    """Return a count of one cycle for each instruction."""
    return step.machine.counters.instructions


def _place(step: Step) -> int:
    """Return HW_ID of CDNA3: wave 3:0, SIMD 5:4, compute unit 11:8, engine 15:13, VMID 23:20."""
    wave, simd, unit, engine = gfx9_place(int(step.regs.words[HW_ID1]))
    return wave | simd << 4 | unit << 8 | engine << 13 | step.machine.dispatch.vmid << 20


# Bits of RDNA4's STATUS that RDNA3 has in the same places: PRIV, TRAP_EN, EXECZ, VCCZ, IN_WG, VALID, FATAL_HALT,
# NO_VGPRS. WAVE64 is RDNA4's own.
_STATUS_SHARED = (
    STATUS_PRIV | STATUS_TRAP_EN | STATUS_EXECZ | STATUS_VCCZ | STATUS_IN_GROUP | STATUS_VALID | STATUS_FATAL_HALT | STATUS_NO_VGPRS
)  # fmt: skip
_STATUS_WAVE64 = 1 << 29
# Fields of STATE_PRIV: lowest bit there, in STATUS as the engines keep it, and mask. SCC, SYS_PRIO, USER_PRIO, HALT,
# SCRATCH_EN.
_STATE_FIELDS = ((9, 0, 1), (10, 1, 3), (12, 3, 3), (14, 13, 1), (18, 29, 1))
_STATE_COMPLETE = 1 << 2
# Flags of EXCP_FLAG_PRIV, and the bits of TRAPSTS in which the engines keep them: a memory violation, an illegal
# instruction.
_EXCEPTIONS = ((4, 8), (6, 11))


def _status_of_rdna4(step: Step) -> int:
    return _status(step) & _STATUS_SHARED | _STATUS_WAVE64 * (step.regs.lane_count == 64)


def _state(step: Step) -> int:
    status = _status(step)
    complete = int(step.regs.words[WAVE_IN_GROUP]) in step.group.barriers[GROUP_BARRIER].complete
    return sum((status >> low & mask) << place for place, low, mask in _STATE_FIELDS) | _STATE_COMPLETE * complete


def _set_state(step: Step, value: int) -> None:
    words = step.regs.words
    for place, low, mask in _STATE_FIELDS:
        words[STATUS] = int(words[STATUS]) & ~(mask << low) & 0xFFFF_FFFF | (value >> place & mask) << low
    step.regs.scc = value >> 9 & 1
    barrier, wave = step.group.barriers[GROUP_BARRIER], int(words[WAVE_IN_GROUP])
    (barrier.complete.add if value & _STATE_COMPLETE else barrier.complete.discard)(wave)


def _exceptions(step: Step) -> int:
    return sum((int(step.regs.words[TRAPSTS]) >> low & 1) << place for place, low in _EXCEPTIONS)


def _set_exceptions(step: Step, value: int) -> None:
    words = step.regs.words
    for place, low in _EXCEPTIONS:
        words[TRAPSTS] = int(words[TRAPSTS]) & ~(1 << low) | (value >> place & 1) << low


# HW_REG number: the function that reads it, by generation. Source: RDNA3 and RDNA4 ISA references, "Wave State
# Registers".
_HARDWARE_RDNA3: Mapping[int, Callable[[Step], int]] = {
    1: lambda step: int(step.regs.words[MODE]),
    2: _status,
    3: lambda step: int(step.regs.words[TRAPSTS]),
    15: _bases,
    20: lambda step: int(step.regs.words[FLAT_SCRATCH_LO]),
    21: lambda step: int(step.regs.words[FLAT_SCRATCH_HI]),
    23: lambda step: int(step.regs.words[HW_ID1]),
    24: lambda step: int(step.regs.words[HW_ID2]),
    29: lambda step: _cycles(step) & CYCLES_MASK,
}
_HARDWARE_RDNA4: Mapping[int, Callable[[Step], int]] = {
    1: _word(MODE),
    2: _status_of_rdna4,
    4: _state,
    17: _exceptions,
    18: _word(EXCP_USER),
    19: _word(TRAP_CTRL),
    20: _word(FLAT_SCRATCH_LO),
    21: _word(FLAT_SCRATCH_HI),
    23: _word(HW_ID1),
    24: _word(HW_ID2),
    # Absent from the document. Linux' trap handler saves it: cwsr_trap_handler_gfx12.asm. Its bits have no effect here.
    26: _word(SCHED_MODE),
    29: lambda step: _cycles(step) & 0xFFFF_FFFF,
    30: lambda step: _cycles(step) >> 32,
}
# GUESS: the bits of a wave's place and sizes that are zero here. Source: CDNA3 ISA reference, "Hardware Registers";
# LLVM SIDefines.h, Hwreg; Linux gc_9_4_3_sh_mask.h, SQ_WAVE_*.
_HARDWARE_CDNA3: Mapping[int, Callable[[Step], int]] = {
    1: _word(MODE),
    2: _status,
    3: _word(TRAPSTS),
    4: _place,
    5: lambda step: (max(step.regs.wave.vgpr_count + step.regs.wave.acc_count, 8) // 8 - 1) << 8,
    6: lambda step: -(-step.machine.dispatch.lds_size_bytes // LDS_ALLOC_BYTES) << 12,
    7: lambda step: 0,
    15: _bases,
    20: lambda step: step.machine.dispatch.xcc_id,
}
HARDWARE = {RDNA3.family: _HARDWARE_RDNA3, RDNA4.family: _HARDWARE_RDNA4, CDNA3.family: _HARDWARE_CDNA3}
FLUSH_IB = 14
# HW_REG number: word, bits that a program may write, bits that a trap handler may write
_WRITABLE_RDNA3 = {
    1: (MODE, 0xFFFF_FFFF, 0xFFFF_FFFF),
    2: (STATUS, 0, STATUS_WRITABLE),
    3: (TRAPSTS, 0xFFFF_FFFF, 0xFFFF_FFFF),
    20: (FLAT_SCRATCH_LO, 0, 0xFFFF_FFFF),
    21: (FLAT_SCRATCH_HI, 0, 0xFFFF_FFFF),
}
_WRITABLE_RDNA4 = {
    1: (MODE, 0xFFFF_FFFF, 0xFFFF_FFFF),
    18: (EXCP_USER, 0xFFFF_FFFF, 0xFFFF_FFFF),
    19: (TRAP_CTRL, 0, 0xFFFF_FFFF),
    20: (FLAT_SCRATCH_LO, 0, 0xFFFF_FFFF),
    21: (FLAT_SCRATCH_HI, 0, 0xFFFF_FFFF),
    26: (SCHED_MODE, 0xFFFF_FFFF, 0xFFFF_FFFF),
}
_WRITABLE_CDNA3 = {number: _WRITABLE_RDNA3[number] for number in (1, 2, 3)}
WRITABLE = {RDNA3.family: _WRITABLE_RDNA3, RDNA4.family: _WRITABLE_RDNA4, CDNA3.family: _WRITABLE_CDNA3}
# Registers without a word of their own, which a trap handler writes through a function.
_ASSEMBLED: Mapping[int, tuple[Callable[[Step], int], Callable[[Step, int], None]]] = {
    4: (_state, _set_state), 17: (_exceptions, _set_exceptions),
}  # fmt: skip


def _hardware(step: Step) -> tuple[int, int, int]:
    simm = step.field["simm16"]
    number, offset, size = simm & 0x3F, simm >> 6 & 0x1F, (simm >> 11) + 1
    if number not in HARDWARE[step.machine.generation.family] and (
        number != FLUSH_IB or step.machine.generation is RDNA4
    ):
        raise Unmodelled(f"hardware register {number} of {step.ins.mnemonic} at {step.pc:#x}")
    return number, offset, (1 << size) - 1


def get_register(step: Step) -> Exit:
    number, offset, mask = _hardware(step)
    readers = HARDWARE[step.machine.generation.family]
    value = readers[number](step) if number in readers else 0
    step.regs.set_scalar(step.field["sdst"], value >> offset & mask)
    return Exit.NEXT


def set_register(step: Step) -> Exit:
    number, offset, mask = _hardware(step)
    literal = step.ins.literal
    source = step.regs.scalar(step.field["sdst"]) if literal is None else literal
    writable = WRITABLE[step.machine.generation.family]
    if step.machine.generation is RDNA4 and number in _ASSEMBLED and step.regs.privileged:
        read, write = _ASSEMBLED[number]
        write(step, read(step) & ~(mask << offset) | (source & mask) << offset)
    if number not in writable:
        return Exit.NEXT
    word, user, handler = writable[number]
    allowed = mask << offset & (handler if step.regs.privileged else user)
    words = step.regs.words
    words[word] = int(words[word]) & ~allowed & 0xFFFF_FFFF | source << offset & allowed
    if word == STATUS and allowed & 1:
        step.regs.scc = int(words[STATUS])
    return Exit.NEXT
