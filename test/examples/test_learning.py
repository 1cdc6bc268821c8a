"""The programs of `examples/` that train networks or generate with one run on a virtual card."""


def test_an_example_learns(example, run_example):
    run_example(example)
