"""Threaded code: a program as a table of records, one an instruction, each with the address of the host function that
executes it. No host code is made for the program itself, so this is the quickest translation.

Source: J. R. Bell, "Threaded code", CACM 16 (1973). Programs with what needs more than their instructions one by one
are translated otherwise: checks of strict mode that analysis could not prove unnecessary, rules that depend on the
instructions before, and jumps to an address in a register.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ringup.silicon.shader.amd.decoding.analysis import FIRST_VGPR, numbers
from ringup.silicon.shader.amd.decoding.cfg import is_release, mode_after
from ringup.silicon.shader.amd.strict.indirect import is_indirect
from ringup.silicon.shader.amd.translator.forms import Way, operations, part
from ringup.silicon.shader.amd.translator.handlers import PARTS, record_words
from ringup.silicon.shader.amd.translator.lower import (
    COUNTED_FORMATS,
    NOTHING,
    SUSPENDING,
    Lowered,
    Lowering,
    awaited,
    given_at_start,
    has_rules,
    is_backwards,
    signal_exit,
)
from ringup.silicon.shader.amd.writer.registers import Mode
from ringup.silicon.shader.amd.writer.wave import RULES
from ringup.silicon.shader.common import state
from ringup.silicon.shader.host.context import Exit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from ringup.silicon.shader.amd.decoding.cfg import Block, Key, Program, Step
    from ringup.silicon.shader.amd.decoding.decode import Instruction
    from ringup.silicon.shader.amd.translator.forms import Form, Operation
    from ringup.silicon.shader.amd.translator.handler_store import Batch
    from ringup.silicon.shader.amd.translator.lower import Variant


class Layout(NamedTuple):
    """The records of a program, in dwords, before their handlers have addresses."""

    words: NDArray[np.uint32]
    handlers: tuple[str, ...]  # names
    places: NDArray[np.uint32]  # by record: its first dword, the number of its handler
    entries: tuple[int, ...]  # first dwords of the records where entries go, by number
    enter: str  # the handler that runs it


class Kept(NamedTuple):
    """Where the handlers of a layout are on disk: keys of batches, and their level."""

    batches: list[str]
    level: int


def layout_parts(layout: Layout, kept: Kept) -> list[bytes]:
    """Return a layout, and where its handlers are, for `layout_from`."""
    head = {"handlers": layout.handlers, "entries": layout.entries, "enter": layout.enter, "kept": kept}
    return [json.dumps(head).encode(), layout.words.tobytes(), layout.places.tobytes()]


def layout_from(parts: list[bytes]) -> tuple[Layout, Kept]:
    """Return a layout that was kept, and where its handlers are."""
    head = json.loads(parts[0])
    words, places = (np.frombuffer(one, np.uint32) for one in parts[1:])
    names, entries = tuple(head["handlers"]), tuple(head["entries"])
    return Layout(words, names, places.reshape(-1, 2), entries, head["enter"]), Kept(*head["kept"])


class Threader(Lowering):
    """Lays out one program."""

    def __init__(self, program: Program, variant: Variant) -> None:
        super().__init__(program, variant)
        self.way = Way(variant.lanes, variant.strict, variant.counting)
        self.words: list[int] = []
        self.forms: dict[str, Form] = {}
        self.places: list[tuple[int, str]] = []
        self.sites = 0
        # the records of blocks, and those that wait for them: dword with the distance, its record
        self.starts: dict[Key, int] = {}
        self.targets: list[tuple[int, int, Key]] = []
        self.backs: list[tuple[int, int, Key]] = []

    @property
    def is_possible(self) -> bool:
        """Whether this program can be threaded code."""
        if (
            self.findings is not None
            or self.variant.tracked
            or (self.ways is not None and any(self.ways.broken.values()))
        ):
            return False
        blocks = self.program.blocks.values()
        return not any(
            block.ending == "indirect" or any(is_indirect(step.ins) for step in block.code) for block in blocks
        )

    def run(self) -> tuple[Lowered, Layout, dict[str, Form]]:
        """Return the program's tables, its records and the forms of their handlers."""
        order = sorted(self.program.blocks)
        number = {key: at for at, key in enumerate(self.program.blocks)}
        beginning = self._beginning()
        for key, behind in zip(order, [*order[1:], None], strict=True):
            self.starts[key] = len(self.words)
            self._block(number[key], key, self.program.blocks[key], behind)
        for word, record, target in self.backs:
            self.words[word] = 4 * (len(self.words) - record) & 0xFFFF_FFFF
            self._back(target)
        for word, record, target in self.targets:
            self.words[word] = 4 * (self.starts[target] - record) & 0xFFFF_FFFF
        entries = (beginning, *(self.starts[key] for key in self.entries))
        enter = part(self.way, "enter").form
        self.forms[enter.name] = enter
        names = {name: at for at, name in enumerate(self.forms)}
        places = np.array([(at, names[name]) for at, name in self.places], np.uint32)
        layout = Layout(np.array(self.words, np.uint32), tuple(names), places, entries, enter.name)
        return self.tables(sites=self.sites), layout, self.forms

    def _record(self, form: Form, pc: int = 0, words: tuple[int, ...] = ()) -> int:
        """Add a record; return its first dword."""
        at = len(self.words)
        site: tuple[int, ...] = ()
        if form.has_site:
            site = (32 * self.sites,)
            self.sites += 1
        self.forms[form.name] = form
        self.places.append((at, form.name))
        self.words += (0, 0, pc & 0xFFFF_FFFF, *site, *words)
        self.words += [0] * (at + record_words(form) - len(self.words))
        return at

    def _part(self, what: str, pc: int = 0, words: tuple[int, ...] = (), ins: Instruction | None = None) -> int:
        found = part(self.way, what, PARTS[what][1], ins)
        return self._record(found.form, pc, (*found.words, *words))

    def _beginning(self) -> int:
        """Write the records of the program's start: registers that SPI does not write are zero there."""
        key, scalars = self.program.entries[0], self.variant.scalars
        start = self._part("aligned")
        written = given_at_start(scalars, self.program.generation.start)
        for one in numbers(self.live[key] & ~written & self.everything):
            if one >= FIRST_VGPR:
                row = state.RESERVED_WORDS + (one - FIRST_VGPR) * self.variant.lanes
                self._part("zero row", words=(4 * row,))
            elif not state.TTMP0 <= one < state.NULL:
                self._part("zero", words=(4 * one,))
        self._jump(key)
        return start

    def _jump(self, target: Key) -> None:
        at = self._part("jump", words=(0,))
        self.targets.append((at + 3, at, target))

    def _back(self, target: Key) -> None:
        reason = self.entries[target] << 8 | Exit.YIELD
        at = self._part("back", target.offset, (0, reason))
        self.targets.append((at + 3, at, target))

    def _block(self, number: int, key: Key, block: Block, behind: Key | None) -> None:
        self._part("block", words=(8 * number, len(block.code)))
        self.vgpr_count = self.variant.vgpr_count
        mode = key.mode
        for step, full in zip(block.code, self.full[key], strict=True):
            changed = mode_after(step.ins, mode)
            if changed is not None:
                mode = changed
                self._part("mode", words=(mode,))
                if step.ins.mnemonic in RULES:
                    self._instruction(step, mode, full=full)
            elif not step.what or step.what in SUSPENDING:
                self._instruction(step, mode, full=full)
        self._ending(block, behind)

    def _instruction(self, step: Step, mode: int, *, full: bool) -> None:
        ins = step.ins
        found: tuple[Operation, ...] | None = None
        needs_interpreter = self.needs_interpreter(ins) or self.reaches_caches(ins)
        if ins.mnemonic in NOTHING and not needs_interpreter:
            found = ()
        elif is_release(ins):
            self._part("release")
            self.vgpr_count = 0
            return
        elif ins.mnemonic == "s_getpc_b64" and not needs_interpreter:
            self._part("pc", step.after, ins=ins)
            return
        elif not needs_interpreter:
            found = operations(ins, self.way, mode, full) if has_rules(ins, Mode(mode)) else None
        if not found and not full and ins.format in COUNTED_FORMATS:
            self._part("lanes")
        if found is None:
            self.bailed.add(ins.mnemonic)
            self._part("interpret", step.offset)
        for one in found or ():
            self._record(one.form, step.offset, one.words)

    def _ending(self, block: Block, behind: Key | None) -> None:
        """Write how a block ends; block `behind` follows."""
        if block.ending == "illegal":
            pc = block.code[-1].after if block.reason and block.code else block.key.offset
            self._part("illegal", pc if block.reason else block.code[-1].offset)
            return
        last = block.code[-1]
        if block.ending == "end":
            self._part("end")
        elif block.ending in ("barrier", "sleep", "signal"):
            target = block.successors[0]
            reason = Exit.BARRIER if block.ending == "barrier" else Exit.YIELD
            if block.ending == "signal":
                reason = signal_exit(last.ins)
            self._part("suspend", target.offset, (self.entries[target] << 8 | reason,))
        elif block.ending == "leave":
            self._part("leave", last.offset)
        elif block.ending == "wait":
            if number := awaited(last.ins):
                self._part(f"wait {number}", last.offset, (self.entries[block.key] << 8 | Exit.WAIT,))
            if block.successors[0] != behind:
                self._jump(block.successors[0])
        elif block.ending == "branch":
            at = self._part(last.ins.mnemonic.removeprefix("s_cbranch_"), words=(0,))
            taken, other = block.successors
            backwards = is_backwards(block.key, block, taken)
            (self.backs if backwards else self.targets).append((at + 3, at, taken))
            if other != behind:
                self._jump(other)
        else:
            if last.ins.mnemonic == "s_call_b64":
                self._part("pc", last.after, ins=last.ins)
            target = block.successors[0]
            if is_backwards(block.key, block, target):
                self._back(target)
            elif target != behind:
                self._jump(target)


