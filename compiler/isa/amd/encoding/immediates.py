"""Immediates of scalar instructions that texts spell with names: waits, hardware registers, messages, delays.

Each kind has `text(value, ...)`, and a reader that takes the (name, numbers) calls from the parser. If the names cannot
express all bits of a value, the text is the plain number: LLVM drops such bits, but a text must give the same word
again. Source: LLVM AMDGPUOperandSyntax, "waitcnt", "hwreg", "sendmsg"; RDNA3 ISA, "S_DELAY_ALU", "S_WAITCNT_DEPCTR".
"""

from __future__ import annotations

from collections.abc import Sequence

from ringup.compiler.isa.amd.encoding.names import HWREG_ALIASES, HWREGS, MESSAGE_OPERATIONS, MESSAGES
from ringup.errors import CompileError

# A name, and the arguments in its brackets.
Call = tuple[str, tuple[int | str, ...]]
# Generation: counter: ((lowest bit of the value, width, lowest bit in the word), ...).
COUNTERS: dict[int, dict[str, tuple[tuple[int, int, int], ...]]] = {
    11: {"vmcnt": ((0, 6, 10),), "expcnt": ((0, 3, 0),), "lgkmcnt": ((0, 6, 4),)},
    12: {"vmcnt": ((0, 6, 10),), "expcnt": ((0, 3, 0),), "lgkmcnt": ((0, 6, 4),)},
    9: {"vmcnt": ((0, 4, 0), (4, 2, 14)), "expcnt": ((0, 3, 4),), "lgkmcnt": ((0, 4, 8),)},
}
# Name: (lowest bit, width), in the order of the text.
DEPCTR = {
    "depctr_hold_cnt": (7, 1), "depctr_sa_sdst": (0, 1), "depctr_va_vdst": (12, 4), "depctr_va_sdst": (9, 3), "depctr_va_ssrc": (8, 1),
    "depctr_va_vcc": (1, 1), "depctr_vm_vsrc": (2, 3),
}  # fmt: skip
# All waits off, and the unused bits as the assembler writes them.
DEPCTR_DEFAULT = 0xFF9F
# Every value that llvm-mc 22 knows.
VERSIONS = {
    0: "UC_VERSION_GFX7", 4: "UC_VERSION_GFX10", 6: "UC_VERSION_GFX11", 9: "UC_VERSION_GFX12",
}  # fmt: skip
VERSION_BITS = {"UC_VERSION_W64_BIT": 0x2000, "UC_VERSION_W32_BIT": 0x4000, "UC_VERSION_MDP_BIT": 0x8000}
_NO_VERSION_BITS = 0x1F00
# One name for each bit. Source: LLVM AMDGPUOperandSyntax, "gpr_idx".
INDEX_MODES = ("SRC0", "SRC1", "SRC2", "DST")
DELAYS = (
    "NO_DEP", "VALU_DEP_1", "VALU_DEP_2", "VALU_DEP_3", "VALU_DEP_4", "TRANS32_DEP_1", "TRANS32_DEP_2", "TRANS32_DEP_3",
    "FMA_ACCUM_CYCLE_1", "SALU_CYCLE_1", "SALU_CYCLE_2", "SALU_CYCLE_3",
)  # fmt: skip
SKIPS = ("SAME", "NEXT", "SKIP_1", "SKIP_2", "SKIP_3", "SKIP_4")
_DELAY_FIELDS = (("instid0", 0, 4, DELAYS), ("instskip", 4, 3, SKIPS), ("instid1", 7, 4, DELAYS))


def waitcnt(generation: int, **counts: int) -> int:
    """Return the immediate of `s_waitcnt` that waits until `vmcnt`, `expcnt` and `lgkmcnt` are at most the given
    values. Other counters are not waited for.
    """
    word = 0
    for name, parts in COUNTERS[generation].items():
        width = sum(part[1] for part in parts)
        value = counts.pop(name, (1 << width) - 1)
        if not 0 <= value < 1 << width:
            raise CompileError(f"{name}({value}): the counter goes to {(1 << width) - 1}")
        for low, bits, at in parts:
            word |= (value >> low & (1 << bits) - 1) << at
    if counts:
        raise CompileError(f"s_waitcnt has no {', '.join(counts)}; it has {', '.join(COUNTERS[generation])}")
    return word


def waitcnt_text(value: int, generation: int) -> str:
    """Return the text of the immediate of `s_waitcnt`."""
    counts, full = {}, {}
    for name, parts in COUNTERS[generation].items():
        counts[name] = sum((value >> at & (1 << bits) - 1) << low for low, bits, at in parts)
        full[name] = (1 << sum(part[1] for part in parts)) - 1
    if waitcnt(generation, **counts) != value:
        return f"{value:#x}"
    shown = [name for name in counts if counts[name] != full[name]] or list(counts)
    return " ".join(f"{name}({counts[name]})" for name in shown)


