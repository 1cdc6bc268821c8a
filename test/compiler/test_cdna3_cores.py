"""Graphs compiled for gfx942 and gfx950 give NumPy's numbers on their virtual cores, in strict mode: kernels in waves
of 64 lanes, and products by matrix instructions.

The cores are written from AMD's document and know nothing of the compiler.
"""

import ml_dtypes
import numpy as np
import on_cores
import pytest
import random_attention
import random_graphs
from attention_numpy import attended
from language.small_graphs import CASES

from ringup.compiler.compile import compile_graph
from ringup.compiler.isa.amd.assembly import disassembler
from ringup.compiler.isa.amd.objects import elf_read
from ringup.compiler.kernel.contraction.matrix import MatrixTile
from ringup.compiler.tensor import Tensor, device
from ringup.compiler.tensor.order import prepared

draw = np.random.default_rng(942)


def numbers(*shape, kind=np.float32):
    return draw.standard_normal(shape).astype(kind)


def whole(*shape, most=127, kind=np.int32):
    return draw.integers(-most, most, shape).astype(kind)


A, B = numbers(70, 130), numbers(130, 65)
DOUBLES = numbers(40, 50, kind=np.float64), numbers(50, 30, kind=np.float64)
BYTES = whole(33, 70, kind=np.int8), whole(70, 40, kind=np.int8)
EIGHTH_KINDS = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
EIGHTHS = numbers(40, 64, kind=ml_dtypes.float8_e4m3fn), numbers(64, 33, kind=ml_dtypes.float8_e5m2)
DEEP_EIGHTHS = numbers(16, 160, kind=ml_dtypes.float8_e5m2), numbers(160, 16, kind=ml_dtypes.float8_e4m3fn)
HALVES, BRAINS = (tuple(numbers(48, 48, kind=kind) for _ in range(2)) for kind in (np.float16, ml_dtypes.bfloat16))
QUERIES = [numbers(1, 2, 70, 32, kind=np.float16) for _ in range(3)]
ONE = numbers(1, 2, 1, 32), numbers(1, 2, 300, 32), numbers(1, 2, 300, 32)
LINES, LONG, SORTED = whole(5, 50), whole(2, 3000), whole(2, 600, most=9999)
# The same, and what a wave of 64 lanes changes.
MORE = {
    "a row of a wave and more": (lambda: Tensor(A).softmax(1), np.exp(A) / np.exp(A).sum(1, keepdims=True), 1e-6),
    "columns": (lambda: Tensor(A).sum(0), A.sum(0), 1e-4),
    "scans of half a wave": (lambda: Tensor(LINES).cumsum(1), LINES.cumsum(1), 0),
    "scans of many waves": (lambda: Tensor(LONG).cumsum(1), LONG.cumsum(1), 0),
    "sort of many waves": (lambda: Tensor(SORTED).sort(1)[0], np.sort(SORTED, 1), 0),
    "attention of f16": (
        lambda: Tensor(QUERIES[0]).scaled_dot_product_attention(Tensor(QUERIES[1]), Tensor(QUERIES[2])),
        attended(*(one.astype(np.float32) for one in QUERIES)), 3e-3,
    ),
    "attention of one query": (
        lambda: Tensor(ONE[0]).scaled_dot_product_attention(Tensor(ONE[1]), Tensor(ONE[2])), attended(*ONE), 1e-5
    ),
}  # fmt: skip


def product(pair, wide, narrow=None):
    """Return a product as a graph, and NumPy's."""
    as_wide = "float32" if wide is np.float32 else "int32" if wide is np.int32 else "float64"
    a, b = pair
    return lambda: Tensor(a).cast(as_wide) @ Tensor(b).cast(as_wide), a.astype(wide) @ b.astype(wide)


