"""Kernels compiled by clang give the same numbers on both engines as their source gives on this computer."""

import pytest

# All kernels run at -O1 in wave32. The other pairs of level and wave size take turns, so that the suite stays short.
TURNS = (("-O0", 32), ("-O2", 32), ("-O1", 64), ("-O2", 64), ("-O0", 64))


@pytest.mark.sweep(18)
def test_the_translator_at_o1(check, case):
    check(case, "-O1", 32, "translator", 2)


@pytest.mark.sweep(18)
def test_the_translator_at_another_level_or_wave_size(check, case, turn):
    level, wave_size = TURNS[turn % len(TURNS)]
    check(case, level, wave_size, "translator", 2)


def test_the_interpreter_on_a_part_of_the_corpus(check, case_of_few):
    check(case_of_few, "-O1", 32, "interpreter", 1)


def test_both_engines_on_code_for_cdna3(check, case_of_cdna3, number):
    levels = ("-O1", "-O2", "-O0", "-O3")
    turn = number // 16
    check(case_of_cdna3, levels[turn % len(levels)], 64, "translator", 2, "gfx942")
    if turn % 4 == 1:
        check(case_of_cdna3, levels[turn // 4 % len(levels)], 64, "interpreter", 1, "gfx942")


def test_the_translator_on_code_for_rdna3_5(check, case_of_rdna3_5, number):
    ways, turn = (("-O1", 32), *TURNS), number // 32
    check(case_of_rdna3_5, *ways[turn % len(ways)], "translator", 2, ("gfx1150", "gfx1151")[number % 2])


def test_both_engines_on_code_for_rdna4(check, case_of_rdna4, number):
    ways, turn = (("-O1", 32), *TURNS), number // 8
    processor = ("gfx1200", "gfx1201")[turn // len(ways) % 2]
    check(case_of_rdna4, *ways[turn % len(ways)], "translator", 2, processor)
    if not turn % 2:
        check(case_of_rdna4, *ways[turn % len(ways)], "interpreter", 1, processor)
