"""The translator's memory compared with the interpreter's: the same program leaves the same bytes, whatever the lanes
do.
"""

import itertools

import numpy as np
import pytest

from ringup.autogen import isa
from ringup.silicon.shader.amd.decoding.memory_effects import UNITS
from ringup.silicon.shader.amd.interpreter.engine import Interpreter
from ringup.silicon.shader.amd.translator.engine import Translator
from ringup.silicon.shader.amd.writer.wave import RULES

IN, OUT, WORK, WORK2 = 0x20_0000, 0x40_0000, 0x60_0000, 0x61_0000
WORK_BYTES = 0x2000


# This engine keeps its translations. Programs that differ only in the content of registers are translated once.
TRANSLATOR = Translator()


def pattern(seed, count):
    return np.random.default_rng(seed).integers(0, 1 << 32, count, np.uint32)


class Family:
    """A program of many instructions, each with its own lane addresses, EXEC and place for its result."""

    def __init__(self, lanes, seed):
        self.lanes, self.random = lanes, np.random.default_rng(seed)
        self.text, self.inputs, self.outputs = [], [], 0
        # The place where each lane's v[20:23] are stored.
        self.fetch(1, 16 * np.arange(lanes))
        self.text.append("s_waitcnt vmcnt(0)")
        self.constant = self.address(pattern(99, 4 * lanes))

    def address(self, values):
        """Put values into memory; return the text that makes s[20:21] their address."""
        at = 4 * sum(map(len, self.inputs))
        self.inputs.append(np.asarray(values, np.uint32))
        return f"s_add_u32 s20, s0, {at}", "s_addc_u32 s21, s1, 0"

    def fetch(self, register, values):
        """Load one value a lane into a VGPR; all lanes are active."""
        self.text += [*self.address(values), f"global_load_addtid_b32 v{register}, s[20:21]"]

    def run(self, line, exec_mask):
        """Execute one instruction that may write v[20:23] under an EXEC, and store these."""
        self.text += [*self.constant, "global_load_b128 v[20:23], v1, s[20:21]"]
        self.text.append("s_waitcnt vmcnt(0) lgkmcnt(0)")
        for name, word in (("exec_lo", exec_mask), ("exec_hi", exec_mask >> 32))[: self.lanes // 32]:
            self.text.append(f"s_mov_b32 {name}, {word & 0xFFFF_FFFF:#x}")
        self.text += [line, "s_waitcnt vmcnt(0) lgkmcnt(0)", "s_waitcnt_vscnt null, 0x0"]
        self.text += ["s_mov_b32 exec_lo, -1", "s_mov_b32 exec_hi, -1"][: self.lanes // 32]
        self.text += [f"s_add_u32 s20, s2, {16 * self.lanes * self.outputs}", "s_addc_u32 s21, s3, 0"]
        self.text.append("global_store_b128 v1, v[20:23], s[20:21]")
        self.outputs += 1

    def masks(self):
        """Return EXEC in turn: all, none, the low half, random."""
        whole = (1 << self.lanes) - 1
        return whole, 0, whole >> self.lanes // 2, int(self.random.integers(0, 1 << 63)) & whole

    def program(self):
        return "\n".join([*self.text, "s_waitcnt_vscnt null, 0x0", "s_endpgm"])


def outcome(machine, family, engine, strict=True, **dispatch):
    """Run a family on an engine; return all memory that it may have changed."""
    machine.arena.regions.clear()
    inputs = np.concatenate([*family.inputs, np.zeros(64, np.uint32)])
    machine.buffer(IN, inputs)
    out = machine.buffer(OUT, np.zeros(4 * family.outputs * family.lanes, np.uint32))
    # Two regions lie side by side, so an access may cross their border.
    work = [machine.buffer(at, pattern(at, WORK_BYTES // 4)) for at in (WORK, WORK + WORK_BYTES, WORK2)]
    pointers = [word for at in (IN, OUT, WORK, WORK2) for word in (at & 0xFFFF_FFFF, at >> 32)]
    lanes = family.lanes
    run = machine.run(
        family.program(), engine=engine, strict=strict, wave_size=lanes, group_size=(lanes, 1, 1),
        user_sgprs=(*pointers, *dispatch.pop("more_sgprs", ())), **dispatch,
    )  # fmt: skip
    return [out.reshape(-1, lanes, 4), *work], run.counters


def agree(machine, family, **dispatch):
    """Assert that both engines leave the same memory."""
    expected, _ = outcome(machine, family, Interpreter(), **dict(dispatch))
    found, _ = outcome(machine, family, TRANSLATOR, **dict(dispatch))
    for at, (ours, theirs) in enumerate(zip(found[0], expected[0], strict=True)):
        assert np.array_equal(ours, theirs), f"result {at}: {ours} is not {theirs}"
    for ours, theirs in zip(found[1:], expected[1:], strict=True):
        assert np.array_equal(ours, theirs), np.flatnonzero(ours != theirs)


def places(family, size, room=WORK_BYTES - 64):
    """Return lane offsets of every sort: side by side, all the same, strided, backwards, random, misaligned, and over a
    region's end.
    """
    lane = np.arange(family.lanes)
    yield 64 + lane * size
    yield 128 + lane * 0
    yield 4 + lane * size * 3
    yield 4096 - lane * size
    yield family.random.integers(0, (room - 16) // size, family.lanes) * size
    yield family.random.integers(0, room - 16, family.lanes) // min(size, 4) * min(size, 4)


def some(cases, at, lanes):
    """Return all of some cases for a wave32; for a wave64 every third one, from `at` on."""
    return list(cases)[at % 3 :: 3] if lanes == 64 else list(cases)


LOADS = (
    "u8",
    "i8",
    "u16",
    "i16",
    "b32",
    "b64",
    "b96",
    "b128",
    "d16_u8",
    "d16_i8",
    "d16_b16",
    "d16_hi_u8",
    "d16_hi_i8",
    "d16_hi_b16",
)
STORES = ("b8", "b16", "b32", "b64", "b96", "b128", "d16_hi_b8", "d16_hi_b16")
# Some names are both.
MOVES = [*(("store", name) for name in STORES), *(("load", name) for name in LOADS)]
INTEGER_ATOMICS = [
    f"{name}_{letter}{size}"
    for size in (32, 64)
    for name, letter in zip(
        ("swap", "cmpswap", "add", "sub", "min", "min", "max", "max", "and", "or", "xor", "inc", "dec"),
        "bbuuiuiubbbuu",
        strict=True,
    )
]
FLOAT_ATOMICS = ["cmpswap_f32", "min_f32", "max_f32", "add_f32"]
# Zeros, denormals, ones, the largest, infinities, quiet and signalling NaNs.
FLOATS = [
    0, 0x8000_0000, 1, 0x8000_0001, 0x7F_FFFF, 0x807F_FFFF, 0x80_0000, 0x3F80_0000, 0xBF80_0000, 0x7F7F_FFFF, 0xFF7F_FFFF, 0x7F80_0000,
    0xFF80_0000, 0x7FC0_0001, 0xFFC0_0002, 0x7F80_0003, 0xFFA0_0004,
]  # fmt: skip


def size_of(name):
    return int(name.rpartition("_")[2].lstrip("uibf")) // 8


def span(register, size):
    rows = -(-size // 4)
    return f"v{register}" if rows == 1 else f"v[{register}:{register + rows - 1}]"


def with_data(lanes, seed, values=None):
    """Return a family whose v[10:13] hold data."""
    family = Family(lanes, seed)
    for row in range(4):
        data = (
            pattern(seed + row, lanes) if values is None else family.random.choice(np.array(values, np.uint32), lanes)
        )
        family.fetch(10 + row, data)
    return family


def global_loads(lanes):
    """GLOBAL loads through an SGPR pair and a VGPR offset."""
    family = with_data(lanes, 1)
    masks = itertools.cycle(family.masks())
    for at, name in enumerate(LOADS):
        for offsets in some(places(family, size_of(name)), at, lanes):
            family.fetch(2, offsets)
            offset = int(family.random.integers(-1, 3)) * 4
            family.run(f"global_load_{name} {span(20, size_of(name))}, v2, s[4:5] offset:{offset}", next(masks))
    return family, {}


def global_stores(lanes):
    """GLOBAL stores through an SGPR pair and a VGPR offset."""
    family = with_data(lanes, 2)
    masks = itertools.cycle(family.masks())
    for at, name in enumerate(STORES):
        for offsets in some(places(family, size_of(name)), at, lanes):
            family.fetch(2, offsets)
            family.run(f"global_store_{name} v2, {span(10, size_of(name))}, s[4:5]", next(masks))
    for mask in family.masks():
        family.run("global_store_addtid_b32 v10, s[4:5] offset:8", mask)
    return family, {}


def several_regions(kind):
    """Addresses of 64 bits lie in three regions. Some accesses cross the border of two."""
    family = with_data(32, 3)
    tail = "" if kind == "flat" else ", off"
    lane = np.arange(32)
    border = WORK + WORK_BYTES
    for at, (verb, name) in enumerate(MOVES):
        size = size_of(name)
        spots = np.where(
            lane % 3 == 0, WORK2 + 16 * lane, np.where(lane % 3 == 1, WORK + 32 * lane, border + 16 * lane)
        )
        spots[5] = border - size // 2 if size > 1 else border
        if at % 2:
            spots[:] = border - 16 * size + lane * size
        family.fetch(2, spots)
        family.fetch(3, np.zeros(32))
        line = f"{kind}_load_{name} {span(20, size)}, v[2:3]{tail}"
        if verb == "store":
            line = f"{kind}_store_{name} v[2:3], {span(10, size)}{tail}"
        family.run(line, 0xFFFF_FFFF if at % 3 else 0xF0F0_FF21)
    return family, {}


def scratch(lanes):
    """SCRATCH in its four modes, with the same and with different offsets."""
    family = with_data(lanes, 4)
    masks = itertools.cycle(family.masks())
    for at, (verb, name) in enumerate(MOVES):
        size = size_of(name)
        step = min(size, 4)
        uniform = int(family.random.integers(0, 40)) * step
        for offsets in (np.full(lanes, uniform), family.random.integers(0, 40, lanes) * step):
            family.fetch(2, offsets)
            modes = [
                ("v2", "off", 4 * step),
                ("off", "s12", uniform // 4 * 4),
                ("v2", "s12", 0),
                ("off", "off", uniform // 2),
            ]
            for address, scalar, offset in some(modes, at, 64):
                if verb == "store":
                    line = f"scratch_store_{name} {address}, {span(10, size)}, {scalar} offset:{offset}"
                else:
                    line = f"scratch_load_{name} {span(20, size)}, {address}, {scalar} offset:{offset}"
                family.run(line, next(masks))
    return family, {"scratch_base": WORK, "scratch_wave_bytes": lanes * 1024, "more_sgprs": (0, 0, 0, 0, 64)}


def global_atomics(lanes, returns):
    """Integer atomics: at one address, side by side and colliding."""
    family = with_data(lanes, 5)
    lane = np.arange(lanes)
    masks = itertools.cycle(family.masks())
    for name in some([*INTEGER_ATOMICS, *["csub_u32"] * bool(returns)], 2, lanes):
        size = size_of(name)
        registers = span(10, size * (2 if "cmpswap" in name else 1))
        result = f"{span(20, size)}, " if returns else ""
        for offsets in (64 + lane * 0, lane * size, family.random.integers(0, 6, lanes) * size):
            family.fetch(2, offsets)
            family.run(f"global_atomic_{name} {result}v2, {registers}, s[4:5]{returns}", next(masks))
    return family, {}


def float_atomics(space, float_mode):
    """Every pair of zeros, denormals, infinities and NaNs, in every denormal mode."""
    family = Family(32, 6)
    pairs = list(itertools.product(FLOATS, FLOATS))
    pairs += [pairs[0]] * (-len(pairs) % 32)
    for name in FLOAT_ATOMICS:
        for at in range(0, len(pairs), 32):
            memory, data = (np.array([one[i] for one in pairs[at : at + 32]], np.uint32) for i in (0, 1))
            family.fetch(9, memory)
            family.fetch(10, data)
            family.fetch(11, memory if at % 3 else data)
            family.fetch(2, np.arange(32) * 4)
            compares = "cmp" in name
            if space == "global":
                family.run("global_store_b32 v2, v9, s[4:5]", -1)
                family.run(f"global_atomic_{name} v20, v2, {span(10, 8 if compares else 4)}, s[4:5] glc", 0xFFFF_FFFF)
                family.run("global_load_b32 v20, v2, s[4:5]", 0xFFFF_FFFF)
            else:
                family.run("ds_store_b32 v2, v9", -1)
                name = name.replace("cmpswap", "cmpstore")
                rtn = name.replace("_f32", "_rtn_f32")
                family.run(f"ds_{rtn} v20, v2, v10{', v11' * compares}", 0xFFFF_FFFF)
                family.run("ds_load_b32 v20, v2", 0xFFFF_FFFF)
    return family, {"float_mode": float_mode, "lds_size_bytes": 1024}


# As FLOATS, of 64 bits.
DOUBLES = [
    0, 1 << 63, 1, 0x800F_FFFF_FFFF_FFFF, 0x3FF0_0000_0000_0000, 0xBFF0_0000_0000_0000, 0x7FF0_0000_0000_0000, 0xFFF0_0000_0000_0000,
    0x7FF8_0000_0000_0001, 0x7FF0_0000_0000_0003, 0xFFF4_0000_0000_0000,
]  # fmt: skip


def lds_floats(float_mode):
    """Float atomics on LDS: those of 64 bits on every pair of doubles, and those without a return value."""
    family = Family(32, 15)
    pairs = list(itertools.product(DOUBLES, DOUBLES))
    pairs += [pairs[0]] * (-len(pairs) % 32)
    for at in range(0, len(pairs), 32):
        memory, data = (np.array([one[i] for one in pairs[at : at + 32]], np.uint64) for i in (0, 1))
        compare = memory if at % 64 else data
        for register, values in ((2, np.arange(32) * 8), (8, memory), (10, data), (12, compare)):
            values = values.astype(np.uint64)
            family.fetch(register, (values & 0xFFFF_FFFF).astype(np.uint32))
            family.fetch(register + 1, (values >> 32).astype(np.uint32))
        for name in ("min_{}", "max_{}", "cmpstore_{}", "add_{}"):
            for kind, size in (("f32", 4), ("f64", 8)):
                if (name, kind) == ("add_{}", "f64"):
                    continue
                operands = f"v2, {span(10, size)}" + f", {span(12, size)}" * ("cmp" in name)
                family.run("ds_store_b64 v2, v[8:9]", -1)
                family.run(f"ds_{name.format(kind)} {operands}", 0xFFFF_FFFF)
                family.run("ds_load_b64 v[20:21], v2", -1)
                if kind == "f64":
                    family.run("ds_store_b64 v2, v[8:9]", -1)
                    family.run(f"ds_{name.format('rtn_f64')} {span(20, size)}, {operands}", 0xFFFF_FFFF)
    return family, {"float_mode": float_mode, "lds_size_bytes": 1024}


def atomics_by(kind, returns):
    """Every atomic through FLAT addresses or a buffer, with collisions."""
    family = with_data(32, 16, FLOATS)
    masks = itertools.cycle(family.masks())
    for name in [*INTEGER_ATOMICS, *FLOAT_ATOMICS, *["csub_u32"] * (kind == "buffer" and bool(returns))]:
        size = size_of(name)
        data = size * (2 if "cmpswap" in name else 1)
        offsets = family.random.integers(0, 6, 32) * size
        family.fetch(2, offsets if kind == "buffer" else WORK + offsets)
        family.fetch(3, np.zeros(32))
        if kind == "flat":
            family.run(
                f"flat_atomic_{name} {f'{span(20, size)}, ' if returns else ''}v[2:3], {span(10, data)}{returns}",
                next(masks),
            )
            continue
        family.run(f"buffer_atomic_{name} {span(20, data)}, v2, s[12:15], 0 offen{returns}", next(masks))
    return family, {"more_sgprs": (0, 0, 0, 0, *resource(WORK, 0, WORK_BYTES, RAW))}


def lds_family(lanes, seed):
    """Return a family whose LDS (4 KiB) is filled."""
    family = with_data(lanes, seed)
    family.text.append("s_mov_b32 m0, 0")
    for at in range(0, 4096, 4 * lanes):
        family.fetch(9, pattern(at, lanes))
        family.text += ["s_waitcnt vmcnt(0)", f"ds_store_addtid_b32 v9 offset:{at}"]
    return family


def emptied(family):
    """Read the whole LDS at the end."""
    for at in range(0, 4096, 4 * family.lanes):
        family.run(f"ds_load_addtid_b32 v20 offset:{at}", -1)
    return family


LDS_LOADS = (
    "u8",
    "i8",
    "u16",
    "i16",
    "b32",
    "b64",
    "b96",
    "b128",
    "u8_d16",
    "u8_d16_hi",
    "i8_d16",
    "i8_d16_hi",
    "u16_d16",
    "u16_d16_hi",
)
LDS_STORES = ("b8", "b16", "b32", "b64", "b96", "b128", "b8_d16_hi", "b16_d16_hi")
LDS_MOVES = [*(("store", name) for name in LDS_STORES), *(("load", name) for name in LDS_LOADS)]


def lds_size(name):
    return int(name.split("_")[0].lstrip("uib")) // 8


def lds_loads_and_stores(lanes):
    """DS loads and stores of one and of two addresses."""
    family = lds_family(lanes, 7)
    masks = itertools.cycle(family.masks())
    for at, (verb, name) in enumerate(LDS_MOVES):
        size = lds_size(name)
        for offsets in some(places(family, size, 4096 - 16), at, 64):
            family.fetch(2, offsets % (4096 - 32) // min(size, 4) * min(size, 4))
            if verb == "store":
                family.run(f"ds_store_{name} v2, {span(10, size)} offset:{8 * (size % 5)}", next(masks))
            else:
                family.run(f"ds_load_{name} {span(20, size)}, v2 offset:8", next(masks))
    for name, size in (("2addr_b32", 4), ("2addr_stride64_b32", 4), ("2addr_b64", 8), ("2addr_stride64_b64", 8)):
        for first, second in ((0, 1), (3, 1), (2, 2)):
            for offsets in (
                np.arange(lanes) * size,
                np.arange(lanes) * 2 * size,
                family.random.permutation(lanes) * 4 * size,
            ):
                family.fetch(2, offsets)
                family.run(
                    f"ds_store_{name} v2, {span(10, size)}, {span(12, size)} offset0:{first} offset1:{second}",
                    next(masks),
                )
                family.run(f"ds_load_{name} {span(20, 2 * size)}, v2 offset0:{first} offset1:{second}", next(masks))
    return emptied(family), {"lds_size_bytes": 4096}


def lds_beyond_the_allocation():
    """DS accesses outside of the allocation give zeros and store nothing."""
    family = lds_family(32, 8)
    for verb, name in LDS_MOVES:
        size = lds_size(name)
        family.fetch(2, 4096 - 16 * size + np.arange(32) * size - size // 2 // min(size, 4) * min(size, 4))
        line = f"ds_store_{name} v2, {span(10, size)}" if verb == "store" else f"ds_load_{name} {span(20, size)}, v2"
        family.run(line, 0xFFFF_FFF7)
    return emptied(family), {"lds_size_bytes": 4096, "strict": False}


def lds_atomics(lanes):
    """DS atomics, with and without a return value."""
    family = lds_family(lanes, 9)
    lane = np.arange(lanes)
    masks = itertools.cycle(family.masks())
    names = [one.replace("cmpswap", "cmpstore") for one in INTEGER_ATOMICS if not one.startswith("swap")]
    names += ["rsub_u32", "rsub_u64", "mskor_b32", "mskor_b64", "storexchg_b32", "storexchg_b64", "wrap_b32"]
    for name in some(names, 0, lanes):
        size = size_of(name)
        second = f", {span(12, size)}" if name.startswith(("cmpstore", "mskor", "wrap")) else ""
        head, _, kind = name.rpartition("_")
        for offsets in (64 + lane * 0, lane * size, family.random.integers(0, 6, lanes) * size):
            family.fetch(2, offsets)
            if head not in ("storexchg", "wrap"):
                family.run(f"ds_{name} v2, {span(10, size)}{second} offset:16", next(masks))
            family.run(f"ds_{head}_rtn_{kind} {span(20, size)}, v2, {span(10, size)}{second} offset:16", next(masks))
    return emptied(family), {"lds_size_bytes": 4096}


def lane_permutations(lanes):
    """Swizzles of every mode, and permutations in both directions."""
    family = with_data(lanes, 10)
    masks = itertools.cycle(family.masks())
    for offset in (
        0,
        0x1F,
        0x041F,
        0x7C1F,
        0x8000,
        0x801B,
        0x80B1,
        0xC020,
        0xC425,
        0xC3E3,
        0xE000,
        0xE010,
        0xE01F,
        0x5555,
    ):
        family.run(f"ds_swizzle_b32 v20, v10 offset:{offset}", next(masks))
    for name in ("ds_permute_b32", "ds_bpermute_b32"):
        for numbers in (
            pattern(11, lanes),
            np.arange(lanes) * 4,
            4 * (family.random.permutation(lanes)),
            np.zeros(lanes),
        ):
            family.fetch(2, numbers)
            family.run(f"{name} v20, v2, v10", next(masks))
            family.run(f"{name} v20, v2, v10 offset:12", next(masks))
    return family, {}


# OOB_SELECT, and any valid format.
RAW = 3 << 28 | 20 << 12


def resource(base, stride, records, word3):
    return base & 0xFFFF_FFFF, base >> 32 | stride << 16, records, word3


def buffers(stride, records, word3):
    """MUBUF with index and offset: in bounds, partly in bounds and out of bounds."""
    family = with_data(32, 12)
    masks = itertools.cycle(family.masks())
    lane = np.arange(32)
    for verb, name in MOVES:
        size = size_of(name)
        step = min(size, 4)
        for index, offset in (
            (lane, lane * 0),
            (lane * 0, lane * size),
            (lane // 4, lane % 4 * 16 + lane // 4 * 64 * (not stride)),
        ):
            registers = span(10 if verb == "store" else 20, size)
            line = f"buffer_{verb}_{name} {registers}"
            family.fetch(2, index)
            family.fetch(3, offset)
            family.run(f"{line}, v[2:3], s[12:15], 0 idxen offen", next(masks))
            family.fetch(2, offset)
            family.run(f"{line}, v2, s[12:15], s16 offen offset:{4 * step}", next(masks))
    for name in ("add_u32", "cmpswap_b64", "max_u64"):
        family.fetch(2, lane * size_of(name) + 1900 // 8 * 8)
        family.run(
            f"buffer_atomic_{name} {span(20, size_of(name) * (2 if 'cmp' in name else 1))}, v2, s[12:15], 0 offen glc",
            -1,
        )
    return family, {"more_sgprs": (0, 0, 0, 0, *resource(WORK, stride, records, word3), 64)}


def scalar_loads():
    """Every width from every place, by registers and immediates. Buffers give zeros beyond their end."""
    family = Family(32, 13)
    family.text += ["s_mov_b32 s48, 0", "s_mov_b32 s49, 0"]
    for base in ("s_load_{} {}, s[4:5], s16", "s_load_{} {}, s[4:5], 0x1ff4", "s_load_{} {}, s[4:5], s16 offset:0x3c",
                 "s_buffer_load_{} {}, s[12:15], 0x10", "s_buffer_load_{} {}, s[12:15], s16 offset:0x7c0"):  # fmt: skip
        for name, count in (("b32", 1), ("b64", 2), ("b128", 4), ("b256", 8), ("b512", 16)):
            target = f"s[32:{31 + count}]" if count > 1 else "s32"
            family.text += [base.format(name, target), "s_waitcnt lgkmcnt(0)"]
            # A lane can only reach a scalar through an address. The scalars lie 4 bytes apart, so only their sum is
            # stored.
            for at in range(count):
                family.text += [f"s_add_u32 s48, s48, s{32 + at}", "s_addc_u32 s49, s49, s48"]
            family.fetch(10, np.zeros(32))
            family.run(
                "s_and_b32 s50, s48, 0xffc\ns_add_u32 s52, s4, s50\ns_addc_u32 s53, s5, 0\nglobal_load_addtid_b32 v20, s[52:53]\n"
                "s_and_b32 s50, s49, 0xffc\ns_add_u32 s52, s4, s50\ns_addc_u32 s53, s5, 0\nglobal_load_addtid_b32 v21, s[52:53]",
                -1,
            )
    return family, {"more_sgprs": (*[0] * 4, *resource(WORK, 0, 2000, RAW), 64)}


# Stride, num_records, and the resource's last word.
RESOURCES = (
    (0, WORK_BYTES, RAW), (0, 2000, RAW), (0, 2003, RAW), (64, 40, 20 << 12), (64, 20, 1 << 28 | 20 << 12), (12, 0, 2 << 28 | 20 << 12),
    (16, 900, 2 << 28 | 20 << 12), (16, 1000, RAW), (0, 1000, 3 << 28), (64, 40, RAW | 1 << 23),
)  # fmt: skip
ANY_WAVE = global_loads, global_stores, scratch, lds_loads_and_stores, lds_atomics, lane_permutations
FAMILIES = [
    *((one, (lanes,)) for one in ANY_WAVE for lanes in (32, 64)),
    *((atomics_by, one) for one in itertools.product(("flat", "buffer"), ("", " glc"))),
    *((lds_floats, (mode,)) for mode in (0xC0, 0x30)),
    *((global_atomics, (lanes, returns)) for lanes in (32, 64) for returns in ("", " glc")),
    *((several_regions, (kind,)) for kind in ("global", "flat")),
    *((float_atomics, mode) for mode in (("global", 0xC0), ("global", 0xF0), ("lds", 0xC0), ("lds", 0x90), ("lds", 0x60))),
    *((buffers, one) for one in RESOURCES),
    (lds_beyond_the_allocation, ()),
    (scalar_loads, ()),
]  # fmt: skip


@pytest.mark.parametrize(("family", "args"), FAMILIES, ids=[f"{one.__name__}-{args}" for one, args in FAMILIES])
@pytest.mark.sweep(15)
def test_both_engines_leave_the_same_memory(machine, family, args):
    made, dispatch = family(*args)
    agree(machine, made, **dispatch)
    assert not any(one.made.result().lowered.bailed for known in TRANSLATOR.cache.values() for one in known)


def test_every_rule_for_memory_is_compared():
    run = {
        line.split(maxsplit=1)[0]
        for family, args in FAMILIES
        for text in family(*args)[0].text
        for line in text.splitlines()
    }
    memory = {row.mnemonic for row in isa.target("gfx1100").instructions if row.format in UNITS}
    missing = sorted((memory & RULES.keys()) - run)
    assert not missing


@pytest.mark.parametrize("lanes", [32, 64])
def test_lines_transactions_and_bank_conflicts_are_counted_alike(machine, lanes):
    family = lds_family(lanes, 14)
    masks = itertools.cycle(family.masks())
    for name, size in (("b32", 4), ("b64", 8), ("b128", 16)):
        for offsets in places(family, size, 4096 - 16):
            family.fetch(2, offsets % (4096 - 32) // size * size)
            family.run(f"global_load_{name} {span(20, size)}, v2, s[4:5]", next(masks))
            family.run(f"ds_load_{name} {span(20, size)}, v2", next(masks))
    expected, found = (
        outcome(machine, family, one, lds_size_bytes=4096)[1] for one in (Interpreter(), Translator(counting=True))
    )
    for name in ("memory_transactions", "cache_lines", "lds_conflicts"):
        assert getattr(found, name) == getattr(expected, name), name