# The instruction, the graph and NumPy's product, the tolerance.
PRODUCTS = {
    "f32": ("v_mfma_f32_16x16x4_f32", *product((A, B), np.float32), 1e-4),
    "f64": ("v_mfma_f64_16x16x4_f64", *product(DOUBLES, np.float64), 1e-12),
    "f16": ("v_mfma_f32_16x16x16_f16", *product(HALVES, np.float32), 1e-4),
    "bf16": ("v_mfma_f32_16x16x16_bf16", *product(BRAINS, np.float32), 1e-4),
    "i8": ("v_mfma_i32_16x16x32_i8", *product(BYTES, np.int32), 0),
    # As f16, exactly.
    "f8": ("v_mfma_f32_16x16x16_f16", *product(EIGHTHS, np.float32), 1e-4),
    "deep f8": ("v_mfma_f32_16x16x16_f16", *product(DEEP_EIGHTHS, np.float32), 1e-4),
}


# CDNA4's are twice as deep along K. It multiplies OCP's floats of 8 bits, those of long sums 128 k at a time.
DEEPER = {
    "f64": PRODUCTS["f64"][0], "f16": "v_mfma_f32_16x16x32_f16", "bf16": "v_mfma_f32_16x16x32_bf16", "i8": "v_mfma_i32_16x16x64_i8",
    "f8": "v_mfma_f32_16x16x32_fp8_bf8", "deep f8": "v_mfma_f32_16x16x128_f8f6f4",
}  # fmt: skip
ON_CDNA4 = ("product of matrices", "attention of f16", "scans of many waves")


def check(make, wanted, tolerance, target="gfx942"):
    with device(on_cores.Cores(target=target)):
        found = make().numpy()
    np.testing.assert_allclose(found.astype(np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance)


def listed(tensor, target):
    """Return the disassembled code of a graph."""
    graph = compile_graph(prepared([tensor.node]), target)
    _, listing = disassembler.of_object(elf_read.read(graph.code_object(), "code"))
    return "\n".join(listing.lines(places=False))


@pytest.mark.parametrize("name", [*CASES, *MORE])
def test_kernels_of_waves_of_64_compute_what_numpy_does(name):
    check(*(CASES | MORE)[name])


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=() if one in ON_CDNA4 else pytest.mark.fuzz) for one in (*CASES, *MORE)]
)
def test_kernels_for_cdna4_compute_what_numpy_does(name):
    check(*(CASES | MORE)[name], "gfx950")


@pytest.mark.parametrize(
    ("target", "name"), [*(("gfx942", name) for name in PRODUCTS), *(("gfx950", name) for name in DEEPER)]
)
def test_products_use_the_matrix_instruction_of_their_type(target, name):
    mnemonic, make, wanted, tolerance = PRODUCTS[name]
    if target == "gfx950":
        mnemonic = DEEPER[name]
    check(make, wanted, tolerance, target)
    text = listed(make(), target)
    assert f"{mnemonic} v[" in text
    assert {line.split()[0] for line in text.splitlines() if "_mfma_" in line} == {mnemonic}


def every(kind):
    """Return the finite floats of a type of 8 bits, zeros of both signs in place of the others, and the others."""
    found = np.arange(256, dtype=np.uint8).view(kind)
    is_finite = np.isfinite(found.astype(np.float32))
    return np.where(is_finite, found, found.dtype.type(0)).reshape(16, 16), found[~is_finite]


@pytest.mark.parametrize(
    ("kinds", "depth"),
    [
        pytest.param(kinds, depth, marks=() if kinds == (0, 1) else pytest.mark.fuzz)
        for kinds in ((0, 1), (1, 0), (0, 0), (1, 1))
        for depth in (64, 128)
    ],
)
def test_every_float_of_8_bits_is_multiplied_as_ml_dtypes_reads_it_on_cdna4(kinds, depth):
    """Each of the 256 bytes as a factor of A and of B: NaN, infinities, zeros and denormals too. Each result has one
    product.
    """
    left, right = (EIGHTH_KINDS[kind] for kind in kinds)
    (rows, odd_rows), (columns, odd_columns) = every(left), every(right)
    a, b = np.zeros((16 + len(odd_rows), depth), left), np.zeros((depth, 32 + len(odd_columns)), right)
    twice, there = 2 * np.eye(16), np.s_[depth - 32 : depth - 16]
    a[:16, :16], b[:16, :16] = rows, twice
    a[:16, there], b[there, 16:32] = twice, columns
    a[16:, -1], b[-1, :16], b[-1, 32:] = odd_rows, np.arange(16), odd_columns
    with device(on_cores.Cores(target="gfx950")):
        found = (Tensor(a).cast("float32") @ Tensor(b).cast("float32")).numpy()
    with np.errstate(all="ignore"):
        wanted = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(found[:16, :16], 2 * rows.astype(np.float32))


