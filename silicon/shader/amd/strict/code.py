"""Generate strict-mode checks for the registers that analysis could not clear: written lanes, loads in flight.

Tracked registers have shadows, see `shadows.py`. They are saved with the wave's state, after its VGPRs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringup.silicon.shader.amd.decoding.analysis import FIRST_VGPR, M0_BIT, VECTOR_FORMATS, numbers, registers
from ringup.silicon.shader.amd.decoding.decode import TRANSPOSING_LOADS
from ringup.silicon.shader.amd.decoding.memory_effects import BLOCKS, memory_effects
from ringup.silicon.shader.amd.rules.cdna4 import swapped_lanes
from ringup.silicon.shader.amd.rules.global_memory import USED_ADDRESSES, own_lanes
from ringup.silicon.shader.amd.rules.lds import exchanged
from ringup.silicon.shader.amd.rules.matrix import undefined_elements
from ringup.silicon.shader.amd.rules.mfma import undefined_products
from ringup.silicon.shader.amd.strict.analysis import (
    EXEC_WORDS,
    LANE_MOVES,
    LDS_STORED,
    PRODUCTS,
    PSEUDO_SCALAR,
    READS_INACTIVE,
    Findings,
    Issue,
    Pending,
    computes,
    issue,
    lds_data,
    lds_fills,
    limits,
    matrix_operands,
    reads,
    split,
)
from ringup.silicon.shader.amd.strict.history import (
    PART_SOURCES,
    WIDE_SHIFTS,
    gathered_sources,
    scalar_computes,
)
from ringup.silicon.shader.amd.strict.indirect import is_indirect, moves, sides
from ringup.silicon.shader.amd.strict.shadows import Shadows, logic_of, shadow_of
from ringup.silicon.shader.amd.writer import dpp
from ringup.silicon.shader.common import state
from ringup.silicon.shader.common.launch import STATUS_IN_GROUP
from ringup.silicon.shader.host.context import COUNTERS, EXEC_BITS_UNWRITTEN
from ringup.silicon.shader.host.emitter import Value

if TYPE_CHECKING:
    from ringup.silicon.shader.amd.decoding.cfg import Key, Program, Step
    from ringup.silicon.shader.amd.decoding.decode import Dpp, Instruction, Operand
    from ringup.silicon.shader.amd.strict.indirect import Side
    from ringup.silicon.shader.amd.writer.registers import Register
    from ringup.silicon.shader.amd.writer.wave import Wave

# Selectors of v_perm_b32 from this one on take no byte. Source: RDNA3 ISA reference, "V_PERM_B32".
_CONSTANT_BYTE = 12
# Three masks of selectors: those that take a byte of S0 or its sign, those that take one of S1, those that take
# neither.
_BY_SELECTOR = (0x0CF0, 0x030F, 1 << _CONSTANT_BYTE)


def shadow_slots(vgpr_count: int) -> int:
    """Return how many shadows of 8 bytes fit in a wave's state.

    Shadows beyond that are lost when a wave yields.
    """
    return vgpr_count + 160


class Guard(Shadows):
    """Generates the checks of one program. A wave's state has `rows` rows of lanes, behind which shadows are saved."""

    def __init__(self, wave: Wave, program: Program, findings: Findings, rows: int) -> None:
        super().__init__(wave, findings)
        self.flights: dict[int, dict[Pending, Register]] = {one: {} for one in numbers(findings.flying)}
        for block in program.blocks.values():
            for step in block.code:
                new = issue(step.ins, wave.lanes)
                for one in numbers(new.fills & findings.flying) if new else ():
                    for pending in new.waits if new else ():
                        self.flights[one].setdefault(pending, ("h", 0))
        count = 0
        for why in self.flights.values():
            for pending in why:
                why[pending] = ("h", count)
                count += 1
        self.shadows: list[Register] = [shadow_of(one) for one in numbers(findings.shadowed)]
        self.shadows += [one for why in self.flights.values() for one in why.values()]
        behind = state.RESERVED_WORDS + rows * wave.lanes
        limit = shadow_slots(rows)
        wave.shadow_words = {one: behind + 2 * slot for slot, one in enumerate(self.shadows[:limit])}

    # entry and exit ---------------------------------------------------------------------------------------------------

    def start(self, written: int) -> None:
        """Set the shadows at a program's entry: `written` registers are written in all lanes, nothing is in flight."""
        for one in numbers(self.findings.shadowed):
            register = shadow_of(one)
            self.set(register, self.all(register) if written >> one & 1 else self.none(register))
        for why in self.flights.values():
            for register in why.values():
                self.set(register, self.none(register))

    def restore(self) -> None:
        """Read the shadows from the wave's state."""
        for register in self.shadows:
            if register not in self.wave.shadow_words:
                self.set(register, self.none(register) if register[0] == "h" else self.all(register))
            elif not self.wave.in_state:
                self.set(register, self.wave.restore_register(register))

    def save(self) -> None:
        """Write the shadows to the wave's state."""
        for register in self.wave.shadow_words:
            if register in self.wave.dirty or not self.wave.in_state:
                self.wave.save_register(register)

    # an instruction ---------------------------------------------------------------------------------------------------

    def before(self, key: Key, index: int, step: Step) -> None:
        """Check the registers that an instruction accesses."""
        code = self.code
        self.wave.written_rows = [self.get(shadow_of(one)) if self.follows(one) else None for one in lds_data(step.ins)]
        moved = sides(step.ins) if is_indirect(step.ins) else ()
        for one in numbers(self.findings.unwaited[key][index]):
            self._check_flight(one, moved, step.ins)
        unproven = self.findings.unproven[key][index]
        everywhere = self._decides_everywhere(step.ins) if unproven else 0
        stored = reads(step.ins, self.wave.lanes).stored & unproven
        # The address of a FLAT store decides who can read the data.
        is_flat = step.ins.format == "FLAT"
        if stored and not is_flat:
            self._check_stored(step.ins, stored, self.wave.exec_bits())
        if moved and unproven & ~M0_BIT:
            self._check_into_exec(step.ins)
        for one in numbers(unproven & M0_BIT if moved else unproven & ~stored):
            if one < FIRST_VGPR:
                bits, into_exec = self._missing_bits(one, step.ins)
                detail = code.const(one | EXEC_BITS_UNWRITTEN * into_exec, "i64")
            else:
                bits = self._missing_lanes(one, step.ins, everywhere=bool(everywhere >> one & 1))
                detail = self._detail(one, bits)
            self.wave.fault(code.icmp("ne", bits, code.const(0, bits.type)), "uninitialised", detail)
        if stored and is_flat:
            others = code.invert(own_lanes(self.wave, step.ins))
            self._check_stored(step.ins, stored, code.op("and", self.wave.exec_bits(), others))

    def _check_into_exec(self, ins: Instruction) -> None:
        """Check that M0 does not move undefined bits to EXEC."""
        code = self.code
        for target, source in moves(ins):
            for word in range(0 if source is None else max(target.operand.size_bits // 32, 1)):
                assert source is not None
                known = self._picked_shadow(source, word, ("d", 0))
                missing = code.icmp("ne", known, code.const(-1, "i32"))
                for one in EXEC_WORDS:
                    detail = code.const(source.first + word | EXEC_BITS_UNWRITTEN, "i64")
                    broken = code.op("and", missing, self._is_word(one, target, word))
                    self.wave.fault(broken, "uninitialised", detail)

    def _decides_everywhere(self, ins: Instruction) -> int:
        return reads(ins, self.wave.lanes).decide_everywhere

    def _detail(self, one: int, bits: Value) -> Value:
        """Return a VGPR fault's detail: the register's number, with the first lane of `bits` above it."""
        code = self.code
        lane = code.resize(code.intrinsic("cttz", bits, Value("false", "i1"), overload=(bits.type,)), "i64")
        return code.op("or", code.op("shl", lane, code.const(32, "i64")), code.const(one, "i64"))

    def _check_stored(self, ins: Instruction, stored: int, bits: Value) -> None:
        """Check that each lane in `bits` stores at least one written register."""
        code = self.code
        for one in numbers(stored):
            bits = code.op("and", bits, self._missing_lanes(one, ins, everywhere=False))
        first = (stored & -stored).bit_length() - 1
        self.wave.fault(code.icmp("ne", bits, code.const(0, bits.type)), "uninitialised", self._detail(first, bits))

    def _check_flight(self, one: int, moved: tuple[Side, ...], ins: Instruction) -> None:
        """Check that a register is not in flight; for a move by M0, or a block, only if M0 selects the register."""
        code = self.code
        total = code.const(0, "i64")
        for pending, register in self.flights[one].items():
            busy = code.icmp("ne", self.get(register), code.const(0, "i32"))
            bit = code.op(
                "shl", code.cast("zext", busy, "i64"), code.const(32 + COUNTERS.index(pending.counter), "i64")
            )
            total = code.op("or", total, bit)
        # Waves alone in their group have no barrier.
        if one == LDS_STORED:
            status = code.op("and", self.wave.wave_word(state.STATUS), code.const(STATUS_IN_GROUP, "i32"))
            total = code.select(code.icmp("ne", status, code.const(0, "i32")), total, code.const(0, "i64"))
        one, _ = (one, 0) if one == LDS_STORED else split(one)
        detail = code.op("or", total, code.const(one, "i64"))
        broken = code.icmp("ne", total, code.const(0, "i64"))
        if moved and one != state.M0:
            broken = code.op("and", broken, self._picked(one, moved))
        if ins.mnemonic in BLOCKS:
            broken = code.op("and", broken, self._in_block(ins, one))
        self.wave.fault(broken, "hazard", detail)

    def _picked(self, one: int, moved: tuple[Side, ...]) -> Value:
        """Return whether a move by M0 accesses a register (i1)."""
        code, found = self.code, Value("false", "i1")
        for side in moved:
            for word in range(max(side.operand.size_bits // 32, 1)):
                found = code.op("or", found, self._is_word(one, side, word))
        return found

    def _is_word(self, one: int, side: Side, word: int) -> Value:
        """Return whether a register is word `word` of an operand that M0 selects (i1)."""
        code, distance = self.code, one - side.first - word
        if distance < 0 or (one >= FIRST_VGPR) != (side.operand.kind == "vgpr"):
            return Value("false", "i1")
        if side.bits is None:
            return code.const(int(not distance), "i1")
        by = code.op("lshr", self.wave.sgpr(state.M0), code.const(side.bits[0], "i32"))
        by = code.op("and", by, code.const((1 << side.bits[1]) - 1, "i32"))
        if side.gate is not None:
            gate = code.op("lshr", self.wave.sgpr(state.M0), code.const(side.gate, "i32"))
            by = code.select(code.cast("trunc", gate, "i1"), by, code.const(0, "i32"))
        # An even register.
        if side.operand.size_bits == 64:
            by = code.op("and", by, code.const(-2, "i32"))
        return code.icmp("eq", by, code.const(distance, "i32"))

    def _moved_by_m0(self, ins: Instruction) -> list[tuple[Register, Value]]:
        """Return the new shadows of all registers that a move by M0 may write."""
        code = self.code
        changed: dict[Register, Value] = {}
        for target, source in moves(ins):
            kind = shadow_of(target.first)
            words = []
            for word in range(max(target.operand.size_bits // 32, 1)):
                new = self.all(kind) if source is None else self._picked_shadow(source, word, kind)
                if ins.dpp is not None:
                    new = code.invert(self._through_dpp(code.invert(new), ins.dpp))
                words.append(new)
            for one in numbers(target.reached(self.wave.lanes) & self.findings.shadowed):
                register = shadow_of(one)
                value = changed.get(register, self.get(register))
                for word, new in enumerate(words):
                    after = self._merged(register, new, ins) if one >= FIRST_VGPR else new
                    value = code.select(self._is_word(one, target, word), after, value)
                changed[register] = value
        return list(changed.items())

    def _picked_shadow(self, source: Side, word: int, kind: Register) -> Value:
        """Return the shadow of the source that M0 selects."""
        found = self.all(kind)
        for one in numbers(source.reached(self.wave.lanes) & self.findings.shadowed):
            found = self.code.select(self._is_word(one, source, word), self.source(one, kind), found)
        return found

    def _missing_lanes(self, one: int, ins: Instruction, *, everywhere: bool) -> Value:
        """Return the undefined lanes of a VGPR that decide something; with DPP the lanes that read such lanes."""
        missing = self.code.invert(self.get(shadow_of(one)))
        if ins.mnemonic.startswith(PRODUCTS):
            place = one - FIRST_VGPR - matrix_operands(ins).added.index
            elements = self._undefined_elements(ins, place)
            return self.code.op("and", missing, self.code.invert(elements))
        if ins.dpp is None:
            if ins.mnemonic.startswith(TRANSPOSING_LOADS):
                missing = self.code.op("and", missing, self.code.const(USED_ADDRESSES, missing.type))
            return missing if everywhere else self.code.op("and", missing, self.wave.exec_bits())
        found = self.code.const(0, missing.type)
        for operand in ins.uses:
            if registers(operand, self.wave.lanes) >> one & 1:
                by_dpp = operand.field == "src0"
                found = self.code.op("or", found, self._through_dpp(missing, ins.dpp) if by_dpp else missing)
        return self.code.op("and", found, self._target_lanes(ins))

    def _through_dpp(self, missing: Value, how: Dpp) -> Value:
        """Return which lanes read a lane in `missing` through DPP; an invalid lane reads 0."""
        code, wave = self.code, self.wave
        lanes = code.cast("zext", code.bitcast(missing, wave.bools), "i32")
        read = dpp.permute(code, lanes, how, wave.exec())
        return code.bitcast(code.icmp("ne", read, code.const(0, read.type)), wave.mask_type)

    def _target_lanes(self, ins: Instruction) -> Value:
        """Return the lanes in which an instruction writes a VGPR."""
        active = self.wave.exec_bits()
        enabled = dpp.writable(self.code, ins.dpp, self.wave.exec()) if ins.dpp is not None else None
        return (
            active if enabled is None else self.code.op("and", active, self.code.bitcast(enabled, self.wave.mask_type))
        )

    def _permuted(self, lanes: Value, ins: Instruction) -> Value:
        """Return a lane mask as the instruction reads it, through DPP if it has DPP."""
        if ins.dpp is None:
            return lanes
        code, wave = self.code, self.wave
        row = code.cast("zext", code.bitcast(lanes, wave.bools), "i32")
        read = dpp.permute(code, row, ins.dpp, wave.exec())
        return code.bitcast(code.icmp("ne", read, wave.const(0, "i32")), wave.mask_type)

    def _missing_bits(self, one: int, ins: Instruction) -> tuple[Value, bool]:
        """Return the undefined bits of a scalar that decide something, and whether they would be written to EXEC."""
        code, wave = self.code, self.wave
        for operand in ins.uses:
            at = one - operand.index
            if operand.kind == "sgpr" and 0 <= at < wave.lanes // 32:
                logic = logic_of(ins)
                if logic:
                    return code.invert(self.known_bits(logic, ins, at)[0]), True
                if scalar_computes(ins) and any(target.index in EXEC_WORDS for target in ins.defs):
                    return code.invert(self.moved_scalar(ins.defs[0].index + at, (), ins)), True
                if operand.type == "mask":
                    return code.op("and", code.invert(self.get(shadow_of(one))), wave.sgpr(state.EXEC_LO + at)), False
        return code.invert(self.get(shadow_of(one))), False

    def defined(self, step: Step) -> list[tuple[Register, Value]]:
        """Return the new shadows of what an instruction writes, computed before it runs. The caller passes them to
        `after`.
        """
        if is_indirect(step.ins):
            return self._moved_by_m0(step.ins)
        found = step.effects.defs & self.findings.shadowed
        if not found:
            return []
        wave, code = self.wave, self.code
        moves = {
            target: (sources, part)
            for part in step.ins.parts or (step.ins,)
            for target, sources in reads(part, wave.lanes).moves
        }
        changed = []
        for one in numbers(found):
            register = shadow_of(one)
            if one in moves:
                changed.append((register, self._moved(one, *moves[one])))
            elif one < FIRST_VGPR:
                changed.append((register, self.all(register)))
            elif wave.tracked and lds_fills(step.ins) and _keeps_a_half(step.ins):
                # `after` updates it.
                changed.append((register, self.get(register)))
            elif step.ins.mnemonic in BLOCKS:
                active = code.select(self._in_block(step.ins, one), self._target_lanes(step.ins), self.none(register))
                changed.append((register, code.op("or", self.get(register), active)))
            else:
                changed.append((register, code.op("or", self.get(register), self._target_lanes(step.ins))))
        return changed

    def _in_block(self, ins: Instruction, one: int) -> Value:
        """Return whether M0 selects a register of a block (i1)."""
        code, block = self.code, max(ins.operands, key=lambda operand: operand.size_bits)
        at = one - FIRST_VGPR - block.index
        if not 0 <= at < block.size_bits // 32:
            return code.const(1, "i1")
        bit = code.op("lshr", self.wave.sgpr(state.M0), code.const(at, "i32"))
        return code.cast("trunc", bit, "i1")

    def after(self, step: Step, changed: list[tuple[Register, Value]]) -> None:
        """Update the shadows after an instruction: registers written, operations issued or waited for."""
        for register, value in changed:
            self.set(register, value)
        for one, undefined in zip(lds_fills(step.ins), self.wave.undefined_rows, strict=False):
            if self.follows(one):
                register, loaded = shadow_of(one), self.code.invert(undefined)
                if _keeps_a_half(step.ins):
                    known = self.code.op("or", self.get(register), self.code.op("and", loaded, self.wave.exec_bits()))
                else:
                    known = self.code.op("and", self.get(register), loaded)
                self.set(register, known)
        if self.flights:
            self._follow_flights(step.ins)

    def _moved(self, target: int, sources: tuple[int, ...], ins: Instruction) -> Value:
        """Return the shadow of a register that takes another register's value."""
        wave, code = self.wave, self.code
        name, kind = ins.mnemonic, shadow_of(target)
        if name in ("v_readlane_b32", "v_readfirstlane_b32"):
            return self._lane_read(sources[0], ins)
        if name in LANE_MOVES:
            return self._exchanged(kind, sources, ins)
        if computes(name):
            return self._computed(target, sources, ins)
        if target < FIRST_VGPR:
            return self.moved_scalar(target, sources, ins)
        if name.startswith(PRODUCTS):
            place = target - FIRST_VGPR - ins.defs[0].index
            known = code.invert(self._undefined_elements(ins, place))
            words = 2 if ins.defs[0].type == "f64" else 1
            for at in range(words):
                added = matrix_operands(ins).added.index + place // words * words + at + FIRST_VGPR
                if added in sources:
                    known = code.op("and", known, self.source(added, kind))
            # The other half of each register is kept on RDNA3.
            keeps = ins.defs[0].type in ("f16", "bf16") and ins.generation.copies_matrices
            return code.op("or", known, self.get(kind)) if keeps else known
        if name == "v_writelane_b32":
            bit = code.op("shl", code.const(1, wave.mask_type), code.resize(self._lane(ins), wave.mask_type))
            was, new = self.get(kind), self._written_lane(kind, sources, ins)
            return code.op("or", code.op("and", was, code.invert(bit)), code.op("and", new, bit))
        new = self.source(sources[0], kind) if sources else self.all(kind)
        if "cndmask" in name:
            sides = [self._side(one, ins) for one in ins.uses[:2]]
            chosen = code.bitcast(wave.mask(next(one for one in ins.uses if one.type == "mask")), wave.mask_type)
            new = code.op("or", code.op("and", chosen, sides[1]), code.op("and", code.invert(chosen), sides[0]))
            new = code.op("and", new, self._mask_shadow(next(one for one in ins.uses if one.type == "mask")))
        elif name.startswith("v_permlane") and name.endswith("_swap_b32"):
            new = self._swapped(target, sources, ins)
        elif "permlane" in name:
            # Which lane went where is not tracked.
            new = self.all(kind)
        elif ins.dpp is not None:
            new = self._side(ins.uses[0], ins)
        return self._merged(kind, new, ins)

    def _swapped(self, target: int, sources: tuple[int, ...], ins: Instruction) -> Value:
        """Return the shadow of a register that exchanges rows with another."""
        is_first = target == sources[0]
        own, other = (self.source(one, shadow_of(target)) for one in (sources if is_first else reversed(sources)))
        return swapped_lanes(self.wave, ins, own, other, upper=is_first)

    def _written_lane(self, kind: Register, sources: tuple[int, ...], ins: Instruction) -> Value:
        """Return the shadow of the lane that v_writelane_b32 writes, in every lane.

        Code for GCN saves lane masks there, some of whose bits are undefined. The interpreter has the same rule in
        `interpreter/alu.py`.
        """
        if not sources or not self.follows(sources[0]):
            return self.all(kind)
        if not ins.generation.is_gcn:
            return self.source(sources[0], kind)
        some = self.code.icmp("ne", self.get(shadow_of(sources[0])), self.code.const(0, "i32"))
        return self.code.cast("sext", some, self.wave.base_type(kind))

    def _merged(self, register: Register, new: Value, ins: Instruction) -> Value:
        """Return the shadow of a VGPR after a write of the instruction's target lanes."""
        code, active = self.code, self._target_lanes(ins)
        kept = code.op("and", self.get(register), code.invert(active))
        return code.op("or", kept, code.op("and", new, active))

    def _computed(self, target: int, sources: tuple[int, ...], ins: Instruction) -> Value:
        """Return the shadow of a lane-wise result: a VGPR, or a word of a lane mask. Mask bits of other lanes are 0."""
        code, wave = self.code, self.wave
        if ins.mnemonic.startswith(PSEUDO_SCALAR):
            return self.every_known(sources)
        if ins.mnemonic in WIDE_SHIFTS:
            return self._merged(shadow_of(target), code.invert(self._wide_shift(target, ins)), ins)
        permutes, gathered = ins.mnemonic == "v_perm_b32", gathered_sources(ins.mnemonic)
        missing = code.invert(self._known_bytes(ins)) if permutes else self.none(("m", 0))
        whole = self.all(("m", 0)) if gathered else missing
        for operand in ins.uses:
            here = self.none(("m", 0))
            if permutes and operand.field != "src2":
                continue
            if operand.type == "mask" and operand.kind == "sgpr":
                here = code.invert(self._mask_shadow(operand))
            else:
                for one in numbers(registers(operand, wave.lanes)):
                    if one in sources and self.follows(one):
                        here = code.op("or", here, code.invert(self.source(one, ("m", 0))))
            if ins.dpp is not None and operand.field == "src0":
                here = self._through_dpp(here, ins.dpp)
            if operand.field in gathered:
                whole = code.op("and", whole, here)
            else:
                missing = code.op("or", missing, here)
        if gathered:
            missing = code.op("or", missing, whole)
        if target >= FIRST_VGPR:
            known = code.invert(missing)
            if self._keeps_a_part(ins):
                known = code.op("or", known, self.get(shadow_of(target)))
            return self._merged(shadow_of(target), known, ins)
        first = next(one.index for one in ins.defs if one.kind == "sgpr")
        known = code.invert(code.op("and", missing, self._target_lanes(ins)))
        return code.resize(code.op("lshr", known, code.const(32 * (target - first), wave.mask_type)), "i32")

    def _wide_shift(self, target: int, ins: Instruction) -> Value:
        """Return the lanes in which a word of a 64-bit shift is undefined.

        The interpreter has the same rule in `interpreter/alu.py`.
        """
        code, wave = self.code, self.wave
        distance, source = ins.uses
        low, high = self._missing_words(source)
        by = code.op("and", wave.src(distance, "i32", ins), wave.const(63, "i32"))

        def where(test: str, bits: int, other: int) -> Value:
            some = code.op("and", by, wave.const(bits, "i32"))
            return code.bitcast(code.icmp(test, some, wave.const(other, "i32")), wave.mask_type)

        def either(choice: Value, yes: Value, no: Value) -> Value:
            return code.op("or", code.op("and", choice, yes), code.op("and", code.invert(choice), no))

        near, none, whole = where("ult", 63, 32), where("eq", 63, 0), where("eq", 7, 0)
        both, any_ = code.op("and", low, high), code.op("or", low, high)
        first = target == ins.operands[0].index + FIRST_VGPR
        if ins.mnemonic == "v_lshlrev_b64":
            far = either(near, either(whole, both, any_), low)
            word = code.op("and", near, low) if first else either(none, high, far)
        elif first:
            word = either(near, either(code.op("and", whole, code.invert(none)), both, low), high)
        else:
            word = high if ins.mnemonic == "v_ashrrev_i64" else code.op("and", near, high)
        return code.op("or", word, code.invert(self._side(distance, ins)))

    def _missing_words(self, operand: Operand) -> list[Value]:
        """Return the lanes in which each word of a 64-bit source is undefined."""
        if operand.kind not in ("vgpr", "sgpr"):
            return [self.none(("m", 0))] * 2
        first = operand.index + (FIRST_VGPR if operand.kind == "vgpr" else 0)
        return [self.code.invert(self.source(first + at, ("m", 0))) for at in range(2)]

    def _keeps_a_part(self, ins: Instruction) -> bool:
        """Return whether a result keeps part of its register.

        The register stays defined if it was defined before.
        """
        target = ins.defs[0]
        return target.size_bits == 16 or (ins.mnemonic in PART_SOURCES and ins.mnemonic != "v_perm_b32")

    def _mask_shadow(self, operand: Operand) -> Value:
        """Return the lanes of a lane mask whose bits are known."""
        code, type_ = self.code, self.wave.mask_type
        found = code.const(0, type_)
        for word in range(self.wave.lanes // 32):
            known = code.resize(self.word_shadow(operand, word), type_)
            found = code.op("or", found, code.op("shl", known, code.const(32 * word, type_)))
        return found

    def _matrix_sources(self, ins: Instruction) -> tuple[Value, Value]:
        """Return the lanes of A (and its index) and of B in which some register is undefined."""
        code, found = self.code, []
        sources = matrix_operands(ins)
        for operands in (sources.rows, sources.columns):
            missing = self.none(("m", 0))
            for operand in operands:
                for at in range(operand.size_bits // 32):
                    if self.follows(one := FIRST_VGPR + operand.index + at):
                        missing = code.op("or", missing, code.invert(self.get(shadow_of(one))))
            found.append(missing)
        return found[0], found[1]

    def _undefined_elements(self, ins: Instruction, place: int) -> Value:
        """Return the lanes of a register of D, number `place`, that A, B or an index make undefined."""
        find = undefined_products if ins.generation.is_gcn else undefined_elements
        return find(self.wave, ins, *self._matrix_sources(ins), place)

    def _known_bytes(self, ins: Instruction) -> Value:
        """Return the lanes in which some byte that a permutation takes is defined.

        The interpreter has the same rule in `interpreter/alu.py`.
        """
        code, wave = self.code, self.wave
        *sources, last = ins.uses
        selectors = wave.src(last, "i32", ins)
        found = [code.const(0, selectors.type)] * len(_BY_SELECTOR)
        for shift in range(0, 32, 8):
            octet = code.op("lshr", selectors, code.const(shift, selectors.type))
            octet = code.op("and", octet, code.const(0xFF, octet.type))
            octet = code.intrinsic("umin", octet, code.const(_CONSTANT_BYTE, octet.type))
            for at, bits in enumerate(_BY_SELECTOR):
                found[at] = code.op("or", found[at], code.op("lshr", code.const(bits, octet.type), octet))
        takes_first, takes_second, constant = (
            code.bitcast(code.cast("trunc", one, "i1"), wave.mask_type) for one in found
        )
        first, second = (self._side(one, ins) for one in sources)
        known = code.invert(code.op("or", takes_first, takes_second))
        for takes, written in ((takes_first, first), (takes_second, second), (constant, code.op("or", first, second))):
            known = code.op("or", known, code.op("and", takes, written))
        return known

    def _lane(self, ins: Instruction) -> Value:
        operand = next(one for one in ins.uses if one.field == "src1")
        return self.code.op("and", self.wave.scalar(operand, "i32"), self.code.const(self.wave.lanes - 1, "i32"))

    def _lane_read(self, source: int, ins: Instruction) -> Value:
        code, wave = self.code, self.wave
        if not self.follows(source):
            return code.const(-1, "i32")
        if ins.mnemonic == "v_readlane_b32":
            lane = code.resize(self._lane(ins), wave.mask_type)
        else:
            first = code.intrinsic("cttz", wave.exec_bits(), Value("false", "i1"), overload=(wave.mask_type,))
            lane = code.op("and", first, code.const(wave.lanes - 1, wave.mask_type))
        bit = code.cast("trunc", code.op("lshr", self.get(shadow_of(source)), lane), "i1")
        return code.cast("sext", bit, "i32")

    def _exchanged(self, kind: Register, sources: tuple[int, ...], ins: Instruction) -> Value:
        """Return the shadow of a lane exchange; an inactive source lane gives 0."""
        code, wave = self.code, self.wave
        missing = code.invert(self.source(sources[0], kind))
        if ins.mnemonic != READS_INACTIVE:
            missing = code.op("and", missing, wave.exec_bits())
        row = code.cast("zext", code.bitcast(missing, wave.bools), "i32")
        moved = code.icmp("ne", exchanged(wave, ins, row), wave.const(0, "i32"))
        return self._merged(kind, code.invert(code.bitcast(moved, wave.mask_type)), ins)

    def _side(self, operand: Operand, ins: Instruction) -> Value:
        """Return the lanes in which a source is written, as the instruction reads it."""
        whole = self.code.const(-1, self.wave.mask_type)
        if operand.kind == "constant" or operand.kind == "off":
            return whole
        number = operand.index + (FIRST_VGPR if operand.kind == "vgpr" else 0)
        written = self.source(number, ("m", 0))
        if ins.dpp is None or operand.field != "src0":
            return written
        return self.code.invert(self._through_dpp(self.code.invert(written), ins.dpp))

    def _follow_flights(self, ins: Instruction) -> None:
        waits, new = limits(ins), issue(ins, self.wave.lanes)
        if not waits and new is None:
            return
        code, wave = self.code, self.wave
        # Without an active lane nothing is written.
        filled = None
        if new is not None and not wave.full and ins.format in VECTOR_FORMATS:
            filled = code.icmp("ne", wave.exec_bits(), code.const(0, wave.mask_type))
        for one, why in self.flights.items():
            for pending, register in why.items():
                before = self.get(register)
                if new is not None:
                    after = self._aged(before, new, pending)
                    if new.fills >> one & 1:
                        young = code.const(new.cost if pending in new.waits else 0, "i32")
                        # The interpreter has the same rule in interpreter/memory.py.
                        if pending.kind == "lds" and wave.reaches_lds is not None:
                            young = code.select(wave.reaches_lds, young, code.const(0, "i32"))
                        if ins.mnemonic in BLOCKS:
                            young = code.select(self._in_block(ins, one), young, after)
                        after = young if filled is None else code.select(filled, young, after)
                    self.set(register, after)
                    continue
                most = pending.largest
                limit = waits.get(pending.counter, most)
                if limit < most and (pending.in_order or not limit):
                    still = code.icmp("ule", before, code.const(limit, "i32"))
                    self.set(register, code.select(still, before, code.const(0, "i32")))

    def _aged(self, before: Value, new: Issue, pending: Pending) -> Value:
        """Return the shadow of a load after `new` is issued.

        Hardware waits by itself when a counter is full: a load that the counter no longer counts is done.
        """
        code = self.code
        if pending not in new.waits or not pending.in_order:
            return before
        more = code.op("add", before, code.const(new.cost, "i32"))
        done = code.op(
            "or",
            code.icmp("eq", before, code.const(0, "i32")),
            code.icmp("ugt", more, code.const(pending.largest, "i32")),
        )
        return code.select(done, code.const(0, "i32"), more)

    # shadows ----------------------------------------------------------------------------------------------------------


def _keeps_a_half(ins: Instruction) -> bool:
    """Return whether a load keeps half of its register."""
    memory = memory_effects(ins)
    return memory is not None and memory.keeps
