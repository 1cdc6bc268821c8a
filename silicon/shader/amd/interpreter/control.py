"""Program flow, waits, messages and hardware registers.

Source: RDNA3 and RDNA4 ISA references, chapter 5, "Wave State Registers", "SOPP Instructions".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ringup.errors import Unmodelled
from ringup.silicon.shader.amd.decoding.decode import waitcnt
from ringup.silicon.shader.amd.interpreter.barriers import barrier_state, signal, wait_for_barrier
from ringup.silicon.shader.amd.interpreter.gcn_alu import set_index_mode
from ringup.silicon.shader.amd.interpreter.hardware import STATUS_FATAL_HALT, get_register, set_register
from ringup.silicon.shader.amd.interpreter.step import Exit, Step
from ringup.silicon.shader.amd.strict.history import RuleBroken, misaligned
from ringup.silicon.shader.amd.strict.registers import REGIONS, scalar_name
from ringup.silicon.shader.common.launch import (
    STATUS_HALT,
    STATUS_IN_GROUP,
    STATUS_NO_VGPRS,
    STATUS_PRIV,
    STATUS_TRAP_EN,
)
from ringup.silicon.shader.common.state import (
    EXEC_LO,
    M0,
    MODE,
    NULL,
    STATUS,
    TTMP0,
    VCC_LO,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


Handler = Callable[[Step], Exit]

PC_MASK = 0xFFFF_FFFF_FFFF  # 48 bits
STATUS_CDBG_USER, STATUS_CDBG_SYS = 1 << 20, 1 << 21
# s_sendmsg: 1 interrupt, 2 tessellation factors, 3 deallocate VGPRs, 9 parameter space.
MESSAGES = frozenset((1, 2, 3, 9))
MESSAGE_INTERRUPT, MESSAGE_DEALLOC_VGPRS = 1, 3
# Of GCN: 1 interrupt, 4 to 6 save, stall and halt waves, 10 the doorbell's number. Source: LLVM SIDefines.h, SendMsg.
GCN_MESSAGES, MESSAGE_DOORBELL = frozenset((1, 4, 5, 6, 10)), 10
REPLY_REALTIME, REPLY_TBA = 0x83, 0x85
TBA_PRESENT = 1 << 63


def _simm(step: Step) -> int:
    return step.field["simm16"]


def _next(step: Step) -> Exit:
    return Exit.NEXT


def _end(step: Step) -> Exit:
    return Exit.END


def _jump(step: Step) -> None:
    """Branch by a signed number of dwords from the next instruction."""
    offset = (_simm(step) ^ 0x8000) - 0x8000
    step.regs.wave.pc = step.regs.wave.pc + 4 * offset & PC_MASK


def mask_is_zero(step: Step, first: int) -> bool:
    """Return whether VCC or EXEC has no bit set, in as many words as the wave is wide."""
    return not step.regs.scalar(first, step.regs.lane_count // 32)


CONDITIONS: Mapping[str, Callable[[Step], bool]] = {
    "s_branch": lambda _: True,
    "s_cbranch_scc0": lambda step: not step.regs.scc,
    "s_cbranch_scc1": lambda step: bool(step.regs.scc),
    "s_cbranch_vccz": lambda step: mask_is_zero(step, VCC_LO),
    "s_cbranch_vccnz": lambda step: not mask_is_zero(step, VCC_LO),
    "s_cbranch_execz": lambda step: mask_is_zero(step, EXEC_LO),
    "s_cbranch_execnz": lambda step: not mask_is_zero(step, EXEC_LO),
    "s_cbranch_cdbgsys": lambda step: _debug(step) >= STATUS_CDBG_SYS,
    "s_cbranch_cdbguser": lambda step: bool(_debug(step) & STATUS_CDBG_USER),
    "s_cbranch_cdbgsys_or_user": lambda step: bool(_debug(step)),
    "s_cbranch_cdbgsys_and_user": lambda step: _debug(step) == STATUS_CDBG_SYS | STATUS_CDBG_USER,
}


def _debug(step: Step) -> int:
    return int(step.regs.words[STATUS]) & (STATUS_CDBG_SYS | STATUS_CDBG_USER)


def _branch(step: Step) -> Exit:
    if CONDITIONS[step.ins.mnemonic](step):
        _jump(step)
    return Exit.NEXT


# ---- waits


def _wait(step: Step, counter: str, limit: int) -> None:
    if counter == "store" and (scoped := step.machine.scoped) is not None:
        scoped.wait(step.regs.wave.address, limit)
    if step.regs.tracker is not None:
        step.regs.tracker.waits.wait(counter, limit)


def _waitcnt(step: Step) -> Exit:
    # RDNA4 ignores the operand. Source: RDNA4 ISA reference, "S_WAITCNT".
    if "lgkm" not in step.machine.generation.counters:
        return _wait_idle(step)
    vm, exp, lgkm = waitcnt(_simm(step), step.machine.generation)
    for counter, limit in (("vm", vm), ("exp", exp), ("lgkm", lgkm)):
        _wait(step, counter, limit)
    return Exit.NEXT


def _wait_one(step: Step) -> Exit:
    counter = step.ins.mnemonic.removeprefix("s_waitcnt_").removesuffix("cnt")
    _wait(step, counter, _simm(step) & (7 if counter == "exp" else 0x3F))
    return Exit.NEXT


def _wait_named(step: Step) -> Exit:
    """s_wait_loadcnt and the like; two counters share the immediate, the second one has the low byte."""
    names = step.ins.mnemonic.removeprefix("s_wait_").replace("cnt", "").split("_")
    limits = [_simm(step)] if len(names) == 1 else [_simm(step) >> 8, _simm(step) & 0xFF]
    for counter, limit in zip(names, limits, strict=True):
        _wait(step, counter, limit)
    return Exit.NEXT


def _wait_idle(step: Step) -> Exit:
    for counter in step.machine.generation.counters:
        _wait(step, counter, 0)
    return Exit.NEXT


def _barrier(step: Step) -> Exit:
    if not step.regs.words[STATUS] & STATUS_IN_GROUP:
        return Exit.NEXT
    if step.regs.tracker is not None:
        step.regs.tracker.waits.check_lds(step.orders.lds)
    return Exit.BARRIER


def _sleep(step: Step) -> Exit:
    return Exit.YIELD if _simm(step) & 0x7F else Exit.NEXT


def _sleep_variable(step: Step) -> Exit:
    operand = step.ins.uses[0]
    duration = step.regs.scalar(operand.index) if operand.kind == "sgpr" else operand.bits
    return Exit.YIELD if duration & 0x7F else Exit.NEXT


def _not_modelled(step: Step) -> Exit:
    raise Unmodelled(f"{step.ins.spelling} at {step.pc:#x}")


def _allocate(step: Step) -> Exit:
    """s_alloc_vgpr without dynamic VGPRs, which no dispatch here has: it is ignored."""
    return Exit.NEXT


# ---- traps, halts, messages


def _trap(step: Step) -> Exit:
    """Enter the trap handler. Without one hardware makes this a NOP; strict mode raises, since a program rarely wants
    that.
    """
    if not step.regs.words[STATUS] & STATUS_TRAP_EN:
        if step.machine.strict:
            raise RuleBroken("trap", f"trap {_simm(step) & 0xFF} and no trap handler")
        return Exit.NEXT
    _wait_idle(step)
    enter_trap(step, _simm(step) & 0xFF)
    return Exit.NEXT


def enter_trap(step: Step, trap_id: int) -> None:
    """Save the instruction's PC and the trap's number in TTMP 0 and 1, and jump to the handler with privilege."""
    words = step.regs.words
    low, bits = step.machine.generation.trap_id
    saved = step.pc | (trap_id & (1 << bits) - 1) << low
    words[TTMP0], words[TTMP0 + 1] = saved & 0xFFFF_FFFF, saved >> 32
    words[STATUS] |= STATUS_PRIV
    step.regs.wave.pc = step.machine.dispatch.trap_base


def _return_from_trap(step: Step) -> Exit:
    if not step.regs.privileged:
        raise RuleBroken("illegal", "s_rfe_b64 outside a trap handler")
    target = _target(step)
    step.regs.words[STATUS] &= ~STATUS_PRIV & 0xFFFF_FFFF
    step.regs.wave.pc = target
    return Exit.HALT if step.regs.words[STATUS] & STATUS_HALT else Exit.NEXT


def _halt(step: Step) -> Exit:
    bit = STATUS_FATAL_HALT if _simm(step) & 4 else STATUS_HALT
    if not _simm(step) & 1:
        step.regs.words[STATUS] &= ~bit & 0xFFFF_FFFF
        return Exit.NEXT
    step.regs.words[STATUS] |= bit
    return Exit.HALT if bit == STATUS_FATAL_HALT or not step.regs.privileged else Exit.NEXT


def _kill(step: Step) -> Exit:
    return Exit.END if _simm(step) & 1 else Exit.NEXT


def _message(step: Step) -> Exit:
    is_gcn, regs = step.machine.generation.is_gcn, step.regs
    code = _simm(step) & (0xF if is_gcn else 0xFF)
    if code not in (GCN_MESSAGES if is_gcn else MESSAGES):
        raise RuleBroken("illegal", f"message {code:#x} is reserved")
    # The answer comes in EXEC. Source: ROCR-Runtime trap_handler.s of gfx9, which polls its bit 31
    if is_gcn and code == MESSAGE_DOORBELL:
        regs.set_scalar(EXEC_LO, step.machine.events.message(code, regs.scalar(M0, decides=False), regs.wave))
    # Only the SPI handles this message.
    elif code == MESSAGE_DEALLOC_VGPRS:
        regs.words[STATUS] |= STATUS_NO_VGPRS
        regs.vgpr_count = 0
    else:
        step.machine.events.message(code, regs.scalar(M0, decides=code == MESSAGE_INTERRUPT), regs.wave)
    step.issue(step.orders.message)
    if step.ins.mnemonic == "s_sendmsghalt":
        regs.words[STATUS] |= STATUS_HALT
        return Exit.HALT
    return Exit.NEXT


def _message_reply(step: Step) -> Exit:
    regs, code, first = step.regs, step.field["ssrc0"], step.field["sdst"]
    count = 2 if step.ins.mnemonic.endswith("b64") else 1
    if code == REPLY_REALTIME:
        value = step.machine.events.realtime()
    elif code == REPLY_TBA:
        base = step.machine.dispatch.trap_base
        value = base | TBA_PRESENT * bool(base)
    else:
        value = step.machine.events.message(code, regs.scalar(M0, decides=False), regs.wave)
    regs.set_scalar(first, value & (1 << 32 * count) - 1, count)
    step.issue(step.orders.reply, cost=2, sgprs=range(first, first + count) if first != NULL else range(0))
    return Exit.NEXT


def _illegal(step: Step) -> Exit:
    raise RuleBroken("illegal", "the wave ran past the end of the code")


# ---- the program counter


def _pair(step: Step) -> int:
    return step.regs.scalar(step.field["ssrc0"], 2)


def _get_pc(step: Step) -> Exit:
    step.regs.set_scalar(step.field["sdst"], step.regs.wave.pc, 2)
    return Exit.NEXT


def _target(step: Step) -> int:
    """Return the target address in a register; raise if it is not a multiple of 4."""
    target = _pair(step) & PC_MASK
    if target % 4:
        raise misaligned(target)
    return target


def _set_pc(step: Step) -> Exit:
    step.regs.wave.pc = _target(step)
    return Exit.NEXT


def _swap_pc(step: Step) -> Exit:
    target = _target(step)
    step.regs.set_scalar(step.field["sdst"], step.regs.wave.pc, 2)
    step.regs.wave.pc = target
    return Exit.NEXT


def _call(step: Step) -> Exit:
    step.regs.set_scalar(step.field["sdst"], step.regs.wave.pc, 2)
    _jump(step)
    return Exit.NEXT


def _subvector_begin(step: Step) -> Exit:
    """Run the loop for the low half of a wave64 first.

    Source: RDNA2 ISA reference, "S_SUBVECTOR_LOOP_BEGIN"; the RDNA3 reference omits it.
    """
    regs, first = step.regs, step.field["sdst"]
    low, high = regs.scalar(EXEC_LO), regs.scalar(EXEC_LO + 1)
    if not low and not high:
        _jump(step)
    elif not low:
        regs.set_scalar(first, low)
    else:
        regs.set_scalar(first, high)
        regs.set_scalar(EXEC_LO + 1, 0)
    return Exit.NEXT


def _subvector_end(step: Step) -> Exit:
    """Run the loop for the high half, if it was saved."""
    regs, first = step.regs, step.field["sdst"]
    saved = regs.scalar(first)
    if regs.scalar(EXEC_LO + 1):
        regs.set_scalar(EXEC_LO, saved)
    elif saved:
        regs.set_scalar(EXEC_LO + 1, saved)
        regs.set_scalar(first, regs.scalar(EXEC_LO))
        regs.set_scalar(EXEC_LO, 0)
        _jump(step)
    return Exit.NEXT


# ---- relative moves of scalars


def _related(step: Step, base: int, by: int, count: int) -> int | None:
    """Return register `base` + `by` if it stays in the range of `base`."""
    low, high = next(region for region in REGIONS if region[0] <= base < region[1])
    index = base + by - (base + by) % count
    if low <= index and index + count <= high:
        return index
    if step.machine.strict:
        raise RuleBroken("register", f"{scalar_name(base)} moved by {by} leaves its range")
    return None


def _move_relative(step: Step) -> Exit:
    """s_movrels, s_movreld, s_movrelsd_2: M0 offsets the source, the destination or both.

    Out of range s0 is read, and nothing is written.
    """
    regs, mnemonic = step.regs, step.ins.mnemonic
    count = 2 if mnemonic.endswith("b64") else 1
    m0 = regs.scalar(M0)
    by_source, by_target = {
        "s_movrels": (m0, 0), "s_movreld": (0, m0), "s_movrelsd_2": (m0 & 0x3FF, m0 >> 16 & 0x3FF),
    }[mnemonic.rpartition("_b")[0]]  # fmt: skip
    operand = next(one for one in step.ins.uses if one.field == "ssrc0")
    undefined = 0
    if operand.kind == "sgpr" and operand.index != NULL:
        source = _related(step, operand.index, by_source, count) if by_source else operand.index
        value = regs.scalar(source or 0, count, decides=False)
        undefined = regs.scalar_undefined(source or 0, count)
    else:
        value = operand.bits
    target = step.field["sdst"]
    found = _related(step, target, by_target, count) if by_target and target != NULL else target
    if found is not None:
        regs.set_scalar(found, value, count, undefined=undefined)
    return Exit.NEXT


# ---- mode and priority


def _mode_field(shift: int) -> Handler:
    def write(step: Step) -> Exit:
        words = step.regs.words
        words[MODE] = int(words[MODE]) & ~(0xF << shift) & 0xFFFF_FFFF | (_simm(step) & 0xF) << shift
        return Exit.NEXT

    return write


def _priority(step: Step) -> Exit:
    words = step.regs.words
    words[STATUS] = int(words[STATUS]) & ~0x18 | (_simm(step) & 3) << 3
    return Exit.NEXT


_NOTHING = (
    "s_nop", "s_version", "s_set_inst_prefetch_distance", "s_clause", "s_delay_alu", "s_waitcnt_depctr", "s_wait_event", "s_wakeup",
    "s_incperflevel", "s_decperflevel", "s_ttracedata", "s_ttracedata_imm", "s_icache_inv",
)  # fmt: skip
_WAITS = (
    "s_wait_loadcnt", "s_wait_storecnt", "s_wait_samplecnt", "s_wait_bvhcnt", "s_wait_expcnt", "s_wait_dscnt", "s_wait_kmcnt",
    "s_wait_loadcnt_dscnt", "s_wait_storecnt_dscnt",
)  # fmt: skip
# Forks and skips of GCN, which compilers do not use.
_UNUSED = ("s_cbranch_g_fork", "s_cbranch_i_fork", "s_cbranch_join", "s_setvskip", "s_rfe_restore_b64")

HANDLERS: Mapping[str, Handler] = {
    **dict.fromkeys(_NOTHING, _next),
    **dict.fromkeys(CONDITIONS, _branch),
    **dict.fromkeys(("s_endpgm", "s_endpgm_saved", "s_endpgm_ordered_ps_done"), _end),
    **dict.fromkeys(("s_waitcnt_vmcnt", "s_waitcnt_vscnt", "s_waitcnt_lgkmcnt", "s_waitcnt_expcnt"), _wait_one),
    **dict.fromkeys(("s_sendmsg", "s_sendmsghalt"), _message),
    **dict.fromkeys(("s_sendmsg_rtn_b32", "s_sendmsg_rtn_b64"), _message_reply),
    **dict.fromkeys(("s_setreg_b32", "s_setreg_imm32_b32"), set_register),
    **dict.fromkeys(
        ("s_movrels_b32", "s_movrels_b64", "s_movreld_b32", "s_movreld_b64", "s_movrelsd_2_b32"), _move_relative
    ),
    "s_waitcnt": _waitcnt,
    "s_wait_idle": _wait_idle,
    "s_barrier": _barrier,
    **dict.fromkeys(_WAITS, _wait_named),
    **dict.fromkeys(_UNUSED, _not_modelled),
    **dict.fromkeys(("s_barrier_signal", "s_barrier_signal_isfirst"), signal),
    "s_barrier_wait": wait_for_barrier,
    **dict.fromkeys(
        ("s_set_gpr_idx_on", "s_set_gpr_idx_off", "s_set_gpr_idx_mode", "s_set_gpr_idx_idx"), set_index_mode
    ),
    "s_get_barrier_state": barrier_state,
    "s_sleep_var": _sleep_variable,
    "s_alloc_vgpr": _allocate,
    "s_sleep": _sleep,
    "s_trap": _trap,
    "s_rfe_b64": _return_from_trap,
    "s_sethalt": _halt,
    "s_setkill": _kill,
    "s_setprio": _priority,
    "s_code_end": _illegal,
    "s_getpc_b64": _get_pc,
    "s_setpc_b64": _set_pc,
    "s_swappc_b64": _swap_pc,
    "s_call_b64": _call,
    "s_subvector_loop_begin": _subvector_begin,
    "s_subvector_loop_end": _subvector_end,
    "s_getreg_b32": get_register,
    "s_round_mode": _mode_field(0),
    "s_denorm_mode": _mode_field(4),
}
