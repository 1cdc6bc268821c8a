"""Kernels over more than 2**31 elements on the virtual cores: groups at the far end, and on both sides of places whose
index needs one more bit.

Memory is mapped and not filled: pages that no group accesses never exist. Only some groups of a launch run.
"""

import mmap

import numpy as np
import pytest

from ringup.compiler.compile import compile_graph
from ringup.compiler.graph import dtypes
from ringup.compiler.graph.nodes import buffer
from ringup.compiler.schedule.signature import of_graph
from ringup.compiler.tensor import Tensor
from ringup.silicon.shader import program, workbench
from ringup.silicon.shader.amd.interpreter.engine import Interpreter

# So many elements on each side of a place hold values other than zero.
WINDOW = 1 << 12
MAX_BYTES = 40 << 30
NORESERVE = 0x4000  # MAP_NORESERVE. Source: Linux, asm-generic/mman-common.h


def sparse(count, dtype):
    """Return zeros whose pages exist only once they are accessed."""
    size = count * np.dtype(dtype).itemsize
    assert size <= MAX_BYTES
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE
    return np.frombuffer(mmap.mmap(-1, size, flags=flags), dtype)


class Some:
    """An engine that runs one group of a launch."""

    def __init__(self, place):
        self.place, self.engine = place, Interpreter()
        self.runs = self.engine.runs

    def start(self, dispatch, memory, events, *, strict):
        chosen = dispatch._replace(group_start=self.place, group_count=(1, 1, 1))
        return self.engine.start(chosen, memory, events, strict=strict)


def compiled(tensor, **arrays):
    """Return a tensor's only launch, its code, and its memory: arrays by the names of buffers, with a new one for the
    output.
    """
    graph = compile_graph([tensor.node])
    (launch,) = graph.launches
    assert graph.arena_bytes == 0
    named = [arrays[node.arg.name] for node in of_graph([tensor.node])[1]]
    output = graph.outputs[0]
    made = sparse(int(np.prod(output.shape, dtype=np.int64)), output.dtype.numpy)
    memory = [made if slot.kind == "output" else named[slot.at] for slot in launch.memory]
    return launch, program.load(graph.code_object()), memory, made


def run(launch, code, memory, place):
    """Run one group."""
    workbench.run(
        Some(place), code, launch.binary.name, memory, groups=launch.groups, group_size=(launch.binary.group_size, 1, 1)
    )


def tensor(name, dtype, *shape):
    """Return a tensor in memory without pages, and that memory."""
    return Tensor(np.zeros(1, np.float32))._of(buffer(dtype, shape, name)), sparse(
        int(np.prod(shape, dtype=np.int64)), dtype.numpy
    )


def windows(count):
    """Return the places around which there are values: the far end, and the first places that need more than 31, 32 and
    33 bits.
    """
    return [place for place in (1 << 31, 1 << 32, 1 << 33) if place < count] + [count - WINDOW]


