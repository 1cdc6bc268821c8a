"""Random programs through the whole back end. The virtual cores in strict mode store what the direct evaluation stores.
A test's name is its seed.
"""

import pytest

SHAPES = {
    "straight": ({"nests": 0, "size": 60}, {}),
    "structured": ({"size": 60}, {}),
    "full files": ({"size": 60, "live": 40, "scalars": 12}, {}),
    "vgprs spilled": ({"size": 60, "live": 40}, {"max_vgprs": 24}),
    "sgprs spilled": ({"size": 100, "live": 14, "scalars": 20}, {"max_sgprs": 16}),
    "both spilled": ({"size": 100, "live": 20, "scalars": 12}, {"max_vgprs": 20, "max_sgprs": 16}),
    "hundreds live": ({"size": 150, "live": 300, "scalars": 30}, {}),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.sweep(3)
def test_the_reference_cores_store_what_is_meant(tools, shape):
    made, options = SHAPES[shape]
    spilled = 0
    for seed in range(1000, 1012):
        program = tools.random_program(seed, **made)
        binary = tools.check(program.code, program.out_words, engines=("interpreter",), **options)
        assert binary.vgprs <= options.get("max_vgprs", 256)
        assert binary.sgprs <= options.get("max_sgprs", 106)
        spilled += binary.scratch_bytes > 0
    assert spilled > 8 if shape in ("vgprs spilled", "both spilled") else spilled == 0


@pytest.mark.parametrize("shape", SHAPES)
def test_the_fast_cores_store_the_same(tools, shape):
    made, options = SHAPES[shape]
    program = tools.random_program(77, **made)
    tools.check(program.code, program.out_words, engines=("translator",), **options)


@pytest.mark.parametrize("shape", ["structured", "both spilled"])
def test_the_same_code_gives_the_same_bytes(tools, shape):
    from ringup.compiler.amd.pipeline import finish

    made, options = SHAPES[shape]
    first, second = (finish(tools.random_program(5, **made).code, **options) for _ in range(2))
    assert first.code == second.code


@pytest.mark.parametrize("seed", range(6))
def test_llvm_assembles_the_text_to_the_same_bytes(tools, assembled, seed):
    from ringup.compiler.amd.pipeline import finish

    program = tools.random_program(seed, size=120, live=30)
    binary = finish(program.code, max_vgprs=28 if seed % 2 else 0)
    encodings, _ = assembled(program.code)
    theirs = b""
    for one in encodings:
        parts = one.split(",")
        # A: the linker computes a branch's distance.
        theirs += bytes(0 if "A" in part else int(part, 0) for part in parts)
    branches = 0
    assert len(encodings) == binary.instructions
    for at in range(0, len(theirs), 4):
        mine, other = binary.code[at : at + 4], theirs[at : at + 4]
        if mine != other:
            assert mine[2:] == other[2:], (at, mine.hex(), other.hex())
            assert mine[3] == 0xBF
            branches += 1
    assert branches <= sum(len(block.instrs) > 0 for block in program.code.blocks) * 2
