"""Fixtures for the instruction facts: LLVM's own (bytes, text) pairs, and LLVM 22 itself."""

import gzip
from pathlib import Path

import pytest

from ringup.autogen.generate.isa.instructions import FEATURES
from ringup.autogen.generate.isa.probe import Disassembler, llvm_mc


@pytest.fixture(scope="session")
def mc_pairs():
    """`mc_pairs("gfx1100")`: (bytes, text) as LLVM's tests state them (origin in the file's first line)."""

    def read(target):
        text = gzip.decompress((Path(__file__).parent / f"mc_{target}.tsv.gz").read_bytes()).decode()
        rows = (line.split("\t") for line in text.splitlines() if not line.startswith("#"))
        return [(bytes.fromhex(code), text) for code, text in rows]

    return read


@pytest.fixture(scope="session")
def disassembler(headers):
    """`disassembler("gfx1100")` is LLVM 22 for that processor; a missing tool fails, it never skips."""
    command = llvm_mc(headers("llvm-22"))
    return lambda target: Disassembler(command, target, FEATURES[target])
