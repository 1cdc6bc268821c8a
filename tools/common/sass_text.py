"""Texts of SASS that suit several chips, made into cubins by ringup's assembler. No compiler of NVIDIA's is used.

Such a text has holes: `{8}` is the parameter at byte 8, `{stack}` the top of a thread's stack in local memory, `{sys}`
stands behind loads and stores of global memory, `{red}` adds to the dword at R2 atomically.
"""

from __future__ import annotations

import re
from functools import lru_cache

from ringup.compiler.isa.sass import assembly, cubin_write
from ringup.compiler.isa.sass.cubin import Generation
from ringup.queues.nv.rows import ROWS

# what such texts are written for: from sm_100 on constants are read by other instructions
TARGETS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90")
BANKS = {row.target: row.bank for row in ROWS if row.target in TARGETS}
# below sm_80 every access has a scope, also a weak one. Source: Mesa NAK, set_mem_order
SCOPE = {"sm_75": ".SYS"}
# from sm_90 on an address in registers alone is written with the uniform register that is zero: Mesa NAK, OpAtom
RED = {"sm_90": "REDG.E.ADD.STRONG.GPU [R2.64+URZ]"}
HOLE = re.compile(r"\{(\w+)\}")


@lru_cache
def cubin_of(text: str, target: str, what: str) -> bytes:
    """Return a cubin of a text's kernels for one of `TARGETS`. `what`: the text, for errors. Raises `CompileError` for
    what the chip lacks, `KeyError` for another target or hole.
    """
    bank = BANKS[target]
    words = {
        "stack": f"c[0x0][{bank.stack_top:#x}]",
        "sys": SCOPE.get(target, ""),
        "red": RED.get(target, "RED.E.ADD.STRONG.GPU [R2]"),
    }

    def filled(hole: re.Match[str]) -> str:
        name = hole[1]
        return f"c[0x0][{bank.params + int(name):#x}]" if name.isdigit() else words[name]

    made = assembly.assemble(f".target {target}\n{HOLE.sub(filled, text)}", what)
    return cubin_write.write(made.kernels, target, Generation.CUDA_12, made.data, made.addresses)
