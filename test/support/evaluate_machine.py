"""Machine IR evaluated in NumPy, all threads at once. It is written from the comments of `compiler/machine/ir.py`, and
is the reference of the back ends.

Values are arrays over (threads,) or (threads, elements). Threads of groups are padded to whole waves; the padding never
runs. All threads do an operation before the next begins, so a barrier has no effect. A value that is marked uniform but
varies raises an error.
"""

from __future__ import annotations

import ctypes
import math
from fractions import Fraction

import ml_dtypes
import numpy as np

from ringup.compiler.machine.ir import MASKED, If, Loop, Value

BUFFERS, BUFFER_STEP = 0x7F00_0000_0000, 1 << 36
DTYPES = {
    "i1": np.bool_, "i8": np.uint8, "i16": np.uint16, "i32": np.uint32, "i64": np.uint64,
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip
SIGNED = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
_fma = ctypes.CDLL("libm.so.6").fma
_fma.restype, _fma.argtypes = ctypes.c_double, [ctypes.c_double] * 3


def signed(a):
    """Read unsigned integers as two's complement."""
    return a.view(SIGNED[a.dtype.itemsize * 8])


def fma(a, b, c):
    """Return a * b + c, rounded once."""
    if a.dtype == np.float64:
        return np.array([_fma(*one) for one in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)])
    x, y, z = (one.astype(np.float64) for one in (a, b, c))
    product = x * y  # exact
    total = product + z
    part = total - product
    error = (product - (total - part)) + (z - part)  # what the sum lost (TwoSum)
    bits = total.view(np.int64).copy()
    inexact = (error != 0) & np.isfinite(total)
    toward = np.where((error > 0) == (total > 0), 1, -1)
    # Round to odd: an even neighbour moves one place toward the exact sum, an odd one stays.
    bits = np.where(inexact & (bits & 1 == 0), np.where(toward > 0, bits + 1, bits - 1), bits)
    return bits.view(np.float64).astype(a.dtype)


def to_int(a, bits, is_signed):
    """Cut off the fraction, saturate, and turn NaN into 0."""
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    out = []
    for one in a.astype(np.float64).tolist():
        if one != one:
            out.append(0)
        elif math.isinf(one):
            out.append(high if one > 0 else low)
        else:
            out.append(min(max(int(one), low), high))
    return np.array([one & (1 << bits) - 1 for one in out], DTYPES[f"i{bits}"])


def to_bf16(a):
    """Round to bfloat16, to nearest even, by exact fractions."""
    out = []
    for one in a.astype(np.float64).tolist():
        sign = 0x8000 if math.copysign(1, one) < 0 else 0
        size = abs(one)
        if size != size:
            out.append(sign | 0x7FC0)
            continue
        if math.isinf(size):
            out.append(sign | 0x7F80)
            continue
        exponent = max(math.frexp(size)[1] - 1, -126) if size else -126
        step = Fraction(2) ** (exponent - 7)
        count = Fraction(size) / step
        whole = count.numerator // count.denominator
        rest = count - whole
        whole += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1)
        value = float(whole * step) if whole * step < Fraction(2) ** 128 else math.inf
        bits = int(np.float32(value).view(np.uint32)) >> 16
        out.append(sign | bits)
    return np.array(out, np.uint16).view(ml_dtypes.bfloat16)


def divide(a, b, is_signed, remainder):
    """Divide whole numbers toward zero. A division by zero gives a value that the caller must ignore."""
    if is_signed:
        x, y = signed(a).astype(object), signed(b).astype(object)
    else:
        x, y = a.astype(object), b.astype(object)
    out = []
    for p, q in zip(x, y, strict=True):
        if q == 0:
            out.append(0)
            continue
        quotient = abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1)
        out.append(p - quotient * q if remainder else quotient)
    return np.array([int(one) & (1 << a.dtype.itemsize * 8) - 1 for one in out], a.dtype)


