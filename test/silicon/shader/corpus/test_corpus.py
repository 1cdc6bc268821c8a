"""Kernels that clang compiled give the numbers that the same source gives on this computer, on both engines."""

import pytest

# Each kernel at every level somewhere: all at -O1 in wave32, the other pairs in turn, so that the suite stays short.
TURNS = (("-O0", 32), ("-O2", 32), ("-O1", 64), ("-O2", 64), ("-O0", 64))


@pytest.mark.sweep(64)
def test_the_translator_at_o1(check, case):
    check(case, "-O1", 32, "translator", 2)


@pytest.mark.sweep(64)
def test_the_translator_at_another_level_or_wave_size(check, case, turn):
    level, wave_size = TURNS[turn % len(TURNS)]
    check(case, level, wave_size, "translator", 2)


def test_the_interpreter_on_a_part_of_the_corpus(check, case_of_few):
    check(case_of_few, "-O1", 32, "interpreter", 1)