def read_waitcnt(calls: Sequence[Call], generation: int) -> int:
    """Return the immediate of `vmcnt(0) lgkmcnt(1)`; a name that ends in `_sat` caps its number."""
    counts: dict[str, int] = {}
    for name, arguments in calls:
        plain = name.removesuffix("_sat")
        if plain not in COUNTERS[generation]:
            raise CompileError(f"{name}: s_waitcnt has {', '.join(COUNTERS[generation])}")
        if plain in counts:
            raise CompileError(f"{name} is given twice")
        value = _number(name, arguments)
        if plain != name:
            value = min(value, (1 << sum(part[1] for part in COUNTERS[generation][plain])) - 1)
        counts[plain] = value
    return waitcnt(generation, **counts)


def depctr_text(value: int) -> str:
    """Return the text of the immediate of `s_waitcnt_depctr` and `s_wait_alu`."""
    fields = {name: value >> low & (1 << width) - 1 for name, (low, width) in DEPCTR.items()}
    used = sum((1 << width) - 1 << low for low, width in DEPCTR.values())
    if value & ~used:
        return f"{value:#x}"
    shown = {n: x for n, x in fields.items() if x != (1 << DEPCTR[n][1]) - 1} or fields
    return " ".join(f"{name}({number})" for name, number in shown.items())


def read_depctr(calls: Sequence[Call]) -> int:
    """Return the immediate of `depctr_va_vdst(0) depctr_vm_vsrc(0)`."""
    word, seen = DEPCTR_DEFAULT, set()
    for name, arguments in calls:
        if name not in DEPCTR:
            raise CompileError(f"{name}: this operand has {', '.join(DEPCTR)}")
        low, width = DEPCTR[name]
        value = _number(name, arguments)
        if not 0 <= value < 1 << width or name in seen:
            raise CompileError(f"{name}({value}): once, and at most {(1 << width) - 1}")
        seen.add(name)
        word = word & ~((1 << width) - 1 << low) | value << low
    return word


def delay_text(value: int) -> str:
    """Return the text of the immediate of `s_delay_alu`."""
    parts = []
    for name, low, width, names in _DELAY_FIELDS:
        number = value >> low & (1 << width) - 1
        if number >= len(names):
            return f"{value:#x}"
        if number:
            parts.append(f"{name}({names[number]})")
    if value >> 11 or not parts:
        return f"{value:#x}" if value else "0"
    return " | ".join(parts)


def read_delay(calls: Sequence[Call]) -> int:
    """Return the immediate of `instid0(VALU_DEP_1) | instskip(NEXT) | instid1(SALU_CYCLE_1)`."""
    word, seen = 0, set()
    for name, arguments in calls:
        field = next((field for field in _DELAY_FIELDS if field[0] == name), None)
        if field is None or name in seen or len(arguments) != 1 or arguments[0] not in field[3]:
            raise CompileError(
                f"{name}({', '.join(map(str, arguments))}): s_delay_alu takes instid0 and instid1 of {', '.join(DELAYS)}"
                f" and instskip of {', '.join(SKIPS)}, each once"
            )
        seen.add(name)
        word |= field[3].index(str(arguments[0])) << field[1]
    return word


def hwreg_text(value: int, generation: int) -> str:
    """Return the text of a hardware register operand: register, first bit, number of bits."""
    number, first, size = value & 0x3F, value >> 6 & 0x1F, (value >> 11 & 0x1F) + 1
    name = HWREGS[generation].get(number, str(number))
    return f"hwreg({name})" if (first, size) == (0, 32) else f"hwreg({name}, {first}, {size})"


def read_hwreg(arguments: Sequence[int | str], generation: int) -> int:
    """Return the immediate of `hwreg(HW_REG_MODE, 0, 4)`. The default of the last two is all 32 bits."""
    if len(arguments) not in (1, 3):
        raise CompileError("hwreg takes a register, or a register, its first bit and the number of bits")
    number = arguments[0]
    if isinstance(number, str):
        known = {name: code for code, name in HWREGS[generation].items()} | HWREG_ALIASES[generation]
        if number not in known:
            raise CompileError(f"no hardware register {number}; there are {', '.join(known)}")
        number = known[number]
    first, size = (arguments[1], arguments[2]) if len(arguments) == 3 else (0, 32)
    if not isinstance(first, int) or not isinstance(size, int):
        raise CompileError("the first bit and the number of bits of hwreg are numbers")
    if not (0 <= number < 64 and 0 <= first < 32 and 1 <= size <= 32):
        raise CompileError(f"hwreg({number}, {first}, {size}): register 0 to 63, first bit 0 to 31, 1 to 32 bits")
    return number | first << 6 | size - 1 << 11


