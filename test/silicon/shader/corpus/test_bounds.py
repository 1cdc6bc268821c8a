"""Kernels whose loops end where the data says, at every level. LLVM computes values there that it later selects away,
which is no mistake.
"""


def test_loops_of_run_time_length_at_every_level(check, case_of_bounds, way):
    check(case_of_bounds, *way, "translator", 2)


def test_the_interpreter_on_loops_of_run_time_length(check, case_of_bounds):
    check(case_of_bounds, "-O2", 32, "interpreter", 1)
