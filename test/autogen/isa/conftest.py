"""Fixtures for the instruction facts: the (bytes, text) pairs of LLVM's tests, and LLVM 22 itself."""

import gzip
from pathlib import Path

import pytest

from ringup.autogen.generate.isa.instructions import FEATURES
from ringup.autogen.generate.isa.probe import Disassembler, llvm_mc


@pytest.fixture(scope="session")
def mc_pairs():
    """`mc_pairs("gfx1100")` returns (bytes, text) pairs from LLVM's tests. The file's first line states their
    origin.
    """

    def read(target):
        text = gzip.decompress((Path(__file__).parent / f"mc_{target}.tsv.gz").read_bytes()).decode()
        rows = (line.split("\t") for line in text.splitlines() if not line.startswith("#"))
        return [(bytes.fromhex(code), text) for code, text in rows]

    return read


@pytest.fixture(scope="session")
def disassembler(headers):
    """`disassembler("gfx1100")` is LLVM 22 for that processor. A missing tool fails the test and never skips it."""
    command = llvm_mc(headers("llvm-22"))
    return lambda target: Disassembler(command, target, FEATURES[target])
