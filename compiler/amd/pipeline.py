"""The passes of the back end in order: from instructions on virtual registers to a kernel's machine code."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ringup.compiler.amd.emit import KERNARG_SGPRS, Argument, Binary, emit, first_group_sgpr
from ringup.compiler.amd.instructions.code import Code
from ringup.compiler.amd.instructions.effects import generation
from ringup.compiler.amd.instructions.steps import Program, split_blocks
from ringup.compiler.amd.passes.clause import insert_clauses
from ringup.compiler.amd.passes.delay import insert_delays
from ringup.compiler.amd.passes.dual import pair
from ringup.compiler.amd.passes.hazards import avoid_hazards
from ringup.compiler.amd.passes.join_accesses import join_accesses
from ringup.compiler.amd.passes.packed import pack
from ringup.compiler.amd.passes.schedule import schedule
from ringup.compiler.amd.passes.wait_states import insert_wait_states
from ringup.compiler.amd.passes.waits import insert_waits
from ringup.compiler.amd.registers.allocate import allocate

Dump = Callable[[str, Code], None]


def place_group_ids(code: Code) -> None:
    """Assign the inputs that hold group ids to the SGPRs in which the dispatcher puts them: after the user SGPRs and
    their padding.
    """
    ids = [reg for reg in code.inputs if reg.bank == "s" and reg.fixed is not None and reg.fixed >= KERNARG_SGPRS]
    first = first_group_sgpr(code.target, code.group_ids)
    for i, reg in enumerate(sorted(ids, key=lambda reg: reg.fixed or 0)):
        reg.fixed = first + i


def finish(
    code: Code, *, arguments: Sequence[Argument] = (), dump: Dump | None = None, max_vgprs: int = 0, max_sgprs: int = 0
) -> Binary:
    """Run all passes: schedule, allocate, insert waits, avoid hazards, encode. Afterwards, `code` holds the final
    instructions.

    `arguments` are for the metadata. `dump` is called after each pass with its name and the code at that point.
    `max_vgprs` and `max_sgprs` ask for smaller register files than the processor's. Raises CompileError for what cannot
    be compiled: registers, branches, operands.
    """

    def show(name: str) -> None:
        if dump is not None:
            dump(name, program.write_back())

    split_blocks(code)
    place_group_ids(code)
    program = Program(code)
    join_accesses(program)
    schedule(program)
    show("schedule")
    allocation = allocate(program, max_vgprs, max_sgprs)
    show("allocate")
    if generation(code.target) == "gfx9":
        pack(program)
        show("packed")
        insert_waits(program)
        show("waits")
        insert_wait_states(program)
        show("hazards")
    else:
        pair(program)
        show("dual")
        insert_waits(program)
        show("waits")
        avoid_hazards(program)
        show("hazards")
        insert_clauses(program)
        show("clause")
        insert_delays(program)
        show("delay")
    binary = emit(program, allocation.vgprs, allocation.sgprs, tuple(arguments))
    program.write_back()
    return binary