def root(a):
    """Return correctly rounded square roots. NumPy's are; f16's is computed in f64."""
    return np.sqrt(a.astype(np.float64)).astype(np.float16) if a.dtype == np.float16 else np.sqrt(a)


def scaled(a, i):
    """Return a * 2**i, rounded once."""
    i = np.clip(signed(i).astype(np.int64), -5000, 5000)
    if a.dtype == np.float64:
        return np.array([_ldexp(x, int(n)) for x, n in zip(a.tolist(), i.tolist(), strict=True)])
    return np.ldexp(a.astype(np.float64), np.clip(i, -500, 500).astype(np.int32)).astype(a.dtype)


def _ldexp(x, n):
    try:
        return math.ldexp(x, n)
    except OverflowError:
        return math.copysign(math.inf, x)


def _through_double(f):
    return lambda a: f(a.astype(np.float64)).astype(a.dtype)


def _wide(a, b, is_signed):
    x, y = (signed(a), signed(b)) if is_signed else (a, b)
    return ((x.astype(np.int64) * y.astype(np.int64)) if is_signed else x.astype(np.uint64) * y.astype(np.uint64)).view(
        np.uint64
    )


UNARY = {
    "not": lambda a: ~a, "fneg": lambda a: -a, "fabs": np.abs, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint,
    "rcp": _through_double(lambda a: 1 / a), "rsq": _through_double(lambda a: 1 / np.sqrt(a)), "sqrt": _through_double(np.sqrt),
    "exp2": _through_double(np.exp2), "log2": _through_double(np.log2),
    "sin_turns": _through_double(lambda a: np.sin(2 * np.pi * (a - np.rint(a)))),
    "fsqrt": root, "frexp_mantissa": lambda a: np.frexp(a)[0].astype(a.dtype),
    "frexp_exponent": lambda a: np.where(np.isfinite(a), np.frexp(a)[1], 0).astype(np.int32).view(np.uint32),
    "bit_count": lambda a: np.array([int(one).bit_count() for one in a], np.uint32),
    "leading_zeros": lambda a: np.array([32 - int(one).bit_length() for one in a], np.uint32),
}  # fmt: skip
BINARY = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "and": lambda a, b: a & b, "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b, "fadd": lambda a, b: a + b, "fsub": lambda a, b: a - b, "fmul": lambda a, b: a * b, "fmin": np.fmin,
    "fmax": np.fmax,
    "mul_hi_u": lambda a, b: (_wide(a, b, False) >> np.uint64(32)).astype(np.uint32),
    "mul_hi_s": lambda a, b: (_wide(a, b, True) >> np.uint64(32)).astype(np.uint32),
    "shl": lambda a, n: a << n.astype(a.dtype), "shr_u": lambda a, n: a >> n.astype(a.dtype),
    "shr_s": lambda a, n: (signed(a) >> n.astype(a.dtype).view(SIGNED[a.dtype.itemsize * 8])).view(a.dtype),
    "min_u": np.minimum, "max_u": np.maximum,
    "min_s": lambda a, b: np.minimum(signed(a), signed(b)).view(a.dtype), "max_s": lambda a, b: np.maximum(signed(a), signed(b)).view(a.dtype),
    "div_u": lambda a, b: divide(a, b, False, False), "div_s": lambda a, b: divide(a, b, True, False),
    "rem_u": lambda a, b: divide(a, b, False, True), "rem_s": lambda a, b: divide(a, b, True, True),
    "ldexp": scaled, "div": lambda a, b: a / b,
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt_u": lambda a, b: a < b, "le_u": lambda a, b: a <= b,
    "lt_s": lambda a, b: signed(a) < signed(b), "le_s": lambda a, b: signed(a) <= signed(b),
    "feq": lambda a, b: a == b, "fne": lambda a, b: a != b, "flt": lambda a, b: a < b, "fle": lambda a, b: a <= b,
}  # fmt: skip
TERNARY = {
    "mad": lambda a, b, c: a * b + c, "mad_wide_u": lambda a, b, c: _wide(a, b, False) + c, "fma": fma,
    "select": lambda a, b, c: np.where(a.reshape(a.shape + (1,) * (b.ndim - 1)), b, c),
}  # fmt: skip


