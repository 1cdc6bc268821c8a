"""Kernels of a library that AMD's compiler made run on the virtual navi31: bitsandbytes' quantisers, products and
optimisers, compared with NumPy.

`ringup headers fetch bitsandbytes` fetches the library. What the kernels compute is from bitsandbytes' documentation
and from Dettmers et al. ("8-bit Optimizers via Block-wise Quantization", "QLoRA"). The test loads them by name from the
unchanged library, with the arguments that their metadata lists and with the hidden ones, in strict mode.
"""

import numpy as np
import pytest

import ringup
from ringup.queues.amd.objects import fat_binary
from ringup.silicon.shader import program, workbench
from ringup.silicon.shader.amd.interpreter.engine import Interpreter
from ringup.silicon.shader.amd.translator.engine import Translator

F32, F16 = np.float32, np.float16
MANGLED = {"float": "f", "half": "6__half", "bfloat16": "14__hip_bfloat16"}
NF4 = np.array(
    [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0,
     0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941,
     0.7229568362236023, 1.0], F32,
)  # fmt: skip
FP4 = np.array([0, 0.005208333333, 0.66666667, 1, 0.33333333, 0.5, 0.16666667, 0.25], F32)
FP4 = np.concatenate([FP4, -FP4])
CODE = np.sort(np.concatenate([[-1, 0, 1], np.random.default_rng(8).uniform(-1, 1, 253)])).astype(F32)
ABOVE = np.sort(np.concatenate([[0, 1], np.random.default_rng(9).uniform(0, 1, 254)])).astype(F32)
TABLES = {0: CODE, 1: FP4, 2: NF4}


def bfloat16(values):
    """Return the bits of values rounded to bfloat16."""
    bits = np.asarray(values, F32).view(np.uint32)
    return (bits + 0x7FFF + (bits >> 16 & 1) >> 16).astype(np.uint16)


def packed(values, kind):
    return {"float": F32, "half": F16}[kind](values) if kind != "bfloat16" else bfloat16(values)


def plain(values):
    return (values.astype(np.uint32) << 16).view(F32) if values.dtype == np.uint16 else values.astype(F32)


@pytest.fixture(scope="module")
def library(headers):
    """The library. A missing library fails the test; it never skips it."""
    return (headers("bitsandbytes") / "bitsandbytes" / "libbitsandbytes_rocm715.so").read_bytes()


class OnCard:
    """Runs kernels of the library on a card. After a run, the given arrays hold what the kernel stored."""

    def __init__(self, card, library):
        self.card, self.library, self.programs = card, library, {}

    def __call__(self, kernel, arguments, groups, size):
        name = self.name(kernel)
        placed = [self.put(one) if isinstance(one, np.ndarray) else one for one in arguments]
        stream = self.card.compute.stream()
        stream.dispatch(self.programs[name][name], groups, size, placed)
        self.card.compute.submit(stream).wait(10)
        for one, buffer in zip(arguments, placed, strict=True):
            if isinstance(one, np.ndarray):
                found = self.card.copy.download(buffer)[: one.nbytes]
                one.reshape(-1).view(np.uint8)[:] = np.frombuffer(found, np.uint8)
                buffer.free()

    def name(self, kernel):
        """Return the full name of the kernel whose name contains `part`, with its program on the card."""
        for name in (name for code in self.programs.values() for name in code if kernel in name):
            self.programs[name] = next(code for code in self.programs.values() if name in code)
            return name
        code = self.card.load(self.library, "bitsandbytes", kernel=kernel)
        name = fat_binary.match(code, kernel, "bitsandbytes")
        self.programs[name] = code
        return name

    def put(self, array):
        buffer = self.card.alloc(array.nbytes)
        self.card.copy.upload(buffer, array.tobytes()).wait()
        return buffer


