"""Random C: code compiled by clang computes the same on the cores as its source does on this computer, and breaks no
rule.
"""

import ctypes

import numpy as np
import pytest

from ringup.silicon.shader.program import load

LEVELS = ("-O0", "-O1", "-O2", "-O3", "-Os")


@pytest.mark.seeds(3)
@pytest.mark.parametrize(
    "number", [0, 1, 2, pytest.param(3, marks=pytest.mark.fuzz)], ids=["gfx1100", "gfx1201", "gfx942", "gfx1151"]
)
def test_random_sources_compute_the_same_and_break_no_rule(corpus, number, seed, tmp_path):
    engine = corpus.engines[number]
    source = corpus.Source(seed)
    path = tmp_path / f"random_{seed}.c"
    path.write_text(source.text)
    wave_size = 64 if engine.target == "gfx942" else (32, 64)[seed // len(LEVELS) % 2]
    level = LEVELS[seed % len(LEVELS)]
    lanes = f"-m{'no-' if wave_size == 32 else ''}wavefrontsize64"
    flags = (*corpus.GPU_FLAGS, f"-mcpu={engine.target}", level, lanes)
    program = load(corpus.compiled(path, flags, tmp_path).read_bytes())
    host = ctypes.CDLL(str(corpus.compiled(path, corpus.HOST_FLAGS, tmp_path)))
    draw = np.random.default_rng(seed)
    for name in source.names:
        inputs = [corpus.values(draw, "u32", 2 * corpus.GROUP) for _ in range(2)]
        found, wanted = ([np.zeros(len(inputs[0]), np.uint32), *map(np.copy, inputs)] for _ in range(2))
        pointers = [ctypes.c_void_p(one.ctypes.data) for one in wanted]
        getattr(host, name)(*pointers, ctypes.c_uint32(len(inputs[0])), ctypes.c_uint32(2))
        corpus.launch(engine, program, name, 2, found, len(inputs[0]))
        np.testing.assert_array_equal(found[0], wanted[0], err_msg=f"{name} at {level}, wave{wave_size}")
