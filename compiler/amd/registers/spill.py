"""Spilling: registers that do not fit are kept in memory between their uses.

VGPRs go to scratch, in a slot of dwords for each lane. A store writes the lanes that EXEC enables and keeps the others
of the slot; a load does the same for the register. So a value that is written under one mask and read under another is
merged in the slot exactly as in the register. Instructions that read or write disabled lanes (v_readlane, DPP with fi,
WMMA) would not see these lanes reloaded; where EXEC changes, their registers are not spilled. SGPRs go to lanes of
VGPRs by v_writelane, which ignores EXEC. A register that is set only once, to a constant, is rematerialised at each
use.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ringup.compiler.amd.instructions.code import OFF, Instr, Operand, Part, Reg, Signed
from ringup.compiler.amd.instructions.effects import generation
from ringup.compiler.amd.instructions.steps import Program, Step
from ringup.compiler.amd.registers.coalesce import Frame, is_copy, whole_part
from ringup.compiler.amd.registers.liveness import Liveness
from ringup.compiler.amd.registers.pressure import Pressure
from ringup.errors import CompileError

# The number of iterations assumed for a loop.
LOOP_WEIGHT: Final = 8.0
# The highest immediate offset. Source: CDNA3, RDNA3, RDNA4 ISA references, "FLAT, GLOBAL and SCRATCH".
MAX_OFFSET: Final = {"gfx9": 4095, "gfx11": 4095, "gfx12": (1 << 23) - 1}
SPILL_NOTE: Final = "spill"
MOVES: Final = frozenset(("v_mov_b32", "s_mov_b32", "s_mov_b64"))


class _Home(NamedTuple):
    """Where a spilled register is kept: the instruction that rematerialises it, lanes of VGPRs by dword, or a scratch
    offset in bytes.
    """

    again: Instr | None = None
    lanes: tuple[tuple[Reg, int], ...] = ()
    offset: int = 0


class Spiller:
    """Chooses registers to spill and rewrites the program. `spilled_dwords` counts those that went
    to memory or lanes.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.spilled_dwords = 0
        # Registers created by spilling.
        self._stay: set[Reg] = set()
        # Free lanes.
        self._lanes: list[tuple[Reg, int]] = []
        # The only instruction that sets a register, if it moves a constant.
        self._single: dict[Reg, Instr | None] = {}
        self._max_offset = MAX_OFFSET[generation(program.code.target)]

    def relieve(self, frames: list[Frame], pressure: Pressure, size: int, liveness: Liveness) -> list[Reg]:
        """Choose registers until at most `size` dwords are live everywhere. Raises CompileError if no more can be
        spilled.
        """
        over = pressure.above(size)
        chosen: list[Reg] = []
        for reg, mask in self._candidates(frames, over, liveness):
            if mask & over:
                chosen.append(reg)
                base = self.program.base[reg]
                for unit in range(base, base + reg.count):
                    pressure.remove(liveness.mask[unit] & mask)
                over = pressure.above(size)
                if not over:
                    return chosen
        if not chosen:
            self._impossible(frames, over, size, liveness)
        return chosen

    def make_room(self, failed: Frame, frames: list[Frame], size: int, liveness: Liveness) -> list[Reg]:
        """Choose the cheapest registers, of as many dwords as a frame, so that the frame may find a gap."""
        dwords, chosen = 0, []
        for reg, _ in self._candidates(frames, failed.whole, liveness):
            chosen.append(reg)
            dwords += reg.count
            if dwords >= failed.count:
                break
        if not chosen:
            self._impossible(frames, failed.whole, size, liveness)
        return chosen

    def _candidates(self, frames: list[Frame], over: int, liveness: Liveness) -> list[tuple[Reg, int]]:
        """Return the registers live at `over` that can be spilled; those of the lowest cost for what they cover come
        first.
        """
        weights, stuck = self._weigh(liveness)
        rated = []
        for frame in frames:
            if not frame.whole & over:
                continue
            for reg, _ in frame.members:
                if reg in stuck or reg in self._stay:
                    continue
                base = self.program.base[reg]
                mask = 0
                for unit in range(base, base + reg.count):
                    mask |= liveness.mask[unit]
                covered = (mask & over).bit_count()
                # A range of two instructions is as short as spilling would make it.
                if covered and mask & mask >> 2 & mask >> 4:
                    rated.append((weights.get(reg, 0.0) / (covered * reg.count), base, reg, mask))
        rated.sort(key=lambda one: one[:2])
        return [(reg, mask) for _, _, reg, mask in rated]

    def _weigh(self, liveness: Liveness) -> tuple[dict[Reg, float], set[Reg]]:
        """Return the cost of spilling each register (accesses weighted by loop depth), and the registers that must not
        be spilled.
        """
        weights: dict[Reg, float] = {}
        stuck: set[Reg] = set()
        single: dict[Reg, Instr | None] = {}
        self._single = single
        for b, steps in enumerate(self.program.blocks):
            weight = LOOP_WEIGHT ** min(self.program.code.blocks[b].depth, 6)
            for step in steps:
                blind = step.effects.any_lane and liveness.masks is not None
                defs = step.effects.defs
                for i, operand in enumerate(step.instr.operands):
                    reg = _reg_of(operand)
                    if reg is not None:
                        weights[reg] = weights.get(reg, 0.0) + weight
                        if i in defs:
                            single[reg] = None if reg in single or not _is_constant_move(step) else step.instr
                        if blind and reg.bank == "v":
                            stuck.add(reg)
        for reg in self.program.code.inputs:
            single[reg] = None
        for reg, again in single.items():
            if again is not None:
                # It needs no memory access.
                weights[reg] *= 0.25
        return weights, stuck

    def _impossible(self, frames: list[Frame], over: int, size: int, liveness: Liveness) -> None:
        left, place = over, (0, 0)
        # The first place that is not spill code, else the first of all.
        while left:
            number = ((left & -left).bit_length() - 1) // 2
            block = max(b for b, start in enumerate(liveness.starts) if start <= number and self.program.blocks[b])
            step = self.program.blocks[block][number - liveness.starts[block]]
            if left == over or step.instr.note != SPILL_NOTE:
                place = (block, number)
            if step.instr.note != SPILL_NOTE:
                break
            left &= ~(3 << 2 * number)
        block, number = place
        step = self.program.blocks[block][number - liveness.starts[block]]
        needed = sum(mask >> 2 * number & 3 != 0 for frame in frames for mask in frame.masks)
        where = f"kernel {self.program.code.name}: at `{step.instr}` in {self.program.code.blocks[block]}"
        raise CompileError(
            f"{where} {needed} {frames[0].bank.upper()}GPRs are needed at once that cannot be spilled; there are {size};"
            " use narrower operands or fewer at a time"
        )

    def spill(self, victims: list[Reg], liveness: Liveness) -> None:
        """Assign a place to each register, and rewrite every instruction that uses one."""
        homes = {}
        for reg in victims:
            homes[reg] = self._home(reg)
        for reg in victims:
            if reg.fixed is not None and reg in self.program.code.inputs and homes[reg].again is None:
                self._keep_input(reg, homes)
        for b, steps in enumerate(self.program.blocks):
            made: list[Step] = []
            for step in steps:
                if any(_reg_of(operand) in homes for operand in step.instr.operands):
                    self._rewrite(step, homes, made)
                else:
                    made.append(step)
            self.program.blocks[b] = made

    def _home(self, reg: Reg) -> _Home:
        again = self._single.get(reg)
        if again is not None:
            return _Home(again=again)
        self.spilled_dwords += reg.count
        if reg.bank == "s":
            return _Home(lanes=tuple(self._lane() for _ in range(reg.count)))
        align = 16 if reg.count > 2 else 4 * reg.count
        code = self.program.code
        offset = -(-code.scratch_bytes // align) * align
        code.scratch_bytes = offset + 4 * reg.count
        return _Home(offset=offset)

    def _lane(self) -> tuple[Reg, int]:
        if not self._lanes:
            holder = Reg("v", name=f"lanes{len(self._stay)}")
            self._stay.add(holder)
            self.program.number(holder)
            self._lanes = [(holder, lane) for lane in range(self.program.wave_size)]
        return self._lanes.pop(0)

    def _keep_input(self, reg: Reg, homes: dict[Reg, _Home]) -> None:
        """Store what the dispatcher left in a register. A new register replaces it as the input."""
        arrived = Reg(reg.bank, reg.count, name=f"{reg.name}.in", fixed=reg.fixed)
        self._stay.add(arrived)
        self.program.number(arrived)
        inputs = self.program.code.inputs
        inputs[inputs.index(reg)] = arrived
        reg.fixed = None
        made: list[Step] = []
        self._store(arrived, 0, homes[reg], 0, reg.count, made)
        self.program.blocks[0][:0] = made

    def _rewrite(self, step: Step, homes: dict[Reg, _Home], made: list[Step]) -> None:
        instr, effects = step.instr, step.effects
        if is_copy(step):
            to, source = whole_part(instr.operands[0]), whole_part(instr.operands[1])
            if to and source and to[0].bank == source[0].bank:
                if to[0] in homes and source[0] not in homes and homes[to[0]].again is None:
                    self._store(source[0], source[1], homes[to[0]], to[1], to[2], made)
                    return
                if source[0] in homes and to[0] not in homes and homes[source[0]].again is None:
                    self._load(to[0], to[1], homes[source[0]], source[1], source[2], made)
                    return
        spans: dict[Reg, tuple[int, int]] = {}
        for operand in instr.operands:
            reg = _reg_of(operand)
            if reg in homes:
                assert reg is not None
                first, count = _span_of(operand)
                low, high = spans.get(reg, (first, first + count))
                spans[reg] = (min(low, first), max(high, first + count))
        stores = []
        temporary: dict[Reg, tuple[Reg, int]] = {}
        for reg, (low, high) in spans.items():
            home = homes[reg]
            # The only instruction that sets it is removed; each use rematerialises it.
            if home.again is not None and any(_reg_of(instr.operands[i]) is reg for i in effects.defs):
                return
            fresh = Reg(reg.bank, reg.count if home.again else high - low, name=f"{reg.name}.s" if reg.name else "")
            if home.again is not None:
                low = 0
            self._stay.add(fresh)
            self.program.number(fresh)
            temporary[reg] = (fresh, low)
            read = [_span_of(instr.operands[i]) for i in effects.uses if _reg_of(instr.operands[i]) is reg]
            written = [_span_of(instr.operands[i]) for i in effects.defs if _reg_of(instr.operands[i]) is reg]
            if home.again is not None:
                self._append(made, home.again.mnemonic, fresh, *home.again.operands[1:])
            else:
                for first, count in dict.fromkeys(read):
                    self._load(fresh, first - low, home, first, count, made)
                stores += [(fresh, first - low, home, first, count) for first, count in dict.fromkeys(written)]
        instr.operands = [_renamed(operand, temporary) for operand in instr.operands]
        made.append(self.program.step(instr))
        for store in stores:
            self._store(*store, made)

    def _append(self, made: list[Step], mnemonic: str, *operands: Operand, **modifiers: object) -> None:
        made.append(self.program.step(Instr(mnemonic, *operands, note=SPILL_NOTE, **modifiers)))

    def _load(self, to: Reg, at: int, home: _Home, first: int, count: int, made: list[Step]) -> None:
        if home.lanes:
            for k in range(count):
                holder, lane = home.lanes[first + k]
                self._append(made, "v_readlane_b32", _piece(to, at + k, 1), holder, lane)
            return
        for k, width in _pieces(home.offset // 4 + first, count):
            offset = home.offset + 4 * (first + k)
            piece = _piece(to, at + k, width)
            if offset <= self._max_offset:
                self._append(made, f"scratch_load_b{32 * width}", piece, OFF, OFF, offset=offset)
            else:
                # The address is in the load's own destination.
                address = _piece(to, at + k, 1)
                self._append(made, "v_mov_b32", address, offset)
                self._append(made, f"scratch_load_b{32 * width}", piece, address, OFF)

    def _store(self, source: Reg, at: int, home: _Home, first: int, count: int, made: list[Step]) -> None:
        if home.lanes:
            for k in range(count):
                holder, lane = home.lanes[first + k]
                self._append(made, "v_writelane_b32", holder, _piece(source, at + k, 1), lane)
            return
        for k, width in _pieces(home.offset // 4 + first, count):
            offset = home.offset + 4 * (first + k)
            piece = _piece(source, at + k, width)
            if offset <= self._max_offset:
                self._append(made, f"scratch_store_b{32 * width}", OFF, piece, OFF, offset=offset)
            else:
                address = Reg("v")
                self._stay.add(address)
                self._append(made, "v_mov_b32", address, offset)
                self._append(made, f"scratch_store_b{32 * width}", address, piece, OFF)


def _reg_of(operand: Operand) -> Reg | None:
    if isinstance(operand, Reg):
        return operand
    if isinstance(operand, Part):
        return operand.reg
    return _reg_of(operand.source) if isinstance(operand, Signed) else None


def _span_of(operand: Operand) -> tuple[int, int]:
    if isinstance(operand, Signed):
        return _span_of(operand.source)
    if isinstance(operand, Part):
        return operand.first, operand.count
    return 0, operand.count if isinstance(operand, Reg) else 0


def _renamed(operand: Operand, temporary: dict[Reg, tuple[Reg, int]]) -> Operand:
    reg = _reg_of(operand)
    if reg not in temporary:
        return operand
    assert reg is not None
    if isinstance(operand, Signed):
        return Signed(_renamed(operand.source, temporary), operand.neg, operand.abs)
    fresh, low = temporary[reg]
    first, count = _span_of(operand)
    return _piece(fresh, first - low, count)


def _piece(reg: Reg, first: int, count: int) -> Operand:
    return reg if first == 0 and count == reg.count else Part(reg, first, count)


def _pieces(dword: int, count: int) -> list[tuple[int, int]]:
    """Split dwords at scratch dword `dword` into aligned accesses: (first, width)."""
    found, k = [], 0
    while k < count:
        at, left = dword + k, count - k
        width = 4 if left >= 4 and at % 4 == 0 else 2 if left >= 2 and at % 2 == 0 else 1
        found.append((k, width))
        k += width
    return found


def _is_constant_move(step: Step) -> bool:
    instr = step.instr
    return (
        instr.mnemonic in MOVES
        and not instr.modifiers
        and isinstance(instr.operands[0], Reg)
        and isinstance(instr.operands[1], (int, float))
    )
