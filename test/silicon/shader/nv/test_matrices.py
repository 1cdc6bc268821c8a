"""Products of matrices by the fragment layouts of the PTX ISA; NumPy and exact fractions are the judge."""

from fractions import Fraction

import numpy as np
import pytest
from nak.registers import Program, both

from ringup.compiler.isa.sass.dsl import Code
from ringup.errors import GuestError, Unmodelled
from ringup.silicon.shader.nv import workbench
from ringup.silicon.shader.nv.interpreter.engine import Interpreter
from ringup.silicon.shader.nv.translator.engine import Translator

# Registers of the factors, the addend and the result.
A, B, C, D = 8, 12, 16, 20
LANES = 32


def fragment_places(rows, columns, per_register, *, transposed=False):
    """(register, part, lane, row, column) of each element. Source: PTX ISA, "Matrix Fragments for mma.m16n8k16"."""
    for lane in range(LANES):
        group, place = lane >> 2, lane & 3
        register = 0
        for start in range(0, columns, 4 * per_register):
            for top in range(0, rows, 8):
                for part in range(per_register):
                    row, column = top + group, start + place * per_register + part
                    yield (register, part, lane, *((column, row) if transposed else (row, column)))
                register += 1


def put(given, first, matrix, per_register, *, transposed=False):
    rows, columns = matrix.shape[::-1] if transposed else matrix.shape
    width = 32 // per_register
    for register, part, lane, row, column in fragment_places(rows, columns, per_register, transposed=transposed):
        given[first + register, lane] |= np.uint32(int(matrix[row, column]) << width * part)