def fill(array, random):
    """Put numbers other than zero around those places, which count elements and bytes."""
    found = []
    for place in windows(array.size) + [one // array.itemsize for one in windows(array.nbytes)]:
        part = slice(max(place - WINDOW, 0), min(place + WINDOW, array.size))
        array[part] = random.integers(1, 7, part.stop - part.start)
        found.append(part)
    return found


def check(made, expected, parts):
    """Assert that everything written in these parts is right; return how much that was."""
    count = 0
    for part in parts:
        got, right = made[part], expected(part)
        written = got != 0
        np.testing.assert_array_equal(got[written], right[written])
        count += int(written.sum())
    return count


def places_of(launch, share):
    """Return the group at a share (0 to 1) of a launch along its longest axis, and its neighbours. On other axes it is
    the last group.
    """
    groups = list(launch.groups)
    axis = groups.index(max(groups))
    at = min(int(share * groups[axis]), groups[axis] - 1)
    found = []
    for one in range(max(at - 1, 0), min(at + 2, groups[axis])):
        place = [count - 1 for count in groups]
        place[axis] = one
        found.append(tuple(place))
    return found


@pytest.mark.parametrize(
    ("dtype", "count"), [(dtypes.int8, (1 << 32) + 3 * WINDOW + 16), (dtypes.float32, (1 << 31) + 3 * WINDOW + 1)]
)
def test_elementwise(dtype, count):
    x, data = tensor("x", dtype, count)
    parts = fill(data, np.random.default_rng(1))
    launch, code, memory, made = compiled(x * 2 + 1, x=data)
    for part in parts:
        for place in places_of(launch, part.start / count) + places_of(launch, part.stop / count):
            run(launch, code, memory, place)
    assert check(made, lambda part: data[part] * 2 + 1, parts) > 1000
    assert made[-1] == data[-1] * 2 + 1
    assert not made[:WINDOW].any()


@pytest.mark.parametrize("how", ["sum", "max", "softmax"])
@pytest.mark.parametrize(
    ("dtype", "rows", "columns"), [(dtypes.float16, (1 << 20) + 7, 4096), (dtypes.float32, (1 << 26) + 5, 40)]
)
@pytest.mark.sweep(3)
def test_rows(how, dtype, rows, columns):
    x, data = tensor("x", dtype, rows, columns)
    table = data.reshape(rows, columns)
    fill(data, np.random.default_rng(2))
    launch, code, memory, made = compiled(x.softmax(1) if how == "softmax" else getattr(x, how)(axis=1), x=data)
    edges = [place // columns for place in windows(data.size)] + [rows - 1]
    for edge in edges:
        for place in places_of(launch, edge / rows):
            run(launch, code, memory, place)
    near = sorted({row for edge in edges for row in range(max(edge - 4, 0), min(edge + 5, rows))})
    result = made.reshape(rows, -1)[near].astype(np.float64)
    part = table[near].astype(np.float64)
    powers = np.exp(part - part.max(1, keepdims=True))
    wanted = {
        "sum": part.sum(1, keepdims=True),
        "max": part.max(1, keepdims=True),
        "softmax": powers / powers.sum(1, keepdims=True),
    }[how]
    written = (result != 0).all(1)
    np.testing.assert_allclose(result[written], wanted[written], rtol=2e-3, atol=1e-7)
    assert written[-1]
    assert written.sum() > len(edges)


@pytest.mark.parametrize(("dtype", "shape"), [(dtypes.float16, ((1 << 27) + 48, 32, 40)), (dtypes.float32, ((1 << 27) + 5, 17, 20)),
                                              (dtypes.float32, (24, 72, (1 << 25) + 3)), (dtypes.int8, ((1 << 26) + 9, 48, 33))])  # fmt: skip
@pytest.mark.sweep(2)
def test_contractions(dtype, shape):
    rows, deep, columns = shape
    a, left = tensor("a", dtype, rows, deep)
    b, right = tensor("b", dtype, deep, columns)
    left, right = left.reshape(rows, deep), right.reshape(deep, columns)
    random = np.random.default_rng(3)
    tall = rows > columns
    edges = [one // (deep if tall else columns) for one in windows(left.size if tall else rows * columns)]
    near = sorted(
        {
            one
            for edge in (*edges, max(rows, columns) - 1)
            for one in range(max(edge - 200, 0), min(edge + 200, max(rows, columns)))
        }
    )
    if tall:
        left[near], right[:] = random.integers(1, 4, (len(near), deep)), random.integers(1, 4, right.shape)
    else:
        right[:, near], left[:] = random.integers(1, 4, (deep, len(near))), random.integers(1, 4, left.shape)
    product = a.cast("int32") @ b.cast("int32") if dtype is dtypes.int8 else a @ b
    launch, code, memory, made = compiled(product, a=left.reshape(-1), b=right.reshape(-1))
    made = made.reshape(rows, columns)
    for edge in sorted({*edges, max(rows, columns) - 1}):
        for place in places_of(launch, edge / max(rows, columns))[1:]:
            run(launch, code, memory, place)
    got = made[near] if tall else made[:, near]
    wanted = left[near].astype(np.int64) @ right if tall else left.astype(np.int64) @ right[:, near]
    written = got != 0
    np.testing.assert_array_equal(got[written], wanted[written].astype(got.dtype))
    assert written[-1, -1]
    assert written.sum() > 64 * len(edges)


def test_gathers():
    rows, columns = (1 << 25) + 3, 130
    table, data = tensor("table", dtypes.int8, rows, columns)
    values = data.reshape(rows, columns)
    # negative places count from the end
    places = np.array([rows - 1, 0, (1 << 31) // columns, (1 << 32) // columns, rows, -2, 1 << 40, -rows - 1])
    inside = [one for one in places if -rows <= one < rows]
    values[inside] = np.random.default_rng(4).integers(1, 100, (len(inside), columns))
    asked = Tensor(places)
    launch, code, memory, made = compiled(table.take(asked, 0), **{"table": data, asked.node.arg.name: places})
    for x in range(launch.groups[0]):
        for y in range(launch.groups[1]):
            run(launch, code, memory, (x, y, 0))
    wanted = np.array([values[one] if -rows <= one < rows else np.zeros(columns, np.int8) for one in places])
    np.testing.assert_array_equal(made.reshape(len(places), columns), wanted)
