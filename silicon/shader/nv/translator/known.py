"""Programs that launches have brought: their blocks, and what is known of them. A launch of a program that is known
only compares its code.
"""

from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING

from ringup.silicon.shader.nv.decoding.instruction import RZ, WORD_BYTES, Instruction, Kind
from ringup.silicon.shader.nv.interpreter.memory import shape_of
from ringup.silicon.shader.nv.state import LANES
from ringup.silicon.shader.nv.translator.program import Block, blocks_of, target_of
from ringup.silicon.shader.nv.translator.writer import NotTranslated

if TYPE_CHECKING:
    from ringup.silicon.nv.compute.launch import Launch
    from ringup.silicon.shader.common.state import Memory

# Places of programs that are kept.
MAX_PLACES = 4096
_WIDE = ("WIDE", "F64", "U64", "S64")


class Program:
    """The code of a program. `low` is the place of its first byte, from its entry. `launched` counts the
    warp-instructions of its launches so far.
    """

    def __init__(self, low: int, code: bytes, blocks: dict[int, Block]) -> None:
        self.low, self.code, self.blocks = low, code, blocks
        self.size = sum(len(block.instructions) for block in blocks.values())
        self.launched = 0.0
        self._loops = _loops(blocks)
        self._needs = _needs(blocks)

    @property
    def banks(self) -> dict[int, int]:
        """How many bytes of each constant bank are read at fixed places."""
        return {number: size_bytes for number, (size_bytes, _) in self._needs.items() if size_bytes}

    def work(self, launch: Launch) -> float:
        """Return how many warp-instructions a launch takes; without end if it may loop."""
        if self._loops:
            return math.inf
        return -(-math.prod(launch.block) // LANES) * math.prod(launch.grid) * self.size

    def check_constants(self, launch: Launch) -> None:
        """Refuse constants beyond their banks: the interpreter says what is wrong with them."""
        for number, (size_bytes, text) in self._needs.items():
            bank = launch.constants[number] if number < len(launch.constants) else None
            if bank is None or size_bytes > bank.size_bytes:
                raise NotTranslated(f"{text}: no such constant")


def _loops(blocks: dict[int, Block]) -> bool:
    lasts = ((start, block, block.instructions[-1]) for start, block in blocks.items())
    return any(last.name == "BRA" and target_of(last, block.end - WORD_BYTES) <= start for start, block, last in lasts)


def _needs(blocks: dict[int, Block]) -> dict[int, tuple[int, str]]:
    """Return by constant bank how many bytes of it are read, and the instruction that reads the last one."""
    found: dict[int, tuple[int, str]] = {}
    for block in blocks.values():
        for ins in block.instructions:
            for one in ins.operands:
                if one.kind is not Kind.CONSTANT or one.bank < 0:
                    continue
                is_fixed = one.register in (-1, RZ) and one.uniform < 0
                end = one.value + _constant_bytes(ins) if is_fixed else 0
                if one.bank not in found or end > found[one.bank][0]:
                    found[one.bank] = end, ins.text
    return found


def _constant_bytes(ins: Instruction) -> int:
    """Return how many bytes an instruction may read of a constant."""
    if ins.name in ("LDC", "ULDC", "LDCU"):
        return shape_of(ins).size_bytes
    is_wide = ins.name in ("DADD", "DMUL", "DFMA", "DSETP") or any(one in _WIDE for one in ins.modifiers)
    return 8 if is_wide else 4


class Programs:
    """The programs of one chip's cores."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._at: dict[int, Program] = {}
        self._by_code: dict[tuple[int, bytes], Program] = {}

    def find(self, memory: Memory, gpu_va: int) -> Program:
        """Return the program at an address. Raises what memory and the decoder raise."""
        known = self._at.get(gpu_va)
        if known is not None and code_at(memory, gpu_va + known.low, len(known.code)) == known.code:
            return known
        read = lambda at: int.from_bytes(code_at(memory, gpu_va + at, WORD_BYTES), "little")  # noqa: E731
        blocks = blocks_of(self._target, read)
        low, high = min(blocks), max(block.end for block in blocks.values())
        code = code_at(memory, gpu_va + low, high - low)
        if len(self._at) >= MAX_PLACES:
            self._at.clear()
            self._by_code.clear()
        found = self._by_code.get((low, code))
        if found is None:
            found = self._by_code[low, code] = Program(low, code, blocks)
        self._at[gpu_va] = found
        return found


def code_at(memory: Memory, gpu_va: int, size_bytes: int) -> bytes:
    """Return bytes of code, which may lie in several regions."""
    found = b""
    while len(found) < size_bytes:
        at = gpu_va + len(found)
        region = memory.region(at, write=False)
        left = region.gpu_va + region.size_bytes - at
        found += ctypes.string_at(region.pointer + at - region.gpu_va, min(left, size_bytes - len(found)))
    return found
