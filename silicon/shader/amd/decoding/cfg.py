"""Control flow of a program, recovered from its machine code by following branches from its entries.

A block's key is the byte offset of its first instruction from the program's base, and MODE there: code that runs under
two modes is two blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from ringup.silicon.shader.amd.decoding import gcn
from ringup.silicon.shader.amd.decoding.analysis import ALU_FORMATS, Effects, effects
from ringup.silicon.shader.amd.decoding.decode import LONGEST_BYTES, IllegalInstruction, Instruction, decode, of_wave
from ringup.silicon.shader.amd.decoding.generations import RDNA3

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

    from ringup.silicon.shader.amd.decoding.generations import Generation

    # offset, size: fewer bytes where the memory region ends, none where no code is mapped
    Fetch = Callable[[int, int], bytes]

PREFETCH_BYTES = 4096
HW_REG_MODE = 1
MESSAGE_INTERRUPT, MESSAGE_DEALLOC_VGPRS = 1, 3  # RDNA3 ISA reference, "S_SENDMSG Messages"
_FIRST_MODE_BITS = {"s_round_mode": (0, 0xF), "s_denorm_mode": (4, 0xF)}
ENDS = frozenset(("s_endpgm", "s_endpgm_saved", "s_endpgm_ordered_ps_done"))
_CONDITIONS = ("s_cbranch_scc", "s_cbranch_vcc", "s_cbranch_exec")
# The interpreter decides what comes next.
_LEAVES = frozenset(
    ("s_trap", "s_rfe_b64", "s_sethalt", "s_sendmsg", "s_sendmsghalt", "s_subvector_loop_begin", "s_subvector_loop_end",
     "s_setreg_b32", "s_setreg_imm32_b32", "s_sendmsg_rtn_b32", "s_sendmsg_rtn_b64")
)  # fmt: skip
_GROUP_BARRIER = (1 << 32) - 1  # RDNA4 ISA reference, "S_BARRIER_SIGNAL": -1
_BY_PAIRS = ("s_call_b64", "s_setpc_b64", "s_swappc_b64")
_DEBUG_BRANCHES = "s_cbranch_cdbg"
_OTHERS = {
    "s_barrier": "barrier", "s_barrier_wait": "wait", "s_sleep": "sleep", "s_sleep_var": "sleep", "s_code_end": "illegal",
}  # fmt: skip
_CONTROL = frozenset(("SOPP", "SOPK", "SOP1"))


class Key(NamedTuple):
    """A place in a program: byte offset from its base, MODE."""

    offset: int
    mode: int


class Step(NamedTuple):
    """One instruction and its offset. `what` is its part in control flow, empty for most."""

    offset: int
    ins: Instruction
    effects: Effects
    what: str = ""

    @property
    def after(self) -> int:
        """Offset of the next instruction."""
        return self.offset + self.ins.size_bytes


@dataclass(slots=True)
class Block:
    """Consecutive instructions. The last step's `what` says how the block ends:

    `` (falls into successor 0), `jump`, `branch` (taken: successor 0, else 1), `end`, `barrier` and `sleep` (continue
    at successor 0 when woken), `signal` (of a split barrier), `wait` (for a split barrier: the block has no other
    instruction, and runs again when the wave is woken), `indirect` (to the address in its operand), `leave`
    (interpreted; continues at successor 0 or anywhere), `illegal`.
    """

    key: Key
    code: list[Step] = field(default_factory=list)
    successors: list[Key] = field(default_factory=list)
    ending: str = ""
    reason: str = ""  # why it is illegal

    @property
    def unknown(self) -> bool:
        """Whether the block may continue at an address that analysis does not know."""
        return self.ending in ("indirect", "leave")


class Program:
    """The blocks reached from some entries, and the bytes they were decoded from."""

    def __init__(self, fetch: Fetch, entries: Iterable[Key], lanes: int, generation: Generation = RDNA3) -> None:
        self.entries = list(dict.fromkeys(entries))
        self.lanes, self.generation = lanes, generation
        self.blocks: dict[Key, Block] = {}
        # offsets after calls, where returns go
        self.returns: list[int] = []
        self._fetch = fetch
        # code read so far, by offset; empty where none is mapped
        self._chunks: list[tuple[int, bytes]] = []
        self._steps: dict[int, Step | str] = {}
        self._find()

    @property
    def ranges(self) -> list[tuple[int, bytes]]:
        """The code as (offset, bytes), to compare with memory later."""
        merged: list[tuple[int, bytes]] = []
        for offset, step in sorted(self._steps.items()):
            raw = b"" if isinstance(step, str) else self._bytes(offset, step.ins.size_bytes)
            if merged and merged[-1][0] + len(merged[-1][1]) == offset:
                merged[-1] = (merged[-1][0], merged[-1][1] + raw)
            else:
                merged.append((offset, raw))
        return merged

    def _bytes(self, offset: int, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._part(offset + len(data), size - len(data))
            if not part:
                break
            data += part
        return data

    def _part(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes of one memory region. No region is read twice."""
        for start, chunk in self._chunks:
            at = offset - start
            if 0 <= at < len(chunk) or not at:
                return chunk[at : at + size]
        self._chunks.append((offset, self._fetch(offset, PREFETCH_BYTES)))
        return self._chunks[-1][1][:size]

    def _step(self, offset: int) -> Step | str:
        found = self._steps.get(offset)
        if found is None:
            try:
                ins = of_wave(self._decoded(offset), self.lanes)
            except IllegalInstruction as error:
                found = str(error)
            else:
                found = Step(offset, ins, effects(ins, self.lanes), _part(ins) if ins.format in _CONTROL else "")
            self._steps[offset] = found
        return found

    def _decoded(self, offset: int) -> Instruction:
        """Decode an instruction.

        At the end of a memory region the next one is read only if the instruction is incomplete: reading it may be a
        fault of the card.
        """
        near = self._part(offset, LONGEST_BYTES)
        try:
            return decode(near, 0, self.generation)
        except IllegalInstruction:
            if len(near) == LONGEST_BYTES:
                raise
        return decode(self._bytes(offset, LONGEST_BYTES), 0, self.generation)

    def _find(self) -> None:
        """Walk from the entries until nothing new is reached."""
        starts = self._starts()
        for key in starts:
            steps, mode = self._run(key, starts)
            block = Block(key)
            for one in steps:
                if isinstance(one, str):
                    block.ending, block.reason = "illegal", one
                else:
                    block.code.append(one)
            block.successors = self._targets(steps[-1], mode)
            if not block.ending and block.code:
                block.ending = block.code[-1].what
            self.blocks[key] = block

    def _starts(self) -> dict[Key, None]:
        """Return where blocks start: at entries, and where branches go."""
        starts = dict.fromkeys(self.entries)
        walked: set[Key] = set()
        indirect: list[tuple[Step, int]] = []
        work = list(starts)
        while work:
            key, found = work.pop(), []
            while key not in walked:
                one = self._step(key.offset)
                if not isinstance(one, str) and one.what == "wait" and key not in starts:
                    found = [key]
                    break
                walked.add(key)
                if isinstance(one, str):
                    break
                changed = mode_after(one.ins, key.mode)
                if changed is None and one.what:
                    found = self._targets(one, key.mode)
                    if one.what == "indirect":
                        indirect.append((one, key.mode))
                    break
                key = Key(one.after, key.mode if changed is None else changed)
            # Calls on the way may have noted new returns.
            for last, mode in indirect:
                found += self._targets(last, mode)
            for target in found:
                if target not in starts:
                    starts[target] = None
                    work.append(target)
        return starts

    def _run(self, key: Key, starts: Container[Key]) -> tuple[list[Step | str], int]:
        """Return a start's instructions up to a branch or to the next start, and MODE after them."""
        steps: list[Step | str] = []
        offset, mode = key
        while True:
            one = self._step(offset)
            if mode & gcn.MODE_INDEXED and self.generation.is_gcn and not isinstance(one, str):
                one = self._indexed(one)
            steps.append(one)
            if isinstance(one, str):
                break
            changed = mode_after(one.ins, mode)
            mode = mode if changed is None else changed
            if changed is None and one.what:
                break
            offset = one.after
            if (offset, mode) in starts:
                break
        return steps, mode

    def _indexed(self, step: Step) -> Step:
        """Return an instruction whose VGPRs M0 selects, under a mnemonic of its own."""
        ins = step.ins
        if ins.format not in ALU_FORMATS or all(one.kind != "vgpr" for one in ins.operands):
            return step
        ins = replace(ins, mnemonic=ins.mnemonic.replace("v_", gcn.INDEXED_PREFIX, 1))
        return step._replace(ins=ins, effects=effects(ins, self.lanes))

    def _targets(self, last: Step | str, mode: int) -> list[Key]:
        if isinstance(last, str) or last.what == "end" or last.ins.mnemonic == "s_rfe_b64":
            return []
        after = Key(last.after, mode)
        if last.what in ("jump", "branch"):
            taken = Key(branch_target(last), mode)
            if last.ins.mnemonic == "s_call_b64":
                self._note_return(last.after)
            return [taken] if last.what == "jump" else [taken, after]
        if last.what == "indirect":
            if last.ins.mnemonic == "s_swappc_b64":
                self._note_return(last.after)
            known = {one.offset for one in self.entries} | set(self.returns)
            return [Key(offset, mode) for offset in sorted(known)]
        return [after]

    def _note_return(self, offset: int) -> None:
        if offset not in self.returns:
            self.returns.append(offset)