def message_text(value: int, generation: int) -> str:
    """Return the text of a message operand: its name, and on gfx9 its operation and stream."""
    if generation > 9:
        name = MESSAGES[generation].get(value & 0xFF)
        if name and value < 0x100:
            return f"sendmsg({name})"
        return f"sendmsg({value}, 0, 0)" if value < 0x100 else str(value)
    number, operation, stream = value & 0xF, value >> 4 & 7, value >> 8 & 3
    name = MESSAGES[9].get(number)
    operations = MESSAGE_OPERATIONS.get(name or "")
    if value >> 10 or value & 0x80:
        return str(value)
    if operations and operation in operations:
        text = f"{name}, {operations[operation]}"
        if name == "MSG_SYSMSG" or operation == 0:
            return f"sendmsg({text})" if stream == 0 else f"sendmsg({number}, {operation}, {stream})"
        return f"sendmsg({text}, {stream})"
    if name and not operations and operation == 0 and stream == 0:
        return f"sendmsg({name})"
    return f"sendmsg({number}, {operation}, {stream})"


def read_message(arguments: Sequence[int | str], generation: int) -> int:
    """Return the immediate of `sendmsg(MSG_INTERRUPT)` or `sendmsg(MSG_GS, GS_OP_EMIT, 0)`."""
    if not 1 <= len(arguments) <= 3:
        raise CompileError("sendmsg takes a message, and for some its operation and stream")
    number = arguments[0]
    operations = MESSAGE_OPERATIONS.get(str(number), {})
    if isinstance(number, str):
        known = {name: code for code, name in MESSAGES[generation].items()}
        if number not in known:
            raise CompileError(f"no message {number}; there are {', '.join(known)}")
        if len(arguments) > 1 and not (generation == 9 and operations):
            raise CompileError(f"{number} has no operations")
        if generation == 9 and operations and len(arguments) == 1 and number != "MSG_GS_DONE":
            raise CompileError(f"{number} needs an operation of {', '.join(operations.values())}")
        number = known[number]
    operation = arguments[1] if len(arguments) > 1 else 0
    if isinstance(operation, str):
        codes = {name: code for code, name in operations.items()}
        if operation not in codes:
            raise CompileError(f"no operation {operation}; this message has {', '.join(codes) or 'none'}")
        operation = codes[operation]
    stream = arguments[2] if len(arguments) > 2 else 0
    if not isinstance(stream, int):
        raise CompileError("the stream of a message is a number")
    if generation > 9:
        if operation or stream or not 0 <= number < 0x100:
            raise CompileError(f"sendmsg({number}, {operation}, {stream}): message 0 to 255, no operation, no stream")
        return number
    if not (0 <= number < 16 and 0 <= operation < 8 and 0 <= stream < 4):
        raise CompileError(
            f"sendmsg({number}, {operation}, {stream}): message 0 to 15, operation 0 to 7, stream 0 to 3"
        )
    return number | operation << 4 | stream << 8


def version_text(value: int) -> str:
    """Return the text of `s_version`'s operand: the name of the instruction set and its possible wave sizes, with
    brackets as LLVM writes them.
    """
    if value & _NO_VERSION_BITS:
        return f"{value:#x}"
    text = VERSIONS.get(value & 0xFF, str(value & 0xFF))
    for i, name in enumerate(name for name, bit in VERSION_BITS.items() if value & bit):
        text = f"({text})|{name}" if i else f"{text}|{name}"
    return text


def index_mode_text(value: int) -> str:
    """Return the text of the mode of `s_set_gpr_idx_on` and `s_set_gpr_idx_mode` (gfx9): which operands are indexed."""
    if value >> len(INDEX_MODES):
        return f"{value:#x}"
    return f"gpr_idx({','.join(name for bit, name in enumerate(INDEX_MODES) if value >> bit & 1)})"


def read_index_mode(arguments: Sequence[int | str]) -> int:
    """Return the immediate of `gpr_idx(SRC0,DST)`."""
    if any(name not in INDEX_MODES for name in arguments) or len(set(arguments)) != len(arguments):
        raise CompileError(f"gpr_idx({','.join(map(str, arguments))}): it takes {', '.join(INDEX_MODES)}, each once")
    return sum(1 << INDEX_MODES.index(str(name)) for name in arguments)


def _number(name: str, arguments: Sequence[int | str]) -> int:
    if len(arguments) != 1 or not isinstance(arguments[0], int):
        raise CompileError(f"{name} takes one number")
    return arguments[0]
