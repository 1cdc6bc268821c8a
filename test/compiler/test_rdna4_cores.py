"""Graphs compiled for gfx1201 give NumPy's numbers on the virtual cores of gfx1201, in strict mode.

The cores are written from AMD's document and know nothing of the compiler.
"""

import numpy as np
import on_cores
import pytest
from language.small_graphs import CASES

from ringup.compiler.tensor import device
from ringup.silicon.shader.rdna.interpreter.engine import Interpreter

ENGINE = Interpreter(target="gfx1201")


@pytest.mark.parametrize("name", CASES)
def test_code_for_rdna4_computes_what_numpy_does(name):
    make, wanted, tolerance = CASES[name]
    with device(on_cores.Cores(engine=ENGINE)):
        found = make().numpy()
    np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance)