@pytest.fixture(scope="module")
def run(library):
    with ringup.open("virtual:navi31", transport={"engine": Translator()}) as card:
        yield OnCard(card, library)


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize(("kind", "block", "of_item"), [("float", 64, 2), ("half", 512, 2), ("bfloat16", 4096, 4)])
@pytest.mark.sweep(4)
def test_what_is_quantised_by_blocks_is_the_nearest_and_comes_back(run, kind, block, of_item, table):
    # The last block is not full.
    count, random = 4200, np.random.default_rng(table)
    blocks = -(-count // block)
    given = packed(random.standard_normal(count), kind)
    greatest, out = np.zeros(blocks + 64, F32), np.zeros(count if table == 0 else count // 2, np.uint8)
    code = CODE if table == 0 else 0
    kernel = f"kQuantizeBlockwiseI{MANGLED[kind]}Li{block}ELi{of_item}ELi0ELi{table}E"
    run(kernel, [code, given, greatest, out, 0, 0, count], blocks, block // of_item)

    numbers = plain(given)
    of_block = np.repeat(np.arange(blocks), block)[:count]
    most = np.array([np.abs(numbers[of_block == one]).max() for one in range(blocks)], F32)
    assert np.array_equal(greatest[:blocks], most)
    chosen = out if table == 0 else np.stack([out >> 4, out & 15], 1).reshape(-1)
    scaled = numbers * (1 / most)[of_block]
    distance = np.abs(TABLES[table][chosen] - scaled)
    # The thresholds between values are rounded.
    assert (distance <= np.abs(TABLES[table][:, None] - scaled).min(0) + 2**-24).all()

    back = np.zeros(count, given.dtype)
    tile = 512 if table == 0 else 1024
    run(f"kDequantizeBlockwiseI{MANGLED[kind]}Li512ELi64ELi8ELi{table}E",
        [code, out, greatest, back, block if table == 0 else block // 2, count], -(-count // tile), 64)  # fmt: skip
    assert np.array_equal(back, packed(TABLES[table][chosen] * most[of_block], kind))


@pytest.mark.parametrize(("kind", "rows", "most"), [("float", 1, 1e-6), ("half", 8, 1e-3), ("bfloat16", 3, 8e-3)])
def test_products_with_weights_of_four_bits(run, kind, rows, most):
    columns, depth, block, random = 24, 512, 64, np.random.default_rng(rows)
    given, bias = packed(random.standard_normal((rows, depth)), kind), packed(random.standard_normal(columns), kind)
    chosen = random.integers(0, 16, (columns, depth))
    weights = (chosen[:, 0::2] << 4 | chosen[:, 1::2]).astype(np.uint8)
    greatest = random.uniform(0.5, 2, columns * depth // block).astype(F32)
    out = np.zeros((rows, columns), given.dtype)
    run(f"gemm_4bit_simtI{MANGLED[kind]}Li{rows}E",
        [given, weights, greatest, 0, 0, 0, out, bias, rows, columns, depth, block, 2], columns // 4, 128)  # fmt: skip
    exact = NF4[chosen].astype(float) * np.repeat(greatest, block).reshape(columns, depth)
    wanted = plain(given).astype(float) @ exact.T + plain(bias)
    assert np.abs(plain(out) - wanted).max() < most * np.abs(wanted).max()


@pytest.mark.parametrize(("kind", "most"), [("float", 2e-5), ("bfloat16", 2**-7)])
def test_a_step_of_adam(run, kind, most):
    count, random = 5000, np.random.default_rng(3)
    gradient, weights = (packed(random.standard_normal(count), kind) for _ in range(2))
    first, second = F32(random.standard_normal(count) * 0.1), F32(random.standard_normal(count) ** 2 * 0.1)
    b1, b2, eps, decay, step, rate = 0.9, 0.999, 1e-8, 0.01, 3, 0.01
    g, w = plain(gradient).astype(float), plain(weights).astype(float)
    m, v = first * b1 + (1 - b1) * g, second * b2 + (1 - b2) * g * g
    root = (1 - b2**step) ** 0.5
    w = w * (1 - rate * decay) - rate * root / (1 - b1**step) * m / (np.sqrt(v) + eps * root)
    run(f"kOptimizer32bit2StateI{MANGLED[kind]}Li0E",
        [gradient, weights, first, second, np.zeros(1, F32), 0.0, 0.0, b1, b2, 0.0, 0.0, eps, decay, step, rate, 1.0, 0, count],
        -(-count // 4096), 1024)  # fmt: skip
    assert np.abs(first - m).max() < 1e-6
    assert np.abs(second - v).max() < 1e-6
    assert np.abs(plain(weights) - w).max() < most * np.abs(w).max()


def adam_8bit(run, count=600):
    """Run a step of Adam whose two states are bytes, in blocks of 256. Return its results and the expected ones."""
    random = np.random.default_rng(4)
    blocks = -(-count // 256)
    gradient, weights = random.standard_normal(count).astype(F32), random.standard_normal(count).astype(F32)
    states = [random.integers(0, 256, count).astype(np.uint8) for _ in range(2)]
    greatest = [random.uniform(0.5, 2, blocks).astype(F32) for _ in range(2)]
    b1, b2, eps, step, rate = 0.9, 0.999, 1e-8, 3, 0.01
    of_block = np.arange(count) // 256
    m = CODE[states[0]] * greatest[0][of_block] * b1 + (1 - b1) * gradient.astype(float)
    v = ABOVE[states[1]] * greatest[1][of_block] * b2 + (1 - b2) * gradient.astype(float) ** 2
    root = (1 - b2**step) ** 0.5
    w = weights - rate * root / (1 - b1**step) * m / (np.sqrt(v) + eps * root)
    run("kOptimizerStatic8bit2StateBlockwiseIfLi0ELi256ELi1E",
        [weights, gradient, *states, b1, b2, 0.0, 0.0, eps, step, rate, CODE, ABOVE, *greatest, 0.0, 1.0, 0, count], blocks, 256)  # fmt: skip
    return weights, states, greatest, w, (m, v), of_block


def test_a_step_of_adam_with_states_of_eight_bits(run):
    """This kernel has scratch memory, and computes store addresses at run time."""
    weights, states, greatest, wanted, exact, of_block = adam_8bit(run)
    assert np.abs(weights - wanted).max() < 1e-6
    for table, state, most, number in zip((CODE, ABOVE), states, greatest, exact, strict=True):
        assert np.allclose(most, [np.abs(number[of_block == one]).max() for one in range(len(most))], rtol=1e-6)
        distance = np.abs(table[state] - number / most[of_block])
        assert (distance <= np.abs(table[:, None] - number / most[of_block]).min(0) + 1e-6).mean() > 0.99


@pytest.mark.parametrize("sparse", [0, 1])
def test_rows_are_quantised_to_eight_bits(run, sparse):
    """With a threshold, values above it are left out of the row's maximum and of the result."""
    rows, columns, random = 4, 1300, np.random.default_rng(5)
    given, out, greatest = (
        random.standard_normal((rows, columns)).astype(F16),
        np.zeros((rows, columns), np.int8),
        np.zeros(rows, F32),
    )
    given[2, 5] = 9
    run(f"kInt8VectorQuantI6__halfLi1024ELi{sparse}E", [given, out, greatest, 6.0 * sparse, rows, columns], rows, 1024)
    numbers = given.astype(F32)
    left = (np.abs(numbers) < 6) | (not sparse)
    most = np.abs(numbers * left).max(1)
    assert np.array_equal(greatest, most)
    assert np.array_equal(out, np.rint(numbers * (127 / most)[:, None]) * left)


def test_both_engines_leave_the_same_bits(library):
    code = program.load(
        bytes(fat_binary.choose(library, "bitsandbytes", "gfx1100", "kOptimizerStatic8bit2StateBlockwiseIfLi0E").data)
    )
    left = []
    for engine in (Interpreter(), Translator()):

        def run(kernel, arguments, groups, size, engine=engine):
            name = fat_binary.match(code.kernels, kernel, "bitsandbytes")
            workbench.run(engine, code, name, arguments, groups=(groups, 1, 1), group_size=(size, 1, 1))

        weights, states, greatest, *_ = adam_8bit(run)
        left.append((weights.tobytes(), *(one.tobytes() for one in (*states, *greatest))))
    assert left[0] == left[1]
