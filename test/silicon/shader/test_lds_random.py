"""Random LDS instructions on both engines, with strict mode on and off. Places lie outside of the allocation, are
misaligned, or are shared by lanes.
"""

import random

import numpy as np
import pytest

from ringup.silicon.shader.amd.interpreter.engine import Interpreter
from ringup.silicon.shader.amd.translator.engine import Translator

IN, OUT = 0x20_0000, 0x80_0000
INSTRUCTIONS = 12
ADDRESSES, DATA, LOOKED_AT = (40, 41, 42, 43), range(20, 28), (8, 10, 11, 12, 13, 20)
LOADS = (
    "u8", "i8", "u16", "i16", "b32", "b64", "b96", "b128", "u8_d16", "u8_d16_hi", "i8_d16", "i8_d16_hi", "u16_d16", "u16_d16_hi",
)  # fmt: skip
STORES = ("b8", "b16", "b32", "b64", "b96", "b128", "b8_d16_hi", "b16_d16_hi")
ATOMICS = [
    f"{name}_{type_}{size}"
    for size in (32, 64)
    for type_, names in (("u", "add sub rsub inc dec min max"), ("i", "min max"), ("b", "and or xor mskor cmpstore"), ("f", "min max cmpstore"))
    for name in names.split()
] + ["add_f32"]  # fmt: skip
OFFSETS = (0, 0, 1, 2, 3, 4, 8, 100, 252, 255, 256, 1000, 65535)
SPECIAL = (0, 1, 3, 0x8000_0000, 0x7F80_0000, 0x7FC0_0000, 0x3F80_0000, 0xFFFF_FFFF, 0x7FF0_0000, 0x7FF8_0000)


CDNA = ("gfx942", "gfx950")


def words(name):
    """Return the registers of a lane's data."""
    return next((count for ending, count in (("128", 4), ("96", 3), ("64", 2)) if ending in name), 1)


def span(first, count):
    return f"v{first}" if count == 1 else f"v[{first}:{first + count - 1}]"


