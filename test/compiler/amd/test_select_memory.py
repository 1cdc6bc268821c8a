"""Memory: widths, offsets, masks at the ends of buffers, LDS, atomics and the barrier."""

import numpy as np
import pytest

from ringup.compiler.amd.instructions.targets import TARGETS
from ringup.compiler.amd.select.function import select
from ringup.compiler.machine.build import Builder
from ringup.compiler.machine.ir import F16, F32, F64, I1, I8, I16, I32, I64, VOID, Param

OUT = Param("out", I64, True, True)


def mnemonics(function, target="gfx1100"):
    return [one.mnemonic for block in select(function, target).blocks for one in block.instrs]


TYPES = [
    *[I8.of(n) for n in (1, 2, 3, 4, 5, 7, 8, 16)], *[I16.of(n) for n in (1, 2, 3, 4, 8)], *[F16.of(n) for n in (1, 2, 16)],
    *[F32.of(n) for n in (1, 2, 3, 4, 5, 8, 16)], *[I64.of(n) for n in (1, 2, 3)], F64,
]  # fmt: skip


@pytest.mark.parametrize("form", ["varying", "uniform", "written", "masked", "masked unknown", "local", "local masked"])
def test_every_width_is_copied(same, form):
    size = 64 * 64
    known = 0 if form == "masked unknown" else size * len(TYPES)
    b = Builder("test", [Param("in", I64, True, form == "written", known), OUT._replace(size_bytes=known)], 64)
    b.function.lds_bytes = size
    thread = b.op("thread_id", I32)
    source, out = b.param(0), b.param(1)
    mask = b.op("ne", I1, b.op("and", I32, thread, b.const(3)), b.const(1)) if "masked" in form else None
    for i, type_ in enumerate(TYPES):
        at = b.mul(thread, type_.size_bytes)
        first = i * size
        if form.startswith("local"):
            made = b.load(type_, source, at, constant=first)
            masks = [mask] if mask else []
            # Elements of different threads share bytes where the types differ.
            b.barrier()
            b.op("lds_store", VOID, at, made, *masks, imm=0)
            made = b.op("lds_load", type_, at, *masks, imm=0)
        else:
            place = b.const(type_.size_bytes * 5) if form in ("uniform", "written") else at
            made = b.load(type_, source, place, constant=first, mask=mask)
        b.store(out, at, made, constant=first, mask=mask if form == "masked unknown" else None)
    rng = np.random.default_rng(3)
    same(b.function, [rng.integers(0, 256, size * len(TYPES), np.uint8), np.zeros(size * len(TYPES), np.uint8)])


@pytest.mark.parametrize("offset_type", [I32, I64], ids=str)
@pytest.mark.parametrize("constant", [0, 4, 4092, 4096, 5000, 1 << 20])
def test_offsets_and_constants(same, offset_type, constant):
    b = Builder("test", [Param("in", I64, True), OUT, Param("n", I32)], 32)
    thread = b.op("thread_id", I32)
    wide = (lambda one: b.op("zext", I64, one)) if offset_type == I64 else (lambda one: one)
    at = wide(b.mul(thread, 4))
    a = b.load(I32, b.param(0), at, constant=constant)
    c = b.load(I32, b.param(0), wide(b.mul(b.param(2), 4)), constant=constant)  # uniform
    d = b.load(I32, b.param(0), b.op("add", offset_type, at, at), constant=constant)
    back = b.load(I32, b.op("add", I64, b.param(0), b.const(8192, I64)), at, constant=-4096)
    for i, one in enumerate((a, c, d, back)):
        b.store(b.param(1), at, one, constant=i * 128)
    data = np.arange((1 << 18) + 4096, dtype=np.uint32)
    same(b.function, [data, np.zeros(128, np.uint32), 5])


def test_a_negative_offset_of_64_bits(same):
    b = Builder("test", [Param("in", I64, True), OUT], 32)
    thread = b.op("thread_id", I32)
    behind = b.op("sub", I64, b.const(0, I64), b.op("zext", I64, b.mul(thread, 4)))
    made = b.load(I32, b.op("add", I64, b.param(0), b.const(1000, I64)), behind)
    b.store(b.param(1), b.mul(thread, 4), made)
    same(b.function, [np.arange(251, dtype=np.uint32), np.zeros(32, np.uint32)])


@pytest.mark.parametrize("size_known", [True, False])
@pytest.mark.parametrize("wave_size", [32, 64])
def test_masked_accesses_touch_nothing_outside(same, size_known, wave_size):
    """Both buffers end where the mask ends, so an access beyond it would fault."""
    count = 75
    sizes = count * 4 if size_known else 0
    b = Builder("test", [Param("in", I64, True, False, sizes), OUT._replace(size_bytes=sizes)], 64, wave_size=wave_size)
    at = b.add(b.mul(b.op("group_id", I32, imm=0), 64), b.op("thread_id", I32))
    inside = b.op("lt_u", I1, at, b.const(count))
    first = b.op("and", I1, inside, b.op("fle", I1, b.const(0.0, F32), b.op("to_float_s", F32, at)))
    a = b.load(F32, b.param(0), b.mul(at, 4), mask=inside)
    c = b.load(F32, b.param(0), b.mul(at, 4), mask=first)
    d = b.load(F32, b.param(0), b.mul(at, 4), constant=4, mask=b.op("lt_u", I1, at, b.const(count - 1)))
    total = b.op("fadd", F32, b.op("fadd", F32, a, c), d)
    b.store(b.param(1), b.mul(at, 4), total, mask=inside)
    same(b.function, [np.arange(count, dtype=np.float32), np.zeros(count, np.float32)], (2, 1, 1))
    for target in (one for one in TARGETS if wave_size == 64 or one != "gfx942"):
        names = mnemonics(b.function, target)
        assert any(one.startswith("buffer_load") for one in names) == size_known, target
        assert any("saveexec" in one or "cmpx" in one for one in names) != size_known, target