def branch_target(step: Step) -> int:
    """Return the offset that a direct branch or call goes to."""
    simm16 = step.ins.fields["simm16"]
    return step.after + 4 * (simm16 - 0x10000 if simm16 & 0x8000 else simm16)


def mode_after(ins: Instruction, mode: int) -> int | None:
    """Return MODE after an instruction that writes constants to it, None for every other instruction."""
    if ins.mnemonic == "s_set_gpr_idx_on":
        return mode | gcn.MODE_INDEXED
    if ins.mnemonic == "s_set_gpr_idx_off":
        return mode & ~gcn.MODE_INDEXED
    if ins.mnemonic in _FIRST_MODE_BITS:
        shift, mask = _FIRST_MODE_BITS[ins.mnemonic]
        return mode & ~(mask << shift) | (ins.fields["simm16"] & mask) << shift
    if ins.mnemonic == "s_setreg_imm32_b32" and ins.fields["simm16"] & 0x3F == HW_REG_MODE and ins.literal is not None:
        offset, size = ins.fields["simm16"] >> 6 & 0x1F, (ins.fields["simm16"] >> 11 & 0x1F) + 1
        mask = (1 << size) - 1 << offset
        return (mode & ~mask | ins.literal << offset & mask) & 0xFFFF_FFFF
    return None


