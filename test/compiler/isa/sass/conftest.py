"""Fixtures for SASS: nvdisasm, published pairs of words and texts, and words of every row."""

import gzip
import random
from pathlib import Path

import pytest
from sass_reference import nvidia_tools

from ringup.autogen.isa import sass
from ringup.autogen.isa.sass import Choice, Optional

PAIRS = Path(__file__).with_name("cuassembler_pairs.tsv.gz")


@pytest.fixture(scope="session")
def nvdisasm(headers):
    return nvidia_tools.Nvdisasm(headers("nvdisasm") / "nvidia" / "cu13" / "bin" / "nvdisasm")


@pytest.fixture(scope="session")
def pairs():
    """(chip, address, word, text) of what CuAssembler's author read with NVIDIA's tools of CUDA 11."""
    lines = gzip.decompress(PAIRS.read_bytes()).decode().splitlines()[1:]
    found = []
    for line in lines:
        chip, address, word, text = line.split("\t")
        found.append((f"sm_{chip}", int(address, 16), int(word, 16), nvidia_tools.regular(text)))
    return found


@pytest.fixture(scope="session")
def random_words():
    """`random_words(chip, times, seed)`: words of every row of a chip, with random operands and modifiers."""

    def words(chip, times, seed):
        draw = random.Random(seed)
        drawn = [_word(row, draw) for row in sass.rows(chip) for _ in range(times)]
        return [word for word in drawn if sass.index(chip).find(word) is not None]

    return words


def _word(row, draw):
    word = draw.getrandbits(105) & sass.shown(row.pieces) & ~row.fixed.mask
    for part in _parts(row.pieces):
        if isinstance(part, Choice):
            value = draw.choice(sorted(part.texts))
            word &= ~sass.mask_of(part)
            word |= sum((value >> index & 1) << bit for index, bit in enumerate(part.bits))
        elif isinstance(part, Optional) and draw.random() < 0.4:
            word = word & ~part.hidden.mask | part.hidden.value
    # The guard is PT, the stall 5 cycles, and no scoreboard is used.
    return word & ~row.fixed.mask | row.fixed.value | 7 << 12 | 5 << 105 | 7 << 110 | 7 << 113


def _parts(parts):
    for part in parts:
        yield part
        if isinstance(part, Optional):
            yield from _parts(part.pieces)