class Program:
    """Straight code. It stores everything that an instruction may have changed, and LDS at the end."""

    def __init__(self, seed, target):
        self.random, self.target = random.Random(seed), target
        pick = self.random.choice
        self.lanes, self.lds_bytes = pick((32, 64)), pick((64, 256, 512, 1024))
        if target in CDNA:
            self.lanes = 64
        self.strict, self.unaligned = pick((True, False, False)), pick((True, False))
        self.lines = [
            "s_mov_b64 s[4:5], s[0:1]",
            f"s_mov_b32 m0, {pick((0, 4, 64, 255, 0x1_0000))}",
            "s_mov_b32 s30, 0",
        ]
        for register in (*range(10, 14), *DATA, *ADDRESSES):
            self.lines += [f"s_add_u32 s6, s4, {register * self.lanes * 4}", "s_addc_u32 s7, s5, 0"]
            self.lines.append(f"global_load_addtid_b32 v{register}, s[6:7]")
        self.lines += [
            "s_load_b128 s[32:35], s[4:5], 0x0",
            "s_waitcnt vmcnt(0) lgkmcnt(0)",
            "v_mbcnt_lo_u32_b32 v9, -1, 0",
        ]
        self.lines += ["v_mbcnt_hi_u32_b32 v9, -1, v9"] * (self.lanes == 64) + ["v_lshlrev_b32_e32 v9, 2, v9"]
        rows = range(0, self.lds_bytes - self.lanes * 4 + 1, self.lanes * 4)
        self.lines += [f"ds_store_b32 v9, v20 offset:{at}" for at in rows] + ["s_waitcnt lgkmcnt(0)"]
        for _ in range(INSTRUCTIONS):
            self.step(self.instruction())
        for at in rows:
            self.lines += [f"ds_load_b32 v10, v9 offset:{at}", "s_waitcnt lgkmcnt(0)"]
            self.store(10)

    def step(self, line):
        """Run an instruction for all lanes, some or none."""
        mask = self.random.choice((-1, -1, 0, self.random.getrandbits(63)))
        names = ("exec_lo", "exec_hi")[: self.lanes // 32]
        self.lines += [f"s_mov_b32 {name}, {mask >> 32 * at & 0xFFFF_FFFF:#x}" for at, name in enumerate(names)]
        self.lines += [
            line,
            "s_waitcnt lgkmcnt(0)",
            *(f"s_mov_b32 {name}, -1" for name in names),
            "v_mov_b32_e32 v8, s30",
        ]
        for register in LOOKED_AT:
            self.store(register)
        self.lines.append("s_waitcnt_vscnt null, 0")

    def atomics(self):
        """Return the atomics of the processor: RDNA4 compares no floats, but subtracts on a condition and to zero."""
        if self.target != "gfx1201":
            return ATOMICS
        return [one for one in ATOMICS if not one.startswith("cmpstore_f")] + ["cond_sub_u32", "sub_clamp_u32"]

    def store(self, register):
        self.lines += [
            f"global_store_b32 v9, v{register}, s[2:3]",
            f"s_add_u32 s2, s2, {self.lanes * 4}",
            "s_addc_u32 s3, s3, 0",
        ]

    def instruction(self):
        pick, number = self.random.choice, self.random.randrange
        at, offset, pair = (
            f"v{pick(ADDRESSES)}",
            f"offset:{pick(OFFSETS)}",
            f"offset0:{number(256)} offset1:{number(256)}",
        )
        how = number(9)
        if how == 0 and self.target == "gfx950" and number(2):
            name = pick(("b64_tr_b16", "b64_tr_b8", "b64_tr_b4", "b96_tr_b6"))
            return f"s_mov_b64 exec, -1\n ds_read_{name} {span(10, 3 if '96' in name else 2)}, {at} {offset}"
        if how == 0:
            name = pick(LOADS)
            return f"ds_load_{name} {span(10, words(name))}, {at} {offset}"
        if how == 1:
            name = pick(STORES)
            return f"ds_store_{name} {at}, {span(20, words(name))} {offset}"
        if how == 2:
            name = pick(self.atomics())
            data = f"{span(20, words(name))}" + (
                f", {span(24, words(name))}" if name.startswith(("mskor", "cmpst")) else ""
            )
            returning = f"ds_{'_rtn_'.join(name.rsplit('_', 1))} {span(10, words(name))}, {at}, {data} {offset}"
            return pick((returning, f"ds_{name} {at}, {data} {offset}"))
        if how < 5:
            type_ = pick(("b32", "b64"))
            kind, count = f"2addr_{pick(('', 'stride64_'))}", words(type_)
            data = f"{span(20, count)}, {span(24, count)} {pair}"
            load = f"ds_load_{kind}{type_} {span(10, 2 * count)}, {at} {pair}"
            exchange = f"ds_storexchg_{kind}rtn_{type_} {span(10, 2 * count)}, {at}, {data}"
            return pick((load, f"ds_store_{kind}{type_} {at}, {data}", exchange))
        if how == 5:
            return (
                pick(("ds_load_addtid_b32 v10 ", "ds_store_addtid_b32 v20 ", "ds_append v10 ", "ds_consume v10 "))
                + offset
            )
        if how == 6:
            name = pick(("bpermute", "permute"))
            return pick((f"ds_{name}_b32 v10, {at}, v20 {offset}", f"ds_swizzle_b32 v10, v20 offset:{number(65536)}"))
        if how == 7:
            exchange = "wrap_rtn_b32 v10, {at}, v20, v24" if self.target != "gfx1201" else "rsub_rtn_u32 v10, {at}, v20"
            one = pick(("storexchg_rtn_b32 v10, {at}, v20", exchange, "add_rtn_f32 v10, {at}, v20"))
            two = pick(("storexchg_rtn_b64 v[10:11], {at}, v[20:21]", "condxchg32_rtn_b64 v[10:11], {at}, v[20:21]"))
            return f"ds_{pick((one, two)).format(at=at)} {offset}"
        # The lane number may be any number: its low bits count.
        lane = f"s{pick((32, 33, 34))}"
        # CDNA3 reads one scalar.
        target_lane = number(65) if self.target in CDNA else lane
        return pick((f"v_readlane_b32 s30, v20, {lane}", f"v_writelane_b32 v20, s30, {target_lane}"))


def inputs(program, seed):
    """Return rows of lanes by register: data of all kinds, and places in and around LDS."""
    rng, lanes = np.random.default_rng(seed), program.lanes
    rows = rng.integers(0, 1 << 32, (48, lanes))
    for one in DATA:
        rows[one] = np.where(rng.random(lanes) < 0.5, rows[one], rng.choice(SPECIAL, lanes))
    lane, room = np.arange(lanes), program.lds_bytes
    for one in ADDRESSES:
        anywhere = np.where(rng.random(lanes) < 0.8, lane * 4, rng.integers(0, 1 << 32, lanes))
        near, dwords = rng.integers(0, room + 64, lanes), rng.integers(0, room // 4 + 8, lanes) * 4
        rows[one] = (lane * 4, near, dwords, lane * int(rng.integers(1, 20)), anywhere)[int(rng.integers(5))]
    rows[0, :4] = rng.integers(0, 200, 4)
    return rows


@pytest.mark.seeds(4, also=(7, 14, 99))
def test_engines_agree_about_lds(machine_of_each, seed):
    machine, target = machine_of_each, machine_of_each.engine.target
    program = Program(seed, target)
    found = []
    for engine in (Interpreter, Translator):
        machine.arena.regions.clear()
        machine.code_end = 0x10_0000
        machine.buffer(IN, inputs(program, seed))
        out = machine.buffer(OUT, np.zeros(program.lanes * 150))
        run = machine.start(
            "\n".join([*program.lines, "s_endpgm"]), engine=engine(target=target), strict=program.strict, wave_size=program.lanes,
            group_size=(program.lanes, 1, 1), user_sgprs=(IN, 0, OUT, 0), enable_group_id=(False, False, False),
            lds_size_bytes=program.lds_bytes, mtype_unaligned=program.unaligned,
        )  # fmt: skip
        run.step(100_000)
        found.append(([(one.kind, one.pc, one.text) for one in run.violations], out.tolist()))
    assert found[0] == found[1]