@dataclass(eq=False, slots=True)
class ThreadedCode:
    """A layout whose records have their handlers' addresses. It keeps the handlers."""

    layout: Layout
    words: NDArray[np.uint32]
    entries: NDArray[np.uint64]
    address: int = 0  # of the program that runs it
    batches: list[Batch] = field(default_factory=list)

    @classmethod
    def of(cls, layout: Layout, batches: Mapping[str, Batch]) -> ThreadedCode:
        """Return a layout with addresses."""
        words = np.zeros(len(layout.words) + 1, np.uint32)
        # at a multiple of 8
        words = words[words.ctypes.data % 8 // 4 :][: len(layout.words)]
        words[:] = layout.words
        entries = np.array([words.ctypes.data + 4 * one for one in layout.entries], np.uint64)
        made = cls(layout, words, entries)
        made.use(batches)
        made.address = batches[layout.enter].code.address(layout.enter)
        return made

    def use(self, batches: Mapping[str, Batch]) -> None:
        """Replace the handlers. Waves may be in the middle of the program, but not in a handler."""
        names, places = self.layout.handlers, self.layout.places
        addresses = np.array([batches[name].code.address(name) for name in names], np.uint64)
        self.words.view(np.uint64)[places[:, 0] // 2] = addresses[places[:, 1]]
        # Waves keep the address of the program.
        self.batches += dict.fromkeys(batches[name] for name in names)
