"""Track a wave's history for strict mode: loads in flight, and registers and LDS bytes that were never written.

A wait counter bounds how many operations may still be in flight. What it proves about one operation depends on which
operations return in order. Source: RDNA3 ISA reference, "Data Dependency Resolution", "Dependency Checking" of scalar
memory, "Ordering" of flat memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from ringup.silicon.shader.amd.decoding.generations import RDNA3
from ringup.silicon.shader.amd.decoding.memory_effects import HALVES, touched_halves
from ringup.silicon.shader.common.launch import Group, initialised
from ringup.silicon.shader.common.state import NULL, SCC, TTMP0

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from ringup.silicon.shader.amd.decoding.decode import Instruction
    from ringup.silicon.shader.amd.decoding.generations import Generation
    from ringup.silicon.shader.common.state import WaveState

ALL_BITS = 0xFFFF_FFFF
# Kinds of operation that return in the order of issue among their own kind. Scalar loads and messages do not.
IN_ORDER = frozenset({"vmem", "store", "lds", "direct", "reply"})

# Sources that give the result only some of its bits, or keep bits of the result's register. Their undefined bits may be
# bits that the program never uses. Definedness of a VGPR is tracked by lane, not by byte, so such a result counts as
# written. For v_perm_b32 all bytes taken may be undefined: then the result is undefined too.
PART_SOURCES = {
    "v_fma_mixlo_f16": ("vdst",), "v_fma_mixhi_f16": ("vdst",), "v_cvt_pk_u8_f32": ("src2",), "v_perm_b32": ("src0", "src1"),
}  # fmt: skip
TWO_SOURCES = ("src0", "src1", "vsrc1")  # the short encodings name the second one `vsrc1`
# Sources whose parts are combined: the result is undefined only if all of these sources are.
GATHERED = {
    "v_pack_b32_f16": TWO_SOURCES, "v_or_b32": TWO_SOURCES, "v_or3_b32": ("src0", "src1", "src2"), "v_and_or_b32": ("src0", "src2"),
    "v_lshl_or_b32": ("src0", "src2"), "v_bfi_b32": ("src1", "src2"), "v_alignbit_b32": ("src0", "src1"), "v_alignbyte_b32": ("src0", "src1"),
}  # fmt: skip
HALVES_OF_TWO = "v_cvt_pk_"
# Shifts of two registers. A shift by whole bytes combines bytes of both, as compilers do with byte arrays in registers.
# For other distances the lowest bit that is shifted right decides, and every bit that is shifted left.
WIDE_SHIFTS = ("v_lshlrev_b64", "v_lshrrev_b64", "v_ashrrev_i64")
# Scalar instructions by where undefined source bits go: UPWARDS from the lowest of them up, SHIFTS by a known distance.
# In bitwise instructions each bit stays in its place. In all others every bit of the result is undefined.
UPWARDS = (
    "s_add_u",
    "s_add_i",
    "s_add_nc_u64",
    "s_addc_",
    "s_sub_u",
    "s_sub_i",
    "s_sub_nc_u64",
    "s_subb_",
    "s_addk_",
    "s_mul_i32",
    "s_mul_u64",
    "s_mulk_",
    "s_lshl1_",
    "s_lshl2_",
    "s_lshl3_",
    "s_lshl4_",
)
SHIFTS = ("s_lshl_b", "s_lshr_b", "s_ashr_i")
SCALAR_ALU = ("SOP1", "SOP2", "SOPC", "SOPK")
# These read or change state other than registers, which an undefined value would decide.
_STATE = (
    "s_setreg",
    "s_getreg",
    "s_getpc",
    "s_set_gpr_idx",
    "s_setpc",
    "s_swappc",
    "s_call",
    "s_rfe",
    "s_movrel",
    "s_sendmsg",
    "s_subvector",
    "s_waitcnt",
    "s_barrier",
    "s_get_barrier_state",
    "s_sleep_var",
    "s_alloc_vgpr",
)


class RuleBroken(Exception):
    """An instruction broke a rule. The wave stops before the instruction changes anything.

    `lane` and `gpu_va` are where it happened, if known.
    """

    def __init__(self, kind: str, detail: str, *, lane: int | None = None, gpu_va: int | None = None) -> None:
        super().__init__(f"{kind}: {detail}")
        self.kind, self.detail, self.lane, self.gpu_va = kind, detail, lane, gpu_va


def misaligned(gpu_va: int) -> RuleBroken:
    """Return the error for a program counter that is not a multiple of 4."""
    return RuleBroken(
        "alignment",
        f"the program counter would be {gpu_va:#x}, which is misaligned: not a multiple of 4",
        gpu_va=gpu_va,
    )


def unsettled_lds(by: str, waits: str) -> str:
    """Return the message for a wave that reaches a barrier while its stores to LDS are in flight."""
    return f"LDS is still being stored to{by}, and other waves read it after the barrier; wait on {waits}"


def scalar_computes(ins: Instruction) -> bool:
    """Return whether a scalar instruction only computes.

    Its result of undefined bits is undefined, but that is not an error yet.
    """
    return ins.format in SCALAR_ALU and not ins.mnemonic.startswith(_STATE)


def gathered_sources(mnemonic: str) -> tuple[str, ...]:
    """Return the operand fields whose parts are combined in the result."""
    if mnemonic.startswith(HALVES_OF_TWO) and mnemonic not in PART_SOURCES:
        return TWO_SOURCES
    return GATHERED.get(mnemonic, ())


@dataclass(slots=True, eq=False)
class InFlight:
    """One issued operation.

    `order` gives, for each counter that the operation holds up, the kind among which it returns in order. `guards` are
    the counters that show when its registers are written; None means all of them.
    """

    text: str
    pc: int
    order: dict[str, str]
    cost: int = 1
    vgprs: Sequence[int] = ()  # numbered as `memory_effects` does, halves of registers too
    sgprs: range = range(0)
    guards: frozenset[str] | None = None
    changes_lds: bool = False

    @property
    def missing(self) -> list[str]:
        """The counters that its registers still wait for."""
        return [counter for counter in self.order if self.guards is None or counter in self.guards]


@dataclass(slots=True)
class Waits:
    """The wait counters of one wave: the operations in flight, and an upper bound of their number.

    `largest` gives the largest value of each counter.
    """

    largest: Mapping[str, int] = field(default_factory=lambda: RDNA3.counters)
    bound: dict[str, int] = field(init=False)
    queues: dict[str, list[InFlight]] = field(init=False)
    vgprs: dict[int, InFlight] = field(default_factory=dict)
    sgprs: dict[int, InFlight] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.bound = dict.fromkeys(self.largest, 0)
        self.queues = {name: [] for name in self.largest}

    def issue(self, operation: InFlight) -> None:
        """Count an operation. Like hardware, first wait if a counter is full."""
        for counter in operation.order:
            limit = self.largest[counter] - operation.cost
            if self.bound[counter] > limit:
                self.wait(counter, limit)
            self.bound[counter] += operation.cost
            self.queues[counter].append(operation)
        self.vgprs.update(dict.fromkeys(operation.vgprs, operation))
        self.sgprs.update(dict.fromkeys(operation.sgprs, operation))

    def check_lds(self, counters: Iterable[str]) -> None:
        """Raise at a barrier if a store to LDS, which counts in `counters`, is in flight."""
        for name in counters:
            late = next((one for one in self.queues[name] if one.changes_lds), None)
            if late is not None:
                raise RuleBroken("hazard", unsettled_lds(f" by {late.text} at {late.pc:#x}", f"{name}cnt"))

    def wait(self, counter: str, limit: int) -> None:
        """Wait until `counter` is at most `limit`, and retire the operations that are certainly done.

        An unfinished operation keeps all later ones of its order in flight too. So it is done if those alone exceed the
        counter's value.
        """
        bound = min(self.bound[counter], limit)
        behind: dict[str, int] = {}
        waiting = []
        for operation in reversed(self.queues[counter]):
            kind = operation.order[counter]
            behind[kind] = behind.get(kind, 0) + operation.cost
            least = behind[kind] if kind in IN_ORDER else 1
            if bound < least:
                self._retire(operation, counter)
            else:
                waiting.append(operation)
        self.queues[counter] = waiting[::-1]
        self.bound[counter] = min(bound, sum(operation.cost for operation in waiting))

    def _retire(self, operation: InFlight, counter: str) -> None:
        del operation.order[counter]
        if operation.missing:
            return
        for held, registers in ((self.vgprs, operation.vgprs), (self.sgprs, operation.sgprs)):
            for register in registers:
                if held.get(register) is operation:
                    del held[register]


class Tracker:
    """What strict mode knows about one wave.

    `scalars` holds the undefined bits of the scalar file's words and SCC, `vgprs` the written lanes. Scalars are
    tracked by bit, because compilers combine lane masks in which only the bits of active lanes are defined. Undefined
    values may be computed with, because compilers do so where a later select drops the result. They may not decide a
    branch, EXEC, an address or what is stored to memory. `births` is keyed by register (numbered as in `analysis`) and
    lane, 0 for scalars. It holds the origin of the undefined value; without an entry the register itself was never
    written.
    """

    def __init__(self, wave: WaveState, group: Group, generation: Generation = RDNA3) -> None:
        scalars, vgprs = initialised(group.dispatch, generation.start)
        self.scalars: NDArray[np.uint32] = np.full(SCC + 1, ALL_BITS, np.uint32)
        self.scalars[list(scalars)] = 0
        # SPI and the debugger fill trap registers; user programs cannot read them.
        self.scalars[TTMP0 : TTMP0 + 16] = 0
        self.scalars[NULL] = 0
        self.vgprs: NDArray[np.bool_] = np.zeros(wave.vgprs.shape, np.bool_)
        self.vgprs[:vgprs] = True
        self.waits = Waits(generation.counters)
        self.births: dict[int, dict[int, str]] = {}

    def born(self, register: int, lane: int) -> str:
        """Return the origin of a lane's undefined value; empty if the register itself was never written."""
        return self.births.get(register, {}).get(lane, "")

    def check_vector(self, index: int, order: dict[str, str] | None, ins: Instruction | None) -> None:
        """Raise if a load will still write a VGPR that an instruction accesses, or the half of it that it accesses."""
        held = self.waits.vgprs
        self.check_flight(held, index, f"v{index}", order)
        for half in HALVES:
            if index + half in held and (ins is None or touched_halves(ins).get(index, half) == half):
                self.check_flight(held, index + half, f"v{index}", order)

    def check_flight(
        self, held: dict[int, InFlight], register: int, name: str, same_order: dict[str, str] | None
    ) -> None:
        """Raise if a load will still write a register, unless the accessing load returns after it in the same order."""
        operation = held.get(register)
        if operation is None or (
            same_order is not None and operation.order == same_order and set(same_order.values()) <= IN_ORDER
        ):
            return
        counters = " and ".join(f"{counter}cnt" for counter in operation.missing)
        raise RuleBroken(
            "hazard", f"{name} is still being loaded by {operation.text} at {operation.pc:#x}; wait on {counters}"
        )