def sums(found, rows):
    """(rows, 8) of words: two columns of a row, then the row eight below."""
    matrix = np.zeros((rows, 8), np.uint32)
    for lane in range(LANES):
        for number in range(2 * (rows // 8)):
            matrix[(lane >> 2) + 8 * (number >> 1), 2 * (lane & 3) + (number & 1)] = found[D + number, lane]
    return matrix


def put_sums(given, matrix):
    for lane in range(LANES):
        for number in range(2 * (len(matrix) // 8)):
            given[C + number, lane] = matrix[(lane >> 2) + 8 * (number >> 1), 2 * (lane & 3) + (number & 1)]


def product(target, text, given):
    one, other = both(target, lambda program: program.add(f"{text} R{D}, R{A}, R{B}, R{C}"), given)
    assert np.array_equal(one, other)
    return one


def bits_of(kind, values):
    if kind == "F16":
        return values.astype(np.float16).view(np.uint16)
    words = values.astype(np.float32).view(np.uint32)
    return words >> np.uint32(16) if kind == "BF16" else words


def exact_of(kind, values):
    bits = bits_of(kind, values)
    if kind == "F16":
        return bits.view(np.float16).astype(float)
    whole = bits.astype(np.uint32) << np.uint32(16) if kind == "BF16" else bits & np.uint32(0xFFFF_E000)
    return whole.view(np.float32).astype(float)


FLOATS = [
    ("sm_75", "HMMA.1688.F32", "F16", 8, 8), ("sm_86", "HMMA.1688.F32", "F16", 8, 8),
    ("sm_86", "HMMA.16816.F32", "F16", 16, 8), ("sm_86", "HMMA.16816.F32.BF16", "BF16", 16, 8),
    ("sm_86", "HMMA.1684.F32.TF32", "TF32", 4, 4), ("sm_86", "HMMA.1688.F32.TF32", "TF32", 8, 4),
]  # fmt: skip


def cut_sum(a, b, c, at_once, bits=24):
    """One element: a few products and the addend are cut below the largest exponent, added, cut to f32."""
    total = Fraction(c)
    for start in range(0, len(a), at_once):
        pairs = [(x, y) for x, y in zip(a[start : start + at_once], b[start : start + at_once], strict=True) if x and y]
        # the exponents of factors add up, whatever their product's is
        tops = [np.frexp(x)[1] + np.frexp(y)[1] - 2 for x, y in pairs] + (
            [np.frexp(float(total))[1] - 1] if total else []
        )
        if not tops:
            continue
        unit = Fraction(2) ** (int(max(tops)) - bits)
        total = sum(int(one / unit) for one in [*(Fraction(x) * Fraction(y) for x, y in pairs), total]) * unit
        size = abs(total.numerator).bit_length() - total.denominator.bit_length() if total else 0
        step = Fraction(2) ** (size - 24 + (abs(total) >= Fraction(2) ** size))
        total = int(total / step) * step
    return float(total)


@pytest.mark.parametrize(("target", "text", "kind", "depth", "at_once"), FLOATS)
def test_a_product_of_floats_is_the_sum_that_was_measured_on_cards(target, text, kind, depth, at_once):
    draw = np.random.default_rng(3)
    a, b = draw.normal(size=(16, depth)), draw.normal(size=(depth, 8)) * 2.0 ** draw.integers(-9, 9, (depth, 8))
    c = draw.normal(size=(16, 8)).astype(np.float32)
    given = np.zeros((24, LANES), np.uint32)
    packed = 1 if kind == "TF32" else 2
    put(given, A, bits_of(kind, a), packed)
    put(given, B, bits_of(kind, b), packed, transposed=True)
    put_sums(given, c.view(np.uint32))
    found = sums(product(target, text, given), 16).view(np.float32)
    a, b = exact_of(kind, a), exact_of(kind, b)
    scale = np.abs(a) @ np.abs(b) + np.abs(c)
    assert (np.abs(found - (a @ b + c)) <= scale * 2.0**-20).all()
    expected = [[cut_sum(a[row].tolist(), b[:, column].tolist(), float(c[row, column]), at_once) for column in range(8)]
                for row in range(16)]  # fmt: skip
    assert np.array_equal(found, np.array(expected, np.float32))


def test_a_sum_of_f16_lies_two_in_a_register():
    draw = np.random.default_rng(4)
    a, b = draw.integers(-4, 5, (16, 16)).astype(float), draw.integers(-4, 5, (16, 8)).astype(float)
    c = draw.integers(-9, 9, (16, 8)).astype(float)
    given = np.zeros((24, LANES), np.uint32)
    put(given, A, bits_of("F16", a), 2)
    put(given, B, bits_of("F16", b), 2, transposed=True)
    put(given, C, bits_of("F16", c), 2)
    found = product("sm_86", "HMMA.16816.F16", given)
    matrix = np.zeros((16, 8), np.uint16)
    for register, part, lane, row, column in fragment_places(16, 8, 2):
        matrix[row, column] = found[D + register, lane] >> 16 * part & 0xFFFF
    assert np.array_equal(matrix.view(np.float16).astype(float), a @ b + c)


INTEGERS = [
    ("sm_75", "IMMA.8816.S8.U8", 8, 16, 8), ("sm_75", "IMMA.8832.U4.S4", 8, 32, 4), ("sm_86", "IMMA.16816.S8.S8", 16, 16, 8),
    ("sm_86", "IMMA.16832.U8.S8", 16, 32, 8), ("sm_86", "IMMA.16832.S4.S4", 16, 32, 4), ("sm_86", "IMMA.16864.S4.U4", 16, 64, 4),
    ("sm_86", "IMMA.16816.S8.S8.SAT", 16, 16, 8),
]  # fmt: skip


@pytest.mark.parametrize(("target", "text", "rows", "depth", "width"), INTEGERS)
def test_a_product_of_integers_is_exact(target, text, rows, depth, width):
    draw = np.random.default_rng(5)
    a, b = draw.integers(0, 1 << width, (rows, depth)), draw.integers(0, 1 << width, (depth, 8))
    saturates = text.endswith("SAT")
    c = draw.integers(-(1 << 31), 1 << 31, (rows, 8)) if not saturates else np.full((rows, 8), (1 << 31) - 5)
    given = np.zeros((24, LANES), np.uint32)
    put(given, A, a, 32 // width)
    put(given, B, b, 32 // width, transposed=True)
    # ROW and COL are the only order; the texts of types come before them.
    name, *kinds = text.removesuffix(".SAT").rsplit(".", 2)
    put_sums(given, (c & 0xFFFF_FFFF).astype(np.uint32))
    texts = f"{name}.{kinds[0]}.{kinds[1]}{'.SAT' * saturates} R{D}, R{A}.ROW, R{B}.COL, R{C}"
    one, other = both(target, lambda program: program.add(texts), given)
    assert np.array_equal(one, other)
    signed = [np.where(m >> width - 1 & (k[0] == "S"), m - (1 << width), m) for m, k in zip((a, b), kinds, strict=True)]
    total = signed[0] @ signed[1] + c
    total = np.clip(total, -(1 << 31), (1 << 31) - 1) if saturates else total
    assert np.array_equal(sums(one, rows), (total & 0xFFFF_FFFF).astype(np.uint32))


def test_a_product_of_f64_is_fused_along_k():
    draw = np.random.default_rng(6)
    a, b, c = draw.normal(size=(8, 4)), draw.normal(size=(4, 8)), draw.normal(size=(8, 8))
    given = np.zeros((24, LANES), np.uint32)
    for lane in range(LANES):
        group, place = lane >> 2, lane & 3
        for first, value in (
            (A, a[group, place]),
            (B, b[place, group]),
            (C, c[group, 2 * place]),
            (C + 2, c[group, 2 * place + 1]),
        ):
            given[first : first + 2, lane] = np.array([value]).view(np.uint32)
    found = product("sm_80", "DMMA.884", given)
    for lane in range(LANES):
        group, place = lane >> 2, lane & 3
        for side in (0, 1):
            expected = float(c[group, 2 * place + side])
            for k in range(4):
                expected = float(Fraction(a[group, k]) * Fraction(b[k, 2 * place + side]) + Fraction(expected))
            assert found[D + 2 * side : D + 2 * side + 2, lane].copy().view(np.float64)[0] == expected


EVERY_FORM = {
    "sm_75": ("HMMA.1688.F32", "HMMA.1688.F16", "IMMA.8816.S8.U8", "IMMA.8816.U8.S8.SAT", "IMMA.8832.U4.S4"),
    "sm_86": (
        "HMMA.1688.F32", "HMMA.1688.F16", "HMMA.16816.F32", "HMMA.16816.F16", "HMMA.1688.F32.BF16",
        "HMMA.16816.F32.BF16", "HMMA.1684.F32.TF32", "HMMA.1688.F32.TF32", "IMMA.16816.S8.S8", "IMMA.16816.U8.S8.SAT",
        "IMMA.16832.S8.S8.SAT", "IMMA.16832.U8.U8", "IMMA.16832.S4.U4.SAT", "IMMA.16864.S4.S4", "IMMA.16864.U4.S4.SAT",
    ),
}  # fmt: skip


def factors_of(kind, draw, shape):
    """Words of a format: of all exponents, near each other so that sums cancel, or anything."""
    which = draw.integers(0, 4)
    if which == 0:
        return draw.integers(0, 1 << 32, shape, np.uint32)
    spread = (0.0, 3.0, 40.0)[which - 1]
    given = draw.normal(size=(*shape, 2)) * 2.0 ** draw.normal(0, spread, (*shape, 2))
    given[draw.random(given.shape) < 0.1] = 0.0
    given[draw.random(given.shape) < 0.1] = -0.0
    with np.errstate(over="ignore"):
        bits = bits_of(kind, given)
    if which == 3:
        bits[draw.random(bits.shape) < 0.01] = draw.choice(bits_of(kind, np.array([np.inf, -np.inf, np.nan])))
    if kind == "TF32":
        return bits[..., 0]
    return (bits.astype(np.uint32) << np.array([0, 16], np.uint32)).sum(-1, dtype=np.uint32)


@pytest.mark.parametrize("target", EVERY_FORM)
@pytest.mark.seeds(1)
def test_products_of_all_kinds_of_values_are_the_same_on_both_engines(target, seed):
    draw = np.random.default_rng(seed)
    given = np.zeros((24, LANES), np.uint32)
    texts = []
    for text in draw.choice(EVERY_FORM[target], 3):
        kind = next((one for one in ("BF16", "TF32") if text.endswith(one)), "F16")
        order = ("", "") if text[0] == "H" else (".ROW", ".COL")
        texts.append((f"{text} R{D}, R{A}{order[0]}, R{B}{order[1]}, R{C}", kind))
    for text, kind in texts:
        given[A:C] = factors_of(kind, draw, (C - A, LANES))
        sums = factors_of("F16" if ".F16" in text else "TF32", draw, (D - C, LANES))
        given[C:D] = np.where(draw.random() < 0.5, sums, given[C:D])
        # guards in which every lane takes part, and none
        guard = draw.choice(["", "@P0 ", "@!P0 "])
        given[8] = given[8] | np.uint32(1 << 31) if draw.random() < 0.5 else given[8] & np.uint32(0x7FFF_FFFF)
        one, other = both(target, lambda program, text=guard + text: program.add(text), given)
        assert np.array_equal(one, other), (text, given)


@pytest.mark.parametrize("how", ["M88", "MT88"])
def test_fragments_are_loaded_from_shared_memory_and_transposed(how):
    """Source: PTX ISA, ldmatrix, movmatrix."""
    draw = np.random.default_rng(7)
    matrices = draw.integers(0, 1 << 16, (4, 8, 8)).astype(np.uint16)
    rows = matrices.reshape(32, 8)
    given = np.zeros((24, LANES), np.uint32)
    # Lane l has row l: 16 bytes.
    given[8:12] = rows.view(np.uint32).T

    def make(program):
        program.add(
            "SHF.L.U32 R0, R0, 0x4, RZ", "STS.128 [R0], R8", f"LDSM.16.{how}.4 R{D}, [R0]", f"MOVM.16.MT88 R16, R{D}"
        )

    one, other = both("sm_86", make, given)
    assert np.array_equal(one, other)
    for number, matrix in enumerate(matrices):
        read = matrix.T if how == "MT88" else matrix
        expected = np.ascontiguousarray(read).reshape(32, 2).view(np.uint32).ravel()
        assert np.array_equal(one[D + number], expected)
        if number == 0:
            assert np.array_equal(one[16], np.ascontiguousarray(read.T).reshape(32, 2).view(np.uint32).ravel())


def copied(engine, waits):
    """Copy two batches to shared memory; read the first one behind the first wait, the second one behind the others."""
    code = Code("sm_86", "k", registers=24)
    code.S2R("R0, SR_TID.X", write=0, stall=2)
    code.MOV("R4, 0x4", stall=6)
    code.IMAD.WIDE.U32("R2, R0, R4, c[0x0][0x0]", wait=(0,), stall=6)
    code.IMAD.WIDE.U32("R6, R0, R4, c[0x0][0x8]", stall=6)
    code.SHF.L.U32("R1, R0, 0x2, RZ", stall=6)
    for offset in ("", "+0x80"):
        code.LDGSTS.E(f"[R1{offset}], [R2.64{offset}]", read=0, stall=2)
        code.LDGDEPBAR("", write=0, stall=2)
    for number, (wait, offset) in enumerate(zip(waits, ("", "+0x80"), strict=True)):
        if wait is not None:
            code.DEPBAR.LE(f"SB0, {wait:#x}", stall=6)
        code.LDS(f"R{8 + number}, [R1{offset}]", write=1, stall=2)
        code.STG.E(f"[R6{offset}], R{8 + number}", wait=(1,), read=2, stall=2)
    code.EXIT("", stall=5)
    source, found = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    workbench.run(
        engine, code.kernel().code, [source, found], groups=(1, 1, 1), group_size=(32, 1, 1), registers=24, shared_bytes=256,
        parameters_at=0,
    )  # fmt: skip
    assert np.array_equal(found, source)


@pytest.mark.parametrize("engine", [Interpreter("sm_86"), Translator("sm_86", worthwhile=0)])
def test_copies_reach_shared_memory_once_they_are_waited_for(engine):
    """Source: PTX ISA, cp.async, cp.async.wait_group."""
    copied(engine, (1, 0))


def test_a_copy_that_is_not_waited_for_is_found():
    with pytest.raises(GuestError, match=r"uninitialised at .*LDS R9, \[R1\+0x80\].*: shared memory at 0x80 was never"):
        copied(Interpreter("sm_86"), (1, None))


ENGINES = [Interpreter("sm_86", strict=False), Translator("sm_86", strict=False, worthwhile=0)]


def ran(engine, *texts):
    program = Program("sm_86")
    program.begin()
    program.add(*texts)
    program.end()
    program.run(engine, np.arange(24 * LANES, dtype=np.uint32).reshape(24, LANES))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("offset", "kind"), [("0x8", "alignment"), ("0x1000", "memory")])
def test_a_wrong_address_of_a_fragment_is_found(engine, offset, kind):
    with pytest.raises(GuestError, match=rf"{kind} at .*LDSM.16.M88.4 R20"):
        ran(engine, "SHF.L.U32 R0, R0, 0x4, RZ", f"LDSM.16.M88.4 R20, [R0+{offset}]")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("text", ["HMMA.1688.F32 R20, R8, R12, R16", "LDSM.16.M88.4 R20, [RZ]", "MOVM.16.MT88 R20, R8"])
def test_a_matrix_instruction_in_some_lanes_is_refused_by_name(engine, text):
    """Source: PTX ISA, mma: all threads of the warp must execute it."""
    with pytest.raises(Unmodelled, match=r"in some lanes of the warp only"):
        ran(engine, "ISETP.LT.AND P0, PT, R0, 0x7, PT", f"@P0 {text}")
