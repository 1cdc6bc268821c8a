"""The instruction set of NVIDIA's shader cores (SASS) from Turing to Blackwell: encoder, decoder, assembler and
disassembler, all from the same rows of facts.

`machine("sm_86")` returns one chip's.
"""

from ringup.autogen.isa.sass import CHIPS
from ringup.compiler.isa.sass.control import Control
from ringup.compiler.isa.sass.machine import Instruction, Machine, machine

__all__ = ["CHIPS", "Control", "Instruction", "Machine", "machine"]
