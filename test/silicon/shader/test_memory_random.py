"""Random programs of memory instructions: translator and interpreter leave the same bytes, also if an instruction runs
again.

Every instruction runs `ROUNDS` times with new addresses, ranges and records each time. The first time the translator
knows no memory; later it remembers some.
"""

import numpy as np
import pytest

from ringup.silicon.shader.amd.interpreter.engine import Interpreter
from ringup.silicon.shader.amd.interpreter.formats import FORMATS
from ringup.silicon.shader.amd.translator.engine import Translator
from ringup.silicon.shader.amd.translator.translations import QUICK, THOROUGH, THREADED

CDNA = ("gfx942", "gfx950")
ROUNDS = 3
INSTRUCTIONS = 12
IN, OUT, WORK = 0x20_0000, 0x80_0000, 0x60_0000
WORK_BYTES, LDS_BYTES = 0x8000, 4096
LOADS = {
    "u8": 1, "i8": 1, "u16": 2, "i16": 2, "b32": 4, "b64": 8, "b96": 12, "b128": 16, "d16_u8": 1, "d16_i8": 1, "d16_b16": 2,
    "d16_hi_u8": 1, "d16_hi_i8": 1, "d16_hi_b16": 2,
}  # fmt: skip
STORES = {"b8": 1, "b16": 2, "b32": 4, "b64": 8, "b96": 12, "b128": 16, "d16_hi_b8": 1, "d16_hi_b16": 2}
LDS_LOADS = {
    "u8": 1, "i8": 1, "u16": 2, "i16": 2, "b32": 4, "b64": 8, "b96": 12, "b128": 16, "u8_d16": 1, "u8_d16_hi": 1, "i8_d16": 1,
    "i8_d16_hi": 1, "u16_d16": 2, "u16_d16_hi": 2,
}  # fmt: skip
LDS_STORES = {"b8": 1, "b16": 2, "b32": 4, "b64": 8, "b96": 12, "b128": 16, "b8_d16_hi": 1, "b16_d16_hi": 2}
ATOMICS = [
    f"{name}_{letter}{size}"
    for size in (32, 64)
    for name, letter in zip(("swap", "cmpswap", "add", "sub", "min", "umax", "and", "or", "xor", "inc", "dec"), "bbuuiubbbuu", strict=True)
]  # fmt: skip
ATOMICS = [one.replace("umax", "max") for one in ATOMICS]
PAIRS = {"2addr_b32": 4, "2addr_stride64_b32": 4, "2addr_b64": 8, "2addr_stride64_b64": 8}