def is_release(ins: Instruction) -> bool:
    """Return whether a message releases the wave's VGPRs.

    The wave may only end after it, so the interpreter is not needed.
    """
    return ins.mnemonic == "s_sendmsg" and ins.fields["simm16"] == MESSAGE_DEALLOC_VGPRS and not ins.generation.is_gcn


def is_interrupt(ins: Instruction) -> bool:
    """Return whether a message interrupts the host, which receives M0."""
    return ins.mnemonic in ("s_sendmsg", "s_sendmsghalt") and ins.fields["simm16"] & 0xFF == MESSAGE_INTERRUPT


def _part(ins: Instruction) -> str:
    name = ins.mnemonic
    if name in _BY_PAIRS and any(one.kind == "sgpr" and one.index % 2 for one in ins.operands):
        # the interpreter reports what is wrong with such a pair
        return "leave"
    if name in ("s_branch", "s_call_b64"):
        return "jump"
    if name.startswith(_CONDITIONS):
        return "branch"
    if name in ENDS:
        return "end"
    if name in ("s_setpc_b64", "s_swappc_b64"):
        return "indirect"
    if is_release(ins):
        return ""
    if name == "s_setkill":
        return "end" if ins.fields["simm16"] & 1 else ""
    if name in _LEAVES or name.startswith(_DEBUG_BRANCHES):
        return "leave"
    if name.startswith("s_barrier_signal"):
        return _signal(ins)
    return _OTHERS.get(name, "")


def _signal(ins: Instruction) -> str:
    """Return the part of a barrier's signal: the interpreter executes those of trap handlers."""
    operand = ins.operands[0]
    is_group = operand.kind == "constant" and operand.bits & 0xFFFF_FFFF == _GROUP_BARRIER
    return "signal" if is_group else "leave"
