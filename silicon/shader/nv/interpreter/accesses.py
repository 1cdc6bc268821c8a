"""Which registers an instruction reads and writes: its rule is executed once on a warp that nobody sees."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ringup.silicon.nv.compute.launch import Bank, Launch, Windows
from ringup.silicon.shader.common.state import Region
from ringup.silicon.shader.nv.decoding.instruction import Kind
from ringup.silicon.shader.nv.interpreter.engine import rule_of
from ringup.silicon.shader.nv.interpreter.step import Machine, Step
from ringup.silicon.shader.nv.state import start_group
from ringup.silicon.shader.nv.strict.tracker import Tracker

if TYPE_CHECKING:
    from ringup.silicon.shader.nv.decoding.instruction import Instruction

PAGE, BANK_BYTES, REGISTERS = 1 << 12, 1 << 16, 256


class Access(NamedTuple):
    """One access to a register: of file R, U, P or Q."""

    file: str
    number: int
    is_write: bool
    is_guard: bool = False


class _Nowhere:
    """Memory with a scratch page at every address."""

    epoch = 0

    def __init__(self) -> None:
        self.page = np.zeros(BANK_BYTES + PAGE, np.uint8)

    def region(self, gpu_va: int, write: bool, execute: bool = False) -> Region:
        base = gpu_va // PAGE * PAGE
        return Region(base, self.page.size, self.page.ctypes.data)


class _Recorder(Tracker):
    """A tracker that only notes accesses."""

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.found: list[Access] = []

    def read(self, file: str, number: int, *, guard: bool = False, lanes: int | None = None) -> None:
        self.found.append(Access(file, number, is_write=False, is_guard=guard))

    def write(self, file: str, number: int) -> None:
        self.found.append(Access(file, number, is_write=True))

    def is_undefined(self, file: str, number: int, lanes: int) -> int:
        return 0


_LAUNCH = Launch(
    descriptor=0, version=(0, 0), program=0, grid=(1, 1, 1), block=(32, 1, 1), registers=REGISTERS, barriers=16,
    shared_bytes=BANK_BYTES, local_low_bytes=PAGE, local_high_bytes=0, constants=(Bank(0, BANK_BYTES),) * 8,
    sass_version=0, linked_samplers=False, sequential=False, windows=Windows(shared=1 << 62, local=1 << 61),
)  # fmt: skip


@lru_cache(maxsize=65536)
def accesses(target: str, ins: Instruction) -> tuple[Access, ...]:
    """Return an instruction's accesses in order, as if all lanes executed it. Raises what its rule raises.

    Registers hold zero here, so an address gets no offset: a negative one would be beyond memory.
    """
    operands = tuple(one._replace(value=0) if one.kind is Kind.ADDRESS else one for one in ins.operands)
    ins = replace(ins, operands=operands)
    group = start_group(_LAUNCH, (0, 0, 0))
    warp = group.warps[0]
    warp.track = recorder = _Recorder(target)
    if ins.is_guarded and not ins.guard.invert:
        # so that the guard is true
        warp.predicates[ins.guard.value] = warp.active
        warp.uniform_predicates[ins.guard.value] = True
    step = Step(ins, 0, warp, Machine(_Nowhere(), strict=False, target=target))
    rule_of(ins)(step)
    return tuple(dict.fromkeys(recorder.found))
