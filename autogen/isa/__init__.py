"""Instruction facts of AMD's shader cores: encoding formats, and per opcode the mnemonic, operands and modifiers.

`target("gfx1100")` opens one. The assembler, the disassembler and the virtual shader core share these facts and
nothing else. The `.tsv` files are written by `autogen/generate/isa/instructions.py` from LLVM 22's disassembler; ranges
and names of formats are AMD's ISA documents'.
"""

from ringup.autogen.isa.reader import (
    TARGETS,
    FormatFacts,
    InstructionFacts,
    ModifierFacts,
    OperandFacts,
    Target,
    target,
)

__all__ = ["TARGETS", "FormatFacts", "InstructionFacts", "ModifierFacts", "OperandFacts", "Target", "target"]