def test_narrow_loads_extend_for_nothing(same):
    b = Builder("test", [Param("in", I64, True), OUT], 32)
    thread = b.op("thread_id", I32)
    values = []
    for kind in (I8, I16):
        for op in ("zext", "sext"):
            values.append(
                b.op(op, I32, b.load(kind, b.param(0), b.mul(thread, kind.size_bytes), constant=64 * len(values)))
            )
    both = b.load(I8, b.param(0), thread, constant=33)
    values += [b.op("zext", I32, both), b.op("sext", I32, both)]
    bytes_ = b.load(I8.of(4), b.param(0), b.mul(thread, 4))
    values += [
        b.op("sext", I32, b.extract(bytes_, 2)),
        b.op("zext", I32, b.extract(bytes_, 3)),
        b.op("zext", I32, b.extract(bytes_, 0)),
    ]
    for i, one in enumerate(values):
        b.store(b.param(1), b.mul(thread, 4), one, constant=128 * i)
    same(b.function, [np.random.default_rng(1).integers(0, 256, 512, np.uint8), np.zeros(32 * len(values), np.uint32)])
    names = mnemonics(b.function)
    assert names.count("global_load_i8") == 1
    assert names.count("global_load_i16") == 1


def test_scalar_loads_only_of_what_is_never_written():
    b = Builder("test", [Param("in", I64, True), OUT, Param("n", I32)], 32)
    at = b.mul(b.param(2), 4)
    b.store(
        b.param(1), b.mul(b.op("thread_id", I32), 4), b.add(b.load(I32, b.param(0), at), b.load(I32, b.param(1), at))
    )
    names = mnemonics(b.function)
    assert names.count("global_load_b32") == 1
    # Two runs of arguments share one value.
    assert sum(one.startswith("s_load") for one in names) == 3


@pytest.mark.parametrize("local", [True, False])
def test_a_barrier_shows_what_others_stored(same, local):
    """Each thread reads what the thread opposite wrote, in two rounds."""
    group = 128
    b = Builder("test", [OUT, Param("scratch", I64, True, True)], group)
    b.function.lds_bytes = group * 4
    thread = b.op("thread_id", I32)
    opposite = b.mul(b.op("sub", I32, b.const(group - 1), thread), 4)
    at = b.mul(thread, 4)
    value = b.mul(thread, 3)
    for _ in range(2):
        if local:
            b.lds_store(at, value)
            b.barrier()
            value = b.add(b.lds_load(I32, opposite), 1)
        else:
            b.store(b.param(1), at, value)
            b.barrier()
            value = b.add(b.load(I32, b.param(1), opposite), 1)
        b.barrier()
    b.store(b.param(0), at, value)
    same(b.function, [np.zeros(group, np.uint32), np.zeros(group, np.uint32)])
    names = mnemonics(b.function)
    assert ("buffer_gl0_inv" in names) == (not local)


ATOMICS = [
    *[(name, kind) for name in ("add", "sub", "and", "or", "xor", "min_s", "max_s", "min_u", "max_u", "swap") for kind in (I32, I64)],
    ("fadd", F32), ("fmin", F32), ("fmax", F32), ("swap", F32),
]  # fmt: skip


@pytest.mark.parametrize("masked", [False, True])
def test_atomics(same, masked):
    """First each thread has its own counter, whose old value it returns; then all threads share one counter."""
    b = Builder("test", [Param("cells", I64, True, True), OUT], 64)
    thread = b.op("thread_id", I32)
    mask = [b.op("lt_u", I1, thread, b.const(40))] if masked else []
    for i, (name, kind) in enumerate(ATOMICS):
        amount = b.add(b.mul(thread, 77), 5)
        amount = (
            b.op("to_float_s", F32, amount) if kind == F32 else b.op("zext", I64, amount) if kind == I64 else amount
        )
        old = b.op("atomic", kind, b.param(0), b.mul(thread, 8), amount, *mask, imm=(name, i * 512))
        if mask:
            old = b.op("select", kind, mask[0], old, amount)
        b.store(b.param(1), b.mul(thread, 8), old, constant=i * 512)
    b.op("atomic", I32, b.param(0), b.const(0), thread, *mask, imm=("add", len(ATOMICS) * 512))
    cells = np.random.default_rng(5).integers(0, 1 << 31, len(ATOMICS) * 128 + 2, np.uint32)
    floats = [i for i, (_, kind) in enumerate(ATOMICS) if kind == F32]
    for i in floats:
        cells[i * 128 : (i + 1) * 128] = np.arange(128, dtype=np.float32).view(np.uint32)
    same(b.function, [cells, np.zeros(len(ATOMICS) * 128, np.uint32)])