@pytest.mark.parametrize("chain", ["float16", "bfloat16", "float64"])
def test_floats_of_8_bits_widened_in_steps_are_multiplied_as_they_are_on_cdna4(chain):
    a, b = EIGHTHS
    graph = Tensor(a).cast(chain).cast("float32").permute(1, 0).permute(1, 0) @ Tensor(b).cast("float32")
    assert "_fp8_bf8" in listed(graph, "gfx950")


def test_a_float_of_8_bits_beside_one_of_16_is_widened_on_cdna4():
    a, b = EIGHTHS
    graph = Tensor(a).cast("float32") @ Tensor(b.astype(np.float16)).cast("float32")
    assert {one for one in listed(graph, "gfx950").split() if "_mfma_" in one} == {"v_mfma_f32_16x16x32_f16"}


@pytest.mark.parametrize("kind", ["float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn"])
def test_formats_of_8_bits_and_less_that_are_not_ocps_are_refused(kind):
    """CDNA3's own formats would give other numbers; scales and floats of 4 bits have no tensors."""
    with pytest.raises(TypeError, match=f"elements of {kind} have no type here"):
        Tensor(np.zeros((2, 2), getattr(ml_dtypes, kind)))


class Chosen:
    """Chooses one shape for every kernel."""

    def __init__(self, tile):
        self.tile = tile

    def choice(self, kernel, signature, target):
        return self.tile


@pytest.mark.parametrize("slices", [1, 2])
def test_tiles_with_one_slice_in_lds_wait_until_every_wave_has_read_it(slices):
    """Three slices, the last of them in part, of a tile that reaches past the result."""
    a, b = numbers(70, 150, kind=np.float16), numbers(150, 50, kind=np.float16)
    cores = on_cores.Cores(Chosen(MatrixTile(128, 64, 64, 2, 2, 1.0, 64, slices)), "gfx942")
    with device(cores):
        found = (Tensor(a).cast("float32") @ Tensor(b).cast("float32")).numpy()
    wanted = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    (binary,) = cores.graph.binaries
    assert binary.lds_bytes == slices * (128 + 64) * (64 * 2 + 16)


@pytest.mark.fuzz
def test_a_group_of_cdna4_has_more_lds():
    a, b = numbers(70, 256, kind=np.float16), numbers(256, 50, kind=np.float16)
    cores = on_cores.Cores(Chosen(MatrixTile(128, 128, 128, 4, 2, 1.0, 64, 1)), "gfx950")
    with device(cores):
        found = (Tensor(a).cast("float32") @ Tensor(b).cast("float32")).numpy()
    np.testing.assert_allclose(found, a.astype(np.float32) @ b.astype(np.float32), rtol=1e-4, atol=1e-4)
    assert cores.graph.binaries[0].lds_bytes == 69632


def test_products_of_unsigned_bytes_have_no_matrix_instruction():
    a, b = (Tensor(np.zeros((32, 32), np.uint8)).cast("uint32") for _ in range(2))
    assert "_mfma_" not in listed(a @ b, "gfx942")


@pytest.mark.seeds(2)
def test_random_graphs(seed):
    with device(on_cores.Cores(target="gfx942")):
        random_graphs.check(seed)


@pytest.mark.seeds(1, also=(1935833478,))
def test_random_attentions(seed):
    with device(on_cores.Cores(target="gfx942")):
        random_attention.check(seed)