class Machine:
    """One launch. `groups` along x, y, z; `arguments` are arrays (changed in place) and numbers. `layout` of matrices,
    or a function that returns it for a kind.
    """

    def __init__(self, function, arguments, groups, layout=None):
        self.function, self.layout = function, layout
        wave = function.wave_size
        self.padded = -(-function.group_size // wave) * wave
        self.group_count = int(np.prod(groups))
        self.threads = self.padded * self.group_count
        number = np.arange(self.threads)
        self.thread = number % self.padded
        self.group = number // self.padded
        self.running = self.thread < function.group_size
        x, y, _ = groups
        self.group_ids = [self.group % x, self.group // x % y, self.group // (x * y)]
        self.buffers = {}
        self.arguments = []
        for i, one in enumerate(arguments):
            if isinstance(one, np.ndarray):
                self.buffers[BUFFERS - i * BUFFER_STEP] = one.reshape(-1).view(np.uint8)
                one = BUFFERS - i * BUFFER_STEP
            self.arguments.append(one)
        self.lds = np.zeros((self.group_count, max(function.lds_bytes, 1)), np.uint8)
        self.values = {}

    def run(self):
        """Run the kernel."""
        with np.errstate(all="ignore"):
            self._region(self.function.body, self.running)

    def _region(self, region, active):
        for item in region.items:
            if isinstance(item, Value):
                self.values[item] = made = self._value(item, active)
                if item.uniform and made is not None:
                    self._check_uniform(item, made, active)
            elif isinstance(item, If):
                inside = active & self._get(item.condition)
                if inside.any():
                    self._region(item.body, inside)
            else:
                self._loop(item, active)

    def _loop(self, loop: Loop, active):
        start, stop = (signed(self._get(one)).astype(np.int64) for one in (loop.start, loop.stop))
        carried = [self._get(one).copy() for one in loop.initial]
        index = start.copy()
        inside = active & (index < stop)
        assert not loop.at_least_once or (inside == active).all(), "a loop that promised to run did not"
        while inside.any():
            self.values[loop.index] = index.astype(np.uint32)
            for one, now in zip(loop.carried, carried, strict=True):
                self.values[one] = now
            self._region(loop.body, inside)
            following = [self._get(one) for one in loop.following]
            carried = [
                np.where(inside.reshape(inside.shape + (1,) * (old.ndim - 1)), after, old)
                for old, after in zip(carried, following, strict=True)
            ]
            index = index + loop.step
            inside = inside & (index < stop)
        for one, now in zip(loop.results, carried, strict=True):
            self.values[one] = now

    def _check_uniform(self, value, made, active):
        wave = self.function.wave_size
        flat = np.ascontiguousarray(made).view(np.uint8).reshape(self.threads // wave, wave, -1)
        for lanes, one in zip(active.reshape(-1, wave), flat, strict=True):
            held = one[lanes]
            assert not len(held) or (held == held[0]).all(), f"{value.op} {value!r} claims to be uniform"

    def _get(self, value):
        if value.op == "const" and value not in self.values:
            return self._value(value, None)
        return self.values[value]

    def _value(self, v, active):
        args = [self._get(one) for one in v.args]
        op, type_ = v.op, v.type
        dtype = DTYPES.get(type_.element)
        if op in UNARY:
            return UNARY[op](*args)
        if op in BINARY:
            return BINARY[op](*args)
        if op in TERNARY:
            return TERNARY[op](*args)
        if op in MASKED:
            return self._memory(v, args, active)
        return getattr(self, f"_{op}")(v, args, dtype)

    def _full(self, number, dtype):
        return np.full(self.threads, number, dtype)

    def _const(self, v, args, dtype):
        return to_bf16(self._full(v.imm, np.float64)) if v.type.element == "bf16" else self._full(v.imm, dtype)

    def _param(self, v, args, dtype):
        number = self.arguments[v.imm]
        return self._full(number if v.type.is_float else int(number) & (1 << v.type.bits) - 1, dtype)

    def _group_id(self, v, args, dtype):
        return self.group_ids[v.imm].astype(dtype)

    def _thread_id(self, v, args, dtype):
        return self.thread.astype(dtype)

    def _wave_id(self, v, args, dtype):
        return (self.thread // self.function.wave_size).astype(dtype)

    def _lane_id(self, v, args, dtype):
        return (self.thread % self.function.wave_size).astype(dtype)

    def _zext(self, v, args, dtype):
        return args[0].astype(dtype)

    _truncate = _zext

    def _sext(self, v, args, dtype):
        return signed(args[0]).astype(SIGNED[v.type.bits]).view(dtype)

    def _to_float_u(self, v, args, dtype):
        return args[0].astype(dtype)

    def _to_float_s(self, v, args, dtype):
        return signed(args[0]).astype(dtype)

    def _to_int_s(self, v, args, dtype):
        return to_int(args[0], v.type.bits, True)

    def _to_int_u(self, v, args, dtype):
        return to_int(args[0], v.type.bits, False)

    def _fconvert(self, v, args, dtype):
        return to_bf16(args[0]) if v.type.element == "bf16" else args[0].astype(np.float64).astype(dtype)

    def _bitcast(self, v, args, dtype):
        flat = np.ascontiguousarray(args[0]).reshape(self.threads, -1).view(np.uint8)
        made = flat.view(dtype)
        return made[:, 0].copy() if v.type.count == 1 else made.copy()

    def _vector(self, v, args, dtype):
        return np.stack(args, axis=1)

    def _extract(self, v, args, dtype):
        return args[0][:, v.imm].copy()

    def _dot2(self, v, args, dtype):
        a, b, c = args
        products = a.astype(np.float64) * b.astype(np.float64)
        return (products.sum(axis=1) + c).astype(np.float32)

    def _dot4(self, args, kind):
        a, b = (np.ascontiguousarray(one).reshape(-1, 1).view(kind).astype(np.int64) for one in args[:2])
        return ((a * b).sum(axis=1) + args[2].astype(np.int64)).astype(np.uint32)

    def _dot4_s(self, v, args, dtype):
        return self._dot4(args, np.int8)

    def _dot4_u(self, v, args, dtype):
        return self._dot4(args, np.uint8)

    def _packed(self, v, args, dtype):
        columns = [[one[:, i].copy() for one in args] for i in range(v.type.count)]
        table = TERNARY if v.imm == "fma" else BINARY
        return np.stack([table[v.imm](*one) for one in columns], axis=1)

    def _by_wave(self, a):
        return a.reshape(-1, self.function.wave_size, *a.shape[1:])

    def _shuffle_xor(self, v, args, dtype):
        lanes = np.arange(self.function.wave_size) ^ v.imm
        return self._by_wave(args[0])[:, lanes].reshape(args[0].shape)

    def _shuffle_up(self, v, args, dtype):
        lanes = np.arange(self.function.wave_size)
        given = lanes % 16 >= v.imm
        values = self._by_wave(args[0])[:, np.where(given, lanes - v.imm, 0)]
        return np.where(given.reshape(-1, *[1] * (values.ndim - 2)), values, values.dtype.type(0)).reshape(
            args[0].shape
        )

    def _shuffle(self, v, args, dtype):
        lanes = self._by_wave(args[1] % self.function.wave_size)
        return np.stack([one[at] for one, at in zip(self._by_wave(args[0]), lanes, strict=True)]).reshape(args[0].shape)

    def _read_lane(self, v, args, dtype):
        waves = self._by_wave(args[0])
        return np.broadcast_to(waves[:, v.imm : v.imm + 1], waves.shape).reshape(args[0].shape).copy()

    def _first_lane(self, v, args, dtype):
        return args[0]

    def _barrier(self, v, args, dtype):
        return None

    def _matrix(self, v, args, dtype):
        layout = self.layout(v.imm) if callable(self.layout) else self.layout
        floats = v.imm[0] != "i" and v.imm[0] != "u"
        a, b, c = (self._by_wave(one if floats or i == 2 else self._bytes(one, v.imm)) for i, one in enumerate(args))
        out = np.empty_like(c)
        wide = np.float64 if floats else np.int64
        depth, lanes = int(v.imm.partition("x")[2] or 16), self.function.wave_size
        for wave in range(len(a)):
            left, right, sums = np.zeros((16, depth), wide), np.zeros((depth, 16), wide), np.zeros((16, 16), wide)
            for lane in range(lanes):
                for i in range(layout.a_count):
                    left[layout.a(lane, i)] = a[wave, lane, i]
                for i in range(layout.b_count):
                    right[layout.b(lane, i)] = b[wave, lane, i]
                for i in range(layout.c_count):
                    sums[layout.c(lane, i)] = (
                        c[wave, lane, i] if wide is np.float64 else np.int64(c[wave, lane, i].view(np.int32))
                    )
            sums += left @ right
            for lane in range(lanes):
                for i in range(layout.c_count):
                    out[wave, lane, i] = (
                        sums[layout.c(lane, i)].astype(np.int64 if wide is np.int64 else c.dtype).astype(out.dtype)
                    )
        return out.reshape(args[2].shape)

    @staticmethod
    def _bytes(a, kind):
        return np.ascontiguousarray(a).view(np.int8 if kind[0] == "i" else np.uint8)

    # Memory.

    def _memory(self, v, args, active):
        at = MASKED[v.op]
        inside = active & args[at] if len(args) > at else active
        local = v.op.startswith("lds")
        constant = v.imm[1] if v.op == "atomic" else v.imm or 0
        if local:
            address = args[0].astype(np.int64) + constant
        else:
            offset = args[1].astype(np.uint64) if args[1].dtype == np.uint32 else args[1]
            address = args[0] + offset + np.uint64(constant & (1 << 64) - 1)
        if v.op in ("load", "lds_load"):
            return self._read(v, address, inside, local)
        value = args[1] if local else args[2]
        if v.op == "atomic":
            return self._update(v.imm[0], address, value, inside)
        data = np.ascontiguousarray(value).reshape(self.threads, -1).view(np.uint8)
        for lane in np.flatnonzero(inside):
            self._bytes_at(lane, int(address[lane]), data.shape[1], local)[:] = data[lane]
        return None

    def _bytes_at(self, lane, address, size, local):
        if local:
            assert 0 <= address <= self.function.lds_bytes - size, f"thread {lane}: LDS at {address}"
            return self.lds[self.group[lane]][address : address + size]
        for first, data in self.buffers.items():
            if first <= address and address + size <= first + len(data):
                return data[address - first : address - first + size]
        raise AssertionError(f"thread {lane}: {size} bytes at {address:#x} are in no buffer")

    def _read(self, v, address, inside, local):
        size = v.type.size_bytes
        out = np.zeros((self.threads, size), np.uint8)
        for lane in np.flatnonzero(inside):
            out[lane] = self._bytes_at(lane, int(address[lane]), size, local)
        made = out.view(DTYPES[v.type.element])
        return made[:, 0].copy() if v.type.count == 1 else made

    def _update(self, name, address, value, inside):
        old = np.zeros_like(value)
        for lane in np.flatnonzero(inside):
            place = self._bytes_at(lane, int(address[lane]), value.dtype.itemsize, False).view(value.dtype)
            old[lane] = place[0]
            new = value[lane : lane + 1]
            place[:] = new if name == "swap" else BINARY[name](place.copy(), new)
        return old


def evaluate(function, arguments, groups=(1, 1, 1), layout=None):
    """Run a kernel. Arrays among the arguments receive what it stored."""
    Machine(function, arguments, groups, layout).run()
