"""Fixtures for the instruction sets: LLVM 22's assembler and disassembler, asked in bulk, and the pairs of LLVM's
tests.
"""

import gzip
import re
import subprocess
from functools import lru_cache
from pathlib import Path

import pytest
import random_instructions

from ringup.autogen.generate.isa.probe import llvm_mc

PAIRS = Path(__file__).parents[2] / "autogen" / "isa"
TIMEOUT_S = 300
_ENCODING = re.compile(r"^\t(.*?)\s*(?:;|//) encoding: \[([0-9a-fA-Fxb, ']+)\]", re.M)


class Llvm:
    """LLVM 22 for one processor, wave size and spelling of 16-bit operands (`halves`: v1.l and v1.h)."""

    def __init__(self, command, target, wave_size, halves):
        features = []
        if target.startswith("gfx1"):
            features.append("+real-true16" if halves else "-real-true16")
            features += ["+wavefrontsize64"] if wave_size == 64 else []
        self._argv = [*command, "-triple=amdgcn", f"-mcpu={target}", "-show-encoding"]
        self._argv += [f"-mattr={','.join(features)}"] if features else []

    def _run(self, lines, *options):
        return subprocess.run(
            [*self._argv, *options],
            input="\n".join(lines).encode(),
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def assemble(self, texts):
        """Return for each text its bytes, or the message of the refusal."""
        done = self._run(texts)
        refused = {}
        for match in re.finditer(r"^<stdin>:(\d+):\d+: error: (.*)", done.stderr.decode(), re.M):
            refused.setdefault(int(match[1]) - 1, match[2])
        codes = [code for _, code in _ENCODING.findall(done.stdout.decode())]
        assert len(codes) == len(texts) - len(refused), done.stderr[:500]
        found = iter(codes)
        return [refused[i] if i in refused else _whole(next(found)) for i in range(len(texts))]

    def disassemble(self, words):
        """Return {bytes: text} of all words that decode to exactly one instruction."""
        done = self._run([f"[{','.join(map(hex, word))}]" for word in words], "-disassemble")
        found = {_bytes(code): " ".join(text.split()) for text, code in _ENCODING.findall(done.stdout.decode())}
        # LLVM crashes on a few words. Leave those out and go on.
        if done.returncode < 0 and len(words) > 1:
            middle = len(words) // 2
            return self.disassemble(words[:middle]) | self.disassemble(words[middle:])
        return found


def _whole(code):
    return "bytes that a symbol decides" if re.search("A|'", code) else _bytes(code)


def _bytes(code):
    return bytes(int(part, 0) for part in code.split(","))


@pytest.fixture(scope="session")
def llvm(headers):
    """`llvm("gfx1100", 32, True)` starts LLVM 22. A missing LLVM fails the test and never skips it."""
    command = llvm_mc(headers("llvm-22"))
    return lru_cache(lambda target, wave_size=32, halves=True: Llvm(command, target, wave_size, halves))


@pytest.fixture(scope="session")
def llvm_tool(headers):
    """`llvm_tool("llvm-readelf", ...)` runs a program of LLVM 22 and returns its output. A failure of the program fails
    the test.
    """
    *loader, program = llvm_mc(headers("llvm-22"))

    def run(name, *arguments):
        command = [*loader, str(Path(program).with_name(name)), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=True).stdout

    return run


@pytest.fixture(scope="session")
def mc_pairs():
    """`mc_pairs("gfx1100")` returns (bytes, text) pairs from LLVM's tests."""

    @lru_cache
    def read(target):
        text = gzip.decompress((PAIRS / f"mc_{target}.tsv.gz").read_bytes()).decode()
        rows = (line.split("\t") for line in text.splitlines() if not line.startswith("#"))
        return [(bytes.fromhex(code), text) for code, text in rows]

    return read


@pytest.fixture(scope="session")
def maker():
    """`maker(machine, random)` makes random instructions; see `random_instructions.py` in the support folder."""
    return random_instructions.Maker
