"""Instruction sets of AMD's shader cores: encoder, decoder, assembler and disassembler, all from the same rows of
facts.

`processor("gfx1100")` returns one of them. Operands are `v[5]`, `v[4:7]`, `s[2:3]`, `VCC`, integers and floats.
"""

from ringup.compiler.isa.amd.encoding.decode import Instruction
from ringup.compiler.isa.amd.encoding.processor import Processor, processor
from ringup.compiler.isa.amd.encoding.registers import (
    EXEC,
    EXEC_HI,
    EXEC_LO,
    M0,
    NULL,
    OFF,
    SCC,
    VCC,
    VCC_HI,
    VCC_LO,
    Literal,
    Operand,
    Register,
    a,
    abs_,
    lit,
    neg,
    s,
    special,
    ttmp,
    v,
)
from ringup.compiler.isa.amd.encoding.target import LIMITS, Limits

__all__ = [
    "EXEC",
    "EXEC_HI",
    "EXEC_LO",
    "LIMITS",
    "M0",
    "NULL",
    "OFF",
    "SCC",
    "VCC",
    "VCC_HI",
    "VCC_LO",
    "Instruction",
    "Limits",
    "Literal",
    "Operand",
    "Processor",
    "Register",
    "a",
    "abs_",
    "lit",
    "neg",
    "processor",
    "s",
    "special",
    "ttmp",
    "v",
]
