"""Fixtures for the shader cores: LLVM 22's assembler, memory with exact bounds, and one program run to its end."""

from __future__ import annotations

import struct
import subprocess
from dataclasses import dataclass, field

import numpy as np
import pytest

from ringup.autogen.generate.isa_probe import llvm_mc
from ringup.silicon.shader.interpreter import Interpreter
from ringup.silicon.shader.state import Dispatch, MemoryFault, Region

CODE_VA = 0x10_0000


def text_section(elf: bytes) -> bytes:
    """Return `.text` of an ELF64 object file."""
    (sections,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", elf, sections + size * i) for i in range(count)]
    strings = headers[names][4]
    for name, _, _, _, offset, length in headers:
        if elf[strings + name :].startswith(b".text\0"):
            return elf[offset : offset + length]
    raise AssertionError("no .text")


@pytest.fixture(scope="session")
def assemble(headers):
    """`assemble(text, wave_size=32)` is LLVM 22's machine code for gfx1100; a line that it rejects fails."""
    command = llvm_mc(headers("llvm-22"))
    done = {}

    def run(text, wave_size=32):
        key = text, wave_size
        if key not in done:
            argv = [*command, "-triple=amdgcn-amd-amdhsa", "-mcpu=gfx1100", "-filetype=obj", "-o", "-"]
            if wave_size == 64:
                argv.append("-mattr=+wavefrontsize64")
            result = subprocess.run(argv, input=text.encode(), capture_output=True, timeout=60, check=False)
            assert not result.returncode, result.stderr.decode()
            done[key] = text_section(result.stdout)
        return done[key]

    return run


@dataclass
class Arena:
    """Memory made of allocations; an address between them faults."""

    regions: list[tuple[Region, np.ndarray]] = field(default_factory=list)
    epoch: int = 0

    def place(self, gpu_va: int, data, *, writable: bool = True, executable: bool = False) -> np.ndarray:
        """Map a copy of `data` (bytes, or a number of zeroes) and return its bytes."""
        raw = np.zeros(data, np.uint8) if isinstance(data, int) else np.frombuffer(bytes(data), np.uint8).copy()
        self.regions.append((Region(gpu_va, raw.size, raw.ctypes.data, writable, executable), raw))
        return raw

    def region(self, gpu_va: int, write: bool, execute: bool = False) -> Region:
        """Find an allocation."""
        for one, _ in self.regions:
            if one.gpu_va <= gpu_va < one.gpu_va + one.size_bytes:
                if (write and not one.writable) or (execute and not one.executable):
                    raise MemoryFault(gpu_va, write, "not permitted")
                return one
        raise MemoryFault(gpu_va, write, "not mapped")


class Heard:
    """What waves said; the clock stands at 0x1_2345_6789."""

    def __init__(self) -> None:
        self.messages = []

    def message(self, code, m0, wave):
        """Note a message; answers with 7."""
        self.messages.append((code, m0, wave.name))
        return 7

    def realtime(self):
        """Return a value of more than 32 bits."""
        return 0x1_2345_6789


@dataclass
class Machine:
    """Memory, and one engine to run programs in it."""

    assemble: object
    arena: Arena = field(default_factory=Arena)
    heard: Heard = field(default_factory=Heard)
    code_end: int = CODE_VA

    def buffer(self, gpu_va: int, values, dtype="<u4", **rights) -> np.ndarray:
        """Map an array and return the view of it that kernels change."""
        raw = self.arena.place(gpu_va, np.asarray(values, dtype).tobytes(), **rights)
        return raw.view(dtype)

    def start(self, text, *, engine=None, strict=True, **dispatch):
        """Assemble `text` and begin its dispatch: by default one wave32 of 32 work-items, s[0:1] up are `user_sgprs`."""
        values = {"wave_size": 32, "group_size": (32, 1, 1), "group_count": (1, 1, 1), "vgpr_count": 48} | dispatch
        code = self.assemble(text, values["wave_size"])
        pc = self.code_end
        self.arena.place(pc, code, executable=True, writable=False)
        self.code_end = pc + len(code) + 0xFF & ~0xFF
        return (engine or Interpreter()).start(Dispatch(pc=pc, **values), self.arena, self.heard, strict=strict)

    def run(self, text, **dispatch):
        """Run `text` to its end; no rule may be broken."""
        run = self.start(text, **dispatch)
        for _ in range(1000):
            if run.step(10_000):
                break
            assert not run.violations, "\n".join(map(str, run.violations))
        else:
            raise AssertionError("the program does not end")
        assert not run.violations, "\n".join(map(str, run.violations))
        return run

    def broken(self, text, **dispatch):
        """Run `text` until a rule is broken; return that violation."""
        run = self.start(text, **dispatch)
        assert not run.step(10_000)
        assert run.violations, "no rule was broken"
        return run.violations[0]


@pytest.fixture
def machine(assemble):
    """A `Machine` with empty memory."""
    return Machine(assemble)