class Program:
    """A loop over random memory instructions. Their inputs lie in memory, a part for each round."""

    def __init__(self, seed, target="gfx1100"):
        self.random, self.target = np.random.default_rng(seed), target
        self.lanes = 64 if target in CDNA else int(self.random.choice([32, 64]))
        # On RDNA4 a scalar that the vector ALU read before may be read again after a wait.
        self.settle = "s_wait_alu depctr_sa_sdst(0)\n" if target == "gfx1201" else ""
        self.strict = bool(self.random.integers(2))
        self.inputs = [[] for _ in range(ROUNDS)]
        self.taken = self.given = 0
        self.steps = [self.step() for _ in range(INSTRUCTIONS)]

    def pick(self, values):
        return values[int(self.random.integers(len(values)))]

    # inputs of an instruction -----------------------------------------------------------------------------------------

    def put(self, make):
        """Put words into memory, with new ones for every round. Return the text that makes s[20:21] their address."""
        at = 4 * self.taken
        for one in self.inputs:
            one.append(np.asarray(make(), np.int64).astype(np.uint32))
        self.taken += len(self.inputs[0][-1])
        return [f"s_add_u32 s20, s0, {at}", "s_addc_u32 s21, s1, 0"]

    def fetch(self, register, make):
        self.lines += [*self.put(make), f"global_load_addtid_b32 v{register}, s[20:21]"]

    def scalars(self, register, make):
        kind, last = {1: ("b32", ""), 4: ("b128", f":{register + 3}")}[len(make())]
        name = f"s[{register}{last}]" if last else f"s{register}"
        self.lines += [*self.put(make), f"s_load_{kind} {name}, s[20:21], null", "s_waitcnt lgkmcnt(0)"]

    def offsets(self, size, room):
        """Return lane offsets: mostly side by side, some strided, all the same, backwards or random. Lanes may begin
        anywhere.
        """
        lane, unit = np.arange(self.lanes), min(size, 4)
        start = int(self.random.integers(0, room // 8)) // unit * unit
        how = int(self.random.integers(8))
        if how < 4:
            return start + lane * size
        if how == 4:
            return start + lane * 0
        if how == 5:
            return start + lane * size * 2
        if how == 6:
            return start + (self.lanes - lane) * size
        return self.random.integers(0, (room - 16) // unit, self.lanes) * unit

    def resource(self, stride, *, plain=False):
        """Return a buffer resource of any range. One in eight is swizzled, some add the lane's number to the index,
        some are unbound.
        """
        oob = int(self.random.integers(4))
        records = int(self.random.integers(0, 70 if oob < 2 or (stride and self.random.integers(2)) else 2048))
        swizzle = self.pick([0] * 7 + [1, 3]) if not (self.strict or plain) else 0
        word3 = oob << 28 | int(self.random.integers(4)) << 21 - 3 | self.pick(list(FORMATS)) << 12 | 0b111_110_101_100
        # These bits scale the stride of RDNA4, beyond the memory that there is.
        if self.target == "gfx1201":
            word3 &= ~(3 << 18)
        word3 |= (self.random.integers(8) == 0) << 23
        if self.random.integers(10) == 0:
            word3 &= ~(0x3F << 12)
        # Formats and swizzles of CDNA3 are not modelled.
        if self.target in CDNA:
            swizzle, word3 = 0, word3 & ~(0x1FFF << 12) | (word3 >> 12 & 0x3F != 0) << 15
        return WORK & 0xFFFF_FFFF, WORK >> 32 | stride << 16 | swizzle << 30, records, int(word3)

    # instructions -----------------------------------------------------------------------------------------------------

    def step(self):
        """Return one instruction with its lines: it sets up data and EXEC, executes, and stores the result."""
        kinds = (
            [self.buffer] * 6
            + [self.typed] * (self.target not in CDNA)
            + [self.anywhere] * 3
            + [self.scratch] * 2
            + [self.lds] * 4
        )
        self.lines = []
        for register in range(10, 14):
            self.fetch(register, lambda: self.random.integers(0, 1 << 32, self.lanes))
        for register in range(20, 24):
            self.fetch(register, lambda: self.random.integers(0, 1 << 32, self.lanes))
        line = self.pick(kinds)()
        mask = self.pick([-1] * 5 + [0, 0xFFFF_FFFF, 0xF0F1, int(self.random.integers(1 << 62))])
        self.lines.append("s_waitcnt vmcnt(0) lgkmcnt(0)")
        names = ("exec_lo", "exec_hi")[: self.lanes // 32]
        self.lines += [f"s_mov_b32 {name}, {mask >> 32 * at & 0xFFFF_FFFF:#x}" for at, name in enumerate(names)]
        self.lines += [line, "s_waitcnt vmcnt(0) lgkmcnt(0)", "s_waitcnt_vscnt null, 0x0"]
        self.lines += [f"s_mov_b32 {name}, -1" for name in names]
        self.lines += [f"s_add_u32 s20, s2, {self.given}", "s_addc_u32 s21, s3, 0"]
        self.lines += ["global_store_b128 v1, v[20:23], s[20:21]"]
        self.given += 16 * self.lanes
        return line, self.lines

    def buffer(self):
        verb = self.pick(["load", "store", "store", "atomic"])
        # Atomics of 64 bits must be aligned to their size.
        stride = self.pick([0, 16, 64] if verb == "atomic" else [0, 0, 4, 12, 16, 64])
        self.scalars(12, lambda: self.resource(stride, plain=verb == "atomic"))
        name = self.pick(list({"load": LOADS, "store": STORES, "atomic": ATOMICS}[verb]))
        size = size_of(name)
        address, modes = self.place(stride, size)
        if verb == "atomic":
            data = span(20, size * (2 if "cmpswap" in name else 1))
            return f"buffer_atomic_{name} {data}, {address}, s[12:15], {modes}{self.pick(['', ' glc'])}"
        return f"buffer_{verb}_{name} {span(20 if verb == 'load' else 10, size)}, {address}, s[12:15], {modes}"

    def place(self, stride, size):
        """Load a buffer's index and offset; return how the instruction names them."""
        how = self.pick(["offen", "offen", "idxen", "idxen offen"])
        unit = size if size in (1, 2, 8) else 4
        if "idxen" in how:
            self.fetch(2, lambda: self.pick([np.arange(self.lanes), self.random.integers(0, 64, self.lanes)]))
        if "offen" in how:
            room = max(stride, 32) if "idxen" in how else 2000
            self.fetch(3 if "idxen" in how else 2, lambda: self.offsets(size, room) // unit * unit % 4096)
        self.scalars(16, lambda: [int(self.random.integers(0, 8)) * 8 * int(self.random.integers(2))])
        address = "v[2:3]" if how == "idxen offen" else "v2"
        return address, f"{self.pick(['0', 's16'])} {how} offset:{int(self.random.integers(0, 4)) * 16}"

    def typed(self):
        stride = self.pick([0, 16, 64])
        verb, number = self.pick(["load", "store"]), self.pick(list(FORMATS))
        count = int(self.random.integers(1, 5))
        word = list(self.resource(stride))
        word[3] = word[3] & ~(0x3F << 12) | number << 12
        self.scalars(12, lambda: (*word[:2], int(self.random.integers(0, 70 if stride else 2048)), word[3]))
        address, modes = self.place(stride, 16)
        half = self.random.integers(2)
        name = f"{verb}_{'d16_' * half}format_{'xyzw'[:count]}"
        data = span(20 if verb == "load" else 10, 4 * (-(-count // 2) if half else count))
        if self.random.integers(2):
            return f"buffer_{name} {data}, {address}, s[12:15], {modes}"
        scalar, _, rest = modes.partition(" ")
        return f"t{'buffer'}_{name} {data}, {address}, s[12:15], {scalar} format:{number} {rest}"

    def anywhere(self):
        unit = self.pick(["global", "flat"])
        verb = self.pick(["load", "store", "store", "atomic"])
        name = self.pick(list({"load": LOADS, "store": STORES, "atomic": ATOMICS}[verb]))
        size = size_of(name)
        based = unit == "global" and self.random.integers(2)
        align = size if verb == "atomic" else min(size, 4)
        self.fetch(2, lambda: (0 if based else WORK) + self.offsets(size, WORK_BYTES - 2048) // align * align)
        self.fetch(3, lambda: np.zeros(self.lanes))
        address = "v2" if based else "v[2:3]"
        tail = {"flat": ""}.get(
            unit, ", s[4:5]" if based else ", off"
        ) + f" offset:{int(self.random.integers(0, 4)) * 16}"
        if verb == "load":
            return f"{unit}_load_{name} {span(20, size)}, {address}{tail}"
        if verb == "store":
            return f"{unit}_store_{name} {address}, {span(10, size)}{tail}"
        data = span(10, size * (2 if "cmpswap" in name else 1))
        returns = self.random.integers(2)
        return f"{unit}_atomic_{name} {f'{span(20, size)}, ' * returns}{address}, {data}{tail}{' glc' * returns}"

    def scratch(self):
        verb = self.pick(["load", "store"])
        name = self.pick(list({"load": LOADS, "store": STORES}[verb]))
        size = size_of(name)
        unit = min(size, 4)
        self.fetch(2, lambda: self.pick([np.full(self.lanes, 16), self.random.integers(0, 40, self.lanes)]) * unit)
        self.scalars(17, lambda: [int(self.random.integers(0, 8)) * 4])
        address, scalar = self.pick([("v2", "off"), ("off", "s17"), ("v2", "s17"), ("off", "off")])
        tail = f"{scalar} offset:{int(self.random.integers(0, 4)) * 4}"
        if verb == "load":
            return f"scratch_load_{name} {span(20, size)}, {address}, {tail}"
        return f"scratch_store_{name} {address}, {span(10, size)}, {tail}"

    def lds(self):
        verb = self.pick(["load", "store", "store", "pair", "atomic", "lanes"])
        if verb == "lanes":
            self.fetch(2, lambda: self.random.integers(0, 4 * self.lanes, self.lanes))
            return f"ds_{self.pick(['permute', 'bpermute'])}_b32 v20, v2, v10 offset:{self.pick([0, 4, 64])}"
        name = self.pick(list({"load": LDS_LOADS, "store": LDS_STORES, "pair": PAIRS, "atomic": ATOMICS}[verb]))
        size = PAIRS.get(name) or LDS_LOADS.get(name) or LDS_STORES.get(name) or size_of(name)
        align = 16 if size > 8 else size
        room = LDS_BYTES - 4 * 512 if verb == "pair" else LDS_BYTES - 16
        self.fetch(2, lambda: self.offsets(size, room) % room // align * align)
        if verb == "load":
            return f"ds_load_{name} {span(20, size)}, v2"
        if verb == "store":
            return f"ds_store_{name} v2, {span(10, size)}"
        if verb == "pair":
            first, second = self.pick([(0, 1), (1, 0), (2, 2), (1, 3)])
            tail = f"offset0:{first} offset1:{second}"
            if self.random.integers(2):
                return f"ds_load_{name} {span(20, 2 * size)}, v2 {tail}"
            return f"ds_store_{name} v2, {span(10, size)}, {span(12, size)} {tail}"
        name = name.replace("cmpswap", "cmpstore").replace("swap", "storexchg")
        head, _, kind = name.rpartition("_")
        second = f", {span(12, size)}" if head == "cmpstore" else ""
        if head == "storexchg" or self.random.integers(2):
            return f"ds_{head}_rtn_{kind} {span(20, size)}, v2, {span(10, size)}{second}"
        return f"ds_{name} v2, {span(10, size)}{second}"

    # the whole program ------------------------------------------------------------------------------------------------

    def text(self, steps):
        parts = range(0, LDS_BYTES, 4 * self.lanes)
        head = [
            "s_mov_b32 m0, 0",
            *(
                f"s_lshl_b32 s18, s4, {at % 7}\n{self.settle}v_add_nc_u32 v9, s18, v0\nds_store_addtid_b32 v9 offset:{at}"
                for at in parts
            ),
        ]
        head += ["v_lshlrev_b32 v1, 4, v0", "s_mov_b32 s40, 0", "again:"]
        tail = [
            f"s_add_u32 s0, s0, {4 * self.taken}",
            "s_addc_u32 s1, s1, 0",
            f"s_add_u32 s2, s2, {self.given}",
            "s_addc_u32 s3, s3, 0",
        ]
        tail += ["s_add_u32 s40, s40, 1", f"s_cmp_lt_u32 s40, {ROUNDS}", "s_cbranch_scc1 again"]
        # The content of LDS at the end.
        for at in parts:
            tail += [
                f"ds_load_addtid_b32 v9 offset:{at}",
                "s_waitcnt lgkmcnt(0)",
                f"s_add_u32 s20, s2, {at}",
                "s_addc_u32 s21, s3, 0",
            ]
            tail.append("global_store_addtid_b32 v9, s[20:21]")
        return "\n".join(
            [*head, *(line for _, lines in steps for line in lines), *tail, "s_waitcnt_vscnt null, 0x0", "s_endpgm"]
        )

    def differs(self, machine, steps, level):
        """Return whether the engines give different results, LDS or memory."""
        target = machine.engine.target
        engines = Translator(level=level, target=target), Interpreter(target=target)
        found, expected = (self.outcome(machine, one, steps) for one in engines)
        return not all(np.array_equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True))

    def outcome(self, machine, engine, steps):
        machine.arena.regions.clear()
        machine.buffer(IN, np.concatenate([*(word for one in self.inputs for word in one), np.zeros(64, np.uint32)]))
        out = machine.buffer(OUT, np.zeros((ROUNDS * self.given + LDS_BYTES) // 4, np.uint32))
        words = np.random.default_rng(0).integers(0, 1 << 32, WORK_BYTES // 2, np.uint32)
        work = machine.buffer(WORK, words)
        pointers = [word for at in (IN, OUT, WORK) for word in (at & 0xFFFF_FFFF, at >> 32)]
        machine.run(
            self.text(steps), engine=engine, strict=self.strict, wave_size=self.lanes, group_size=(self.lanes, 1, 1),
            user_sgprs=pointers, lds_size_bytes=LDS_BYTES, scratch_base=WORK + WORK_BYTES, scratch_wave_bytes=self.lanes * 512,
        )  # fmt: skip
        return out, work


def size_of(name):
    return LOADS.get(name) or STORES.get(name) or int(name.rpartition("_")[2].lstrip("uib")) // 8


def span(register, size):
    rows = -(-size // 4)
    return f"v{register}" if rows == 1 else f"v[{register}:{register + rows - 1}]"


@pytest.mark.parametrize("level", [THREADED, QUICK, THOROUGH])
@pytest.mark.seeds(2)
def test_random_accesses_leave_the_same_memory(machine_of_each, level, seed):
    machine = machine_of_each
    program = Program(seed, machine.engine.target)
    if program.differs(machine, program.steps, level):
        alone = [line for line, lines in program.steps if program.differs(machine, [(line, lines)], level)]
        raise AssertionError(f"wave{program.lanes}, strict {program.strict}; differ alone: {alone or 'none'}")


@pytest.mark.parametrize(("name", "size"), [("b8", 1), ("b16", 2), ("b32", 4), ("b64", 8), ("b96", 12), ("b128", 16)])
def test_lanes_out_of_a_buffers_range_store_nothing_when_the_store_runs_again(machine, name, size):
    """All lanes are active and lie side by side. 24 of them are in range."""
    text = f"""
        s_mov_b32 s8, s0
        s_mov_b32 s9, s1
        s_mov_b32 s10, {24 * size}
        s_mov_b32 s11, 0x31014000
        v_mul_u32_u24 v1, {size}, v0
        v_mov_b32 v2, -1
        v_mov_b32 v3, -1
        v_mov_b32 v4, -1
        v_mov_b32 v5, -1
        s_mov_b32 s12, 3
    again:
        buffer_store_{name} {span(2, size)}, v1, s[8:11], 0 offen
        s_sub_u32 s12, s12, 1
        s_cmp_lg_u32 s12, 0
        s_cbranch_scc1 again
        s_endpgm"""
    found = machine.buffer(WORK, np.zeros(64 * 16, np.uint8), "u1")
    machine.run(text, engine=Translator(), user_sgprs=(WORK, 0))
    assert np.array_equal(found, np.where(np.arange(found.size) < 24 * size, 255, 0))
