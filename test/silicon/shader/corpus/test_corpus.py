"""Kernels that clang compiled give the numbers that the same source gives on this computer, bit for bit, on both engines.

NaNs count as equal: neither machine's document says which payload a NaN made by arithmetic has.
"""

import numpy as np

# Each kernel at every level somewhere: all at -O1 in wave32, the other pairs in turn, so that the suite stays short.
TURNS = (("-O0", 32), ("-O2", 32), ("-O1", 64), ("-O2", 64), ("-O0", 64))


def same(found, wanted):
    if found.dtype.kind != "f":
        return found == wanted
    return (found == wanted) | (np.isnan(found) & np.isnan(wanted))


def check(judge, case, level, wave_size, engine, groups):
    found, wanted = judge(case, level, wave_size, engine, groups)
    wrong = np.flatnonzero(~same(found, wanted))
    assert not wrong.size, f"{wrong.size} differ, first [{wrong[0]}]: {found[wrong[0]]!r}, not {wanted[wrong[0]]!r}"


def test_the_translator_at_o1(judge, case):
    check(judge, case, "-O1", 32, "translator", 2)


def test_the_translator_at_another_level_or_wave_size(judge, case, turn):
    level, wave_size = TURNS[turn % len(TURNS)]
    check(judge, case, level, wave_size, "translator", 2)


def test_the_interpreter_on_a_part_of_the_corpus(judge, case_of_few):
    check(judge, case_of_few, "-O1", 32, "interpreter", 1)


def test_loops_of_run_time_length_at_every_level(judge, case_of_bounds, way):
    check(judge, case_of_bounds, *way, "translator", 2)


def test_the_interpreter_on_loops_of_run_time_length(judge, case_of_bounds):
    check(judge, case_of_bounds, "-O2", 32, "interpreter", 1)
