"""How many cycles after an instruction its result may be read, and which results need a scoreboard instead.

The numbers are facts that NVIDIA gave to Mesa for Turing, and for Ampere and Ada: sm75_instr_latencies.rs and
sm80_instr_latencies.rs of NAK (MIT). A GUESS is marked.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ringup.silicon.shader.nv.decoding.instruction import Instruction


class Unit(Enum):
    """Where an instruction runs, as far as latencies depend on it."""

    ALU = "alu"
    FMA = "fma"
    # 64-bit special registers
    DISPATCH = "dispatch"
    # the two registers of an IMAD.WIDE's result; sources A and B; the two registers of source C
    WIDE_LOW = "wide low"
    WIDE_HIGH = "wide high"
    WIDE_FACTOR = "wide factor"
    WIDE_C_LOW = "wide c low"
    WIDE_C_HIGH = "wide c high"
    HALF = "half"
    HALF_ALU = "half alu"
    HALF_MMA = "half mma"
    FP64 = "fp64"
    # products of matrices: of 8 rows, of 16, of 16 with twice the factors, of f64
    MMA_8 = "mma 8"
    MMA = "mma"
    MMA_LONG = "mma long"
    MMA_64 = "mma 64"
    SLOW = "slow"
    ADDRESS = "address"
    # reads of predicates
    VOTE = "vote"
    GUARD = "guard"
    # the uniform datapath
    UNIFORM = "uniform"
    UNIFORM_MOVE = "uniform move"
    UNIFORM_CONSTANT = "uniform constant"
    BRANCH = "branch"


_READERS = (
    Unit.ALU, Unit.FMA, Unit.WIDE_FACTOR, Unit.WIDE_C_LOW, Unit.WIDE_C_HIGH, Unit.HALF, Unit.HALF_ALU, Unit.SLOW,
    Unit.ADDRESS, Unit.FP64, Unit.MMA, Unit.MMA_8,
)  # fmt: skip
_PREDICATE_READERS = (Unit.ALU, Unit.FMA, Unit.HALF, Unit.VOTE, Unit.FP64, Unit.GUARD)


class Latencies(NamedTuple):
    """Cycles from writer to reader, in the order of `_READERS` and `_PREDICATE_READERS`."""

    registers: dict[Unit, tuple[int, ...]]
    predicates: dict[Unit, tuple[int, ...]]


AMPERE = Latencies(
    {
        Unit.ALU: (4, 5, 5, 5, 3, 5, 5, 4, 5, 6, 7, 7), Unit.DISPATCH: (6, 6, 6, 6, 4, 6, 6, 4, 5, 6, 7, 7),
        Unit.FMA: (5, 4, 4, 4, 2, 5, 5, 4, 5, 6, 7, 7), Unit.WIDE_LOW: (3, 2, 4, 2, 2, 3, 3, 4, 5, 6, 7, 7),
        Unit.WIDE_HIGH: (5, 4, 6, 4, 2, 5, 5, 4, 5, 6, 7, 7), Unit.HALF: (5, 5, 5, 5, 3, 4, 5, 4, 5, 6, 7, 7),
        Unit.HALF_ALU: (5, 5, 5, 5, 3, 5, 4, 4, 5, 6, 7, 7),
        Unit.HALF_MMA: (10, 10, 10, 10, 8, 10, 10, 6, 7, 6, 11, 11),
        Unit.MMA_8: (13, 13, 13, 13, 11, 13, 13, 11, 12, 13, 14, 14),
        Unit.MMA: (16, 16, 16, 16, 14, 16, 16, 14, 15, 16, 16, 16),
        Unit.MMA_LONG: (24, 24, 24, 24, 22, 24, 24, 22, 23, 24, 24, 24),
        Unit.MMA_64: (25, 25, 25, 25, 23, 25, 25, 23, 24, 25, 26, 26),
    },
    {
        Unit.ALU: (4, 5, 4, 13, 13, 13), Unit.FMA: (5, 4, 4, 13, 13, 13), Unit.HALF: (5, 5, 4, 13, 13, 13),
    },
)  # fmt: skip
# On Turing halves run in the pipe of f64, and others read them after 8 cycles. Mesa 25.0 leaves 6; then it waited 13
# after halves and f64 before Ampere (sm70_instr_latencies.rs), until NVIDIA's table came. So 6 is too early on some
# chip: the table does not tell Turing's chips apart, and says that such instructions differ among them.
# GUESS: a vote reads a predicate as late as a guard does. A product of integers may read another one's result after 4
# cycles as its addend, after 10 as a factor; here after 4 always.
TURING = Latencies(
    {
        Unit.ALU: (4, 5, 5, 5, 3, 6, 6, 6, 6, 6, 6, 8), Unit.DISPATCH: (6, 6, 6, 6, 4, 6, 6, 6, 6, 6, 6, 8),
        Unit.FMA: (5, 4, 4, 4, 2, 6, 6, 6, 6, 6, 6, 8), Unit.WIDE_LOW: (3, 2, 4, 2, 2, 6, 6, 6, 6, 6, 6, 8),
        Unit.WIDE_HIGH: (5, 4, 6, 2, 2, 6, 6, 6, 6, 6, 6, 8), Unit.HALF: (8, 8, 8, 8, 6, 6, 6, 8, 8, 8, 8, 8),
        Unit.HALF_ALU: (8, 8, 8, 8, 6, 6, 6, 8, 8, 8, 8, 8),
        Unit.MMA_8: (10, 10, 10, 10, 8, 10, 10, 10, 10, 10, 10, 4),
        Unit.MMA: (14, 14, 14, 14, 12, 14, 14, 14, 14, 14, 14, 14),
    },
    {
        Unit.ALU: (4, 5, 5, 12, 12, 12), Unit.FMA: (5, 4, 4, 12, 12, 12), Unit.HALF: (8, 8, 6, 12, 14, 14),
    },
)  # fmt: skip
# Uniform registers, of both: cycles to a vector instruction with fixed and with variable latency, to a load of uniform
# constants or a descriptor, to the uniform datapath, to a uniform move, to a branch.
_UNIFORM = {
    Unit.UNIFORM: {"fixed": 6, "slow": 9, "constant": 12, "uniform": 4, "move": 7, "branch": 10},
    Unit.UNIFORM_MOVE: {"fixed": 2, "slow": 2, "constant": 5, "uniform": 2, "move": 2, "branch": 3},
}
# Uniform predicates: to a vector instruction, to the uniform datapath, to a guard, to a branch.
_UNIFORM_PREDICATES = {
    Unit.UNIFORM: {"fixed": 6, "slow": 6, "uniform": 4, "move": 4, "constant": 11, "guard": 11, "branch": 9},
    Unit.UNIFORM_MOVE: {"fixed": 1, "slow": 1, "uniform": 1, "move": 1, "constant": 5, "guard": 5, "branch": 2},
}
# GUESS: Hopper is as Ampere; no free source says how it is.
GENERATIONS = {"sm_75": TURING, "sm_80": AMPERE, "sm_86": AMPERE, "sm_89": AMPERE, "sm_90": AMPERE}
_ALU = (
    "IADD3", "LOP3", "ISETP", "LEA", "SHF", "SEL", "MOV", "PRMT", "IMNMX", "IABS", "BMSK", "SGXT", "FMNMX", "FSETP", "FSET",
    "FSEL", "PLOP3", "VOTE", "F2FP", "I2FP", "P2R", "R2P", "NOP",
)  # fmt: skip


_ADDRESS = (
    "LDG", "LD", "LDS", "LDL", "STG", "ST", "STS", "STL", "ATOM", "ATOMG", "ATOMS", "RED", "REDG", "SHFL", "LDSM", "BAR",
    "B2R", "CCTL", "MEMBAR", "MOVM", "LDGSTS",
)  # fmt: skip
UNITS = {
    **dict.fromkeys(_ALU, Unit.ALU), **dict.fromkeys(_ADDRESS, Unit.ADDRESS),
    **dict.fromkeys(("FADD", "FMUL", "FFMA", "IMAD", "IDP", "FSWZADD"), Unit.FMA),
    **dict.fromkeys(("HADD2", "HFMA2", "HMUL2"), Unit.HALF), **dict.fromkeys(("HSET2", "HSETP2", "HMNMX2"), Unit.HALF_ALU),
    **dict.fromkeys(("DADD", "DMUL", "DFMA", "DSETP", "DMNMX"), Unit.FP64),
    **dict.fromkeys(("BRA", "BRX"), Unit.BRANCH), **dict.fromkeys(("S2UR", "R2UR", "REDUX"), Unit.SLOW),
    **dict.fromkeys(("UMOV", "VOTEU"), Unit.UNIFORM_MOVE), **dict.fromkeys(("ULDC", "LDCU"), Unit.UNIFORM_CONSTANT),
}  # fmt: skip
SCOREBOARDED = (Unit.SLOW, Unit.ADDRESS, Unit.FP64)
# Cycles from an instruction that takes a scoreboard to one that may wait for it. Source: NAK, calc_instr_deps.rs.
SCOREBOARD_CYCLES = 2


def unit_of(ins: Instruction) -> Unit:
    """Return where an instruction runs; an unknown one has a variable latency."""
    if ins.name == "CS2R":
        return Unit.ALU if ins.has("32") else Unit.DISPATCH
    if ins.name == "IMAD" and (ins.has("WIDE") or ins.has("HI")):
        return Unit.WIDE_LOW
    if ins.name in ("HMMA", "IMMA", "DMMA"):
        return _matrix_unit(ins)
    if ins.name == "HFMA2" and ins.has("MMA"):
        return Unit.HALF_MMA
    found = UNITS.get(ins.name)
    if found is None:
        return Unit.UNIFORM if ins.name[0] == "U" else Unit.SLOW
    return found


def _matrix_unit(ins: Instruction) -> Unit:
    shape = ins.modifiers[0]
    if ins.name == "DMMA":
        return Unit.MMA_64
    if shape in ("8816", "8832"):
        return Unit.MMA_8
    if ins.name == "HMMA":
        return Unit.MMA_LONG if shape == "16816" or ins.has("TF32") else Unit.MMA
    is_long = shape == "16864" or (shape == "16832" and (ins.has("U8") or ins.has("S8")))
    return Unit.MMA_LONG if is_long else Unit.MMA


def issue_cycles(target: str, ins: Instruction) -> int:
    """Return how many cycles after an instruction the warp's next one may issue, whatever that one reads.

    Source: Mesa's NAK, calc_instr_deps.rs, exec_latency (MIT).
    """
    if ins.name in ("BAR", "MEMBAR"):
        return 5 if target == "sm_75" else 6
    return 1


def register_cycles(target: str, writer: Unit, reader: Unit) -> int:
    """Return after how many cycles a vector register may be read."""
    reader = Unit.MMA if reader in (Unit.MMA_LONG, Unit.MMA_64) else Unit.FP64 if reader is Unit.HALF_MMA else reader
    row = GENERATIONS[target].registers.get(writer)
    return row[_READERS.index(reader)] if row and reader in _READERS else 1


def predicate_cycles(target: str, writer: Unit, reader: Unit) -> int:
    """Return after how many cycles a predicate may be read. Slow readers read it as guards do."""
    writer = {Unit.WIDE_LOW: Unit.FMA, Unit.HALF_ALU: Unit.HALF}.get(writer, writer)
    reader = {Unit.WIDE_LOW: Unit.FMA, Unit.HALF_ALU: Unit.HALF}.get(reader, reader)
    row = GENERATIONS[target].predicates.get(writer)
    if row is None:
        return 1
    return row[_PREDICATE_READERS.index(reader if reader in _PREDICATE_READERS else Unit.GUARD)]


def _as_reader(reader: Unit) -> str:
    names = {
        Unit.UNIFORM: "uniform", Unit.UNIFORM_MOVE: "move", Unit.UNIFORM_CONSTANT: "constant", Unit.SLOW: "slow",
        Unit.ADDRESS: "slow", Unit.FP64: "slow", Unit.BRANCH: "branch", Unit.GUARD: "guard",
    }  # fmt: skip
    return names.get(reader, "fixed")


def uniform_cycles(writer: Unit, reader: Unit, *, predicate: bool) -> int:
    """Return after how many cycles a uniform register or predicate may be read."""
    writer = Unit.UNIFORM_MOVE if writer is Unit.UNIFORM_CONSTANT else writer
    row = (_UNIFORM_PREDICATES if predicate else _UNIFORM).get(writer)
    return row.get(_as_reader(reader), 1) if row else 1
