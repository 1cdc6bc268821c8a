"""Fixtures for the passes after selection: an evaluator of virtual-register code, a maker of random programs, and runs
on the virtual cores.
"""

from __future__ import annotations

import random
import re
import subprocess
from dataclasses import dataclass, field

import numpy as np
import pytest

from ringup.autogen.generate.isa.probe import llvm_mc
from ringup.compiler.amd.instructions.code import EXEC_LO, VCC_LO, Block, Code, Instr, Part, Reg, Signed, Special
from ringup.compiler.amd.instructions.steps import Pair, Program, split_blocks
from ringup.compiler.amd.passes.dual import pair
from ringup.compiler.amd.passes.schedule import schedule
from ringup.compiler.amd.pipeline import finish, place_group_ids
from ringup.compiler.amd.registers.allocate import allocate
from ringup.silicon.shader.amd.interpreter.engine import Interpreter
from ringup.silicon.shader.amd.translator.engine import Translator
from ringup.silicon.shader.common.state import Dispatch, MemoryFault, Region

LANES = 32
CODE_VA, ARGS_VA, IN_VA, OUT_VA, SCRATCH_VA = 0x10_0000, 0x20_0000, 0x30_0000, 0x50_0000, 0x4000_0000
IN_WORDS = 4096
M32 = 0xFFFF_FFFF


class Evaluator:
    """Evaluates one wave32 of virtual-register code by each instruction's meaning in the RDNA3 ISA reference. It has no
    limit on registers and no delays.
    """

    def __init__(self, code, memory, lanes=LANES):
        self.code, self.memory, self.lds = code, memory, {}
        self.regs = {}
        self.exec = (1 << lanes) - 1
        self.vcc = self.scc = 0
        self.steps = 0

    def lanes(self):
        return np.array([self.exec >> i & 1 for i in range(LANES)], bool)

    def cell(self, reg, k):
        return self.regs.get((reg, k))

    def vector(self, operand, k=0):
        """Return a source's 32 values as uint32."""
        if isinstance(operand, Signed):
            value = self.vector(operand.source, k)
            if operand.abs:
                value = value & np.uint32(0x7FFF_FFFF)
            return value ^ np.uint32(0x8000_0000) if operand.neg else value
        if isinstance(operand, Part):
            return self.vector(operand.reg, operand.first + k)
        if isinstance(operand, Reg) and operand.bank == "v":
            found = self.regs.get((operand, k))
            return np.zeros(LANES, np.uint32) if found is None else found
        return np.full(LANES, self.scalar(operand, k), np.uint32)

    def scalar(self, operand, k=0):
        if isinstance(operand, Part):
            return self.scalar(operand.reg, operand.first + k)
        if isinstance(operand, Reg):
            return self.regs.get((operand, k), 0)
        if isinstance(operand, Special):
            return {"vcc_lo": self.vcc, "exec_lo": self.exec, "scc": self.scc}[operand.name]
        if isinstance(operand, float):
            return int(np.float32(operand).view(np.uint32))
        return operand & M32 if k == 0 else (M32 if operand < 0 else 0)

    def put_vector(self, operand, value, k=0):
        if isinstance(operand, Part):
            operand, k = operand.reg, operand.first + k
        old = self.regs.get((operand, k), np.zeros(LANES, np.uint32))
        self.regs[operand, k] = np.where(self.lanes(), value.astype(np.uint32), old)

    def put_scalar(self, operand, value, k=0):
        value = int(value) & M32
        if isinstance(operand, Special):
            if operand.name == "vcc_lo":
                self.vcc = value
            elif operand.name == "exec_lo":
                self.exec = value
            return
        if isinstance(operand, Part):
            operand, k = operand.reg, operand.first + k
        self.regs[operand, k] = value

    def run(self, limit=200_000):
        blocks = self.code.blocks
        place = {block: i for i, block in enumerate(blocks)}
        number = 0
        while number < len(blocks):
            goal = None
            for instr in blocks[number].instrs:
                self.steps += 1
                assert self.steps < limit
                goal = self.step(instr)
                if goal is not None:
                    break
            if goal == "end":
                return
            number = place[goal] if goal is not None else number + 1

    def step(self, instr):
        name, ops = instr.mnemonic, instr.operands
        if name == "s_endpgm":
            return "end"
        if name == "s_barrier":
            # There is only one wave.
            return None
        if name.startswith("s_cbranch_") or name == "s_branch":
            taken = {"s_branch": True, "s_cbranch_scc1": self.scc, "s_cbranch_scc0": not self.scc, "s_cbranch_execz": not self.exec,
                     "s_cbranch_vccz": not self.vcc, "s_cbranch_vccnz": self.vcc}[name]  # fmt: skip
            return ops[0] if taken else None
        if name.startswith(("global_", "ds_", "s_load", "scratch")):
            self.access(instr)
        elif name.startswith("s_"):
            self.salu(instr)
        else:
            self.valu(instr)
        return None

    def salu(self, instr):
        name, ops = instr.mnemonic, instr.operands
        if name.startswith("s_cmp_"):
            a, b = self.scalar(ops[0]), self.scalar(ops[1])
            self.scc = int({"s_cmp_lt_u32": a < b, "s_cmp_eq_u32": a == b, "s_cmp_lg_u32": a != b}[name])
            return
        a = self.scalar(ops[1]) if len(ops) > 1 else 0
        b = self.scalar(ops[2]) if len(ops) > 2 else 0
        if name == "s_and_saveexec_b32":
            self.put_scalar(ops[0], self.exec)
            self.exec = self.exec & a
            self.scc = int(self.exec != 0)
        elif name == "s_mov_b32":
            self.put_scalar(ops[0], a)
        elif name == "s_mov_b64":
            low, high = self.scalar(ops[1], 0), self.scalar(ops[1], 1)
            self.put_scalar(ops[0], low, 0)
            self.put_scalar(ops[0], high, 1)
        elif name == "s_cselect_b32":
            self.put_scalar(ops[0], a if self.scc else b)
        elif name == "s_mul_i32":
            self.put_scalar(ops[0], a * b)
        else:
            value = {
                "s_add_u32": a + b,
                "s_and_b32": a & b,
                "s_or_b32": a | b,
                "s_xor_b32": a ^ b,
                "s_lshl_b32": a << (b & 31),
            }[name]
            self.put_scalar(ops[0], value)
            self.scc = int(value > M32) if name == "s_add_u32" else int(value & M32 != 0)

    def valu(self, instr):
        name, ops = instr.mnemonic, instr.operands
        if name == "v_readlane_b32":
            self.put_scalar(ops[0], self.vector(ops[1])[self.scalar(ops[2]) & 31])
            return
        if name == "v_readfirstlane_b32":
            lane = (self.exec & -self.exec).bit_length() - 1 if self.exec else 0
            self.put_scalar(ops[0], self.vector(ops[1])[lane])
            return
        if name == "v_writelane_b32":
            reg, k = (ops[0].reg, ops[0].first) if isinstance(ops[0], Part) else (ops[0], 0)
            value = self.regs.get((reg, k), np.zeros(LANES, np.uint32)).copy()
            value[self.scalar(ops[2]) & 31] = self.scalar(ops[1])
            self.regs[reg, k] = value
            return
        if name.startswith("v_cmp_"):
            a, b = self.vector(ops[1]), self.vector(ops[2])
            bits = {"v_cmp_lt_u32": a < b, "v_cmp_eq_u32": a == b, "v_cmp_gt_u32": a > b}[name] & self.lanes()
            self.put_scalar(ops[0], sum(1 << i for i in range(LANES) if bits[i]))
            return
        if name.startswith("v_wmma"):
            self.matrix(ops)
            return
        if name == "v_mad_u64_u32":
            a, b = self.vector(ops[2]).astype(object), self.vector(ops[3]).astype(object)
            c = self.vector(ops[4], 0).astype(object) + (self.vector(ops[4], 1).astype(object) << 32)
            value = a * b + c
            self.put_vector(ops[0], np.array([int(x) & M32 for x in value], np.uint32), 0)
            self.put_vector(ops[0], np.array([int(x) >> 32 & M32 for x in value], np.uint32), 1)
            return
        sources = [self.vector(one) for one in ops[1:]]
        with np.errstate(all="ignore"):
            self.put_vector(ops[0], self.value(name, ops, sources))

    def value(self, name, ops, sources):
        a = sources[0]
        b = sources[1] if len(sources) > 1 else None
        f = [one.view(np.float32) for one in sources]
        if name in ("v_fmac_f32", "v_fma_f32"):
            added = self.vector(ops[0]).view(np.float32) if name == "v_fmac_f32" else f[2]
            return (
                (f[0].astype(np.float64) * f[1].astype(np.float64) + added.astype(np.float64))
                .astype(np.float32)
                .view(np.uint32)
            )
        if name == "v_cndmask_b32":
            mask = self.scalar(ops[3])
            return np.where([mask >> i & 1 for i in range(LANES)], b, a)
        table = {
            "v_mov_b32": lambda: a, "v_add_nc_u32": lambda: a + b, "v_sub_nc_u32": lambda: a - b, "v_mul_lo_u32": lambda: a * b,
            "v_and_b32": lambda: a & b, "v_or_b32": lambda: a | b, "v_xor_b32": lambda: a ^ b,
            "v_lshlrev_b32": lambda: b << (a & np.uint32(31)), "v_lshrrev_b32": lambda: b >> (a & np.uint32(31)),
            "v_add_f32": lambda: (f[0] + f[1]).view(np.uint32), "v_mul_f32": lambda: (f[0] * f[1]).view(np.uint32),
            "v_max_f32": lambda: np.maximum(f[0], f[1]).view(np.uint32), "v_cvt_f32_u32": lambda: a.astype(np.float32).view(np.uint32),
            "v_sub_f32": lambda: (f[0] - f[1]).view(np.uint32),
            "v_add3_u32": lambda: a + b + sources[2], "v_lshl_add_u32": lambda: (a << (b & np.uint32(31))) + sources[2],
            "v_min_u32": lambda: np.minimum(a, b), "v_max_u32": lambda: np.maximum(a, b),
        }  # fmt: skip
        return table[name]()

    def matrix(self, ops):
        """v_wmma_f32_16x16x16_f16. Lanes 0 to 15 hold the rows of A, and lanes 16 to 31 copies of them; B has its
        columns so. Element i of C in lane l is row 2i + l // 16.
        """

        def halves(operand):
            words = np.stack([self.vector(operand, k) for k in range(8)], axis=1)
            return words.copy().view(np.float16).reshape(LANES, 16)[:16].astype(np.float64)

        product = halves(ops[1]) @ halves(ops[2]).T
        for i in range(8):
            added = self.vector(ops[3], i) if not isinstance(ops[3], (int, float)) else np.zeros(LANES, np.uint32)
            value = np.array([product[2 * i + lane // 16, lane % 16] for lane in range(LANES)])
            self.put_vector(ops[0], (value + added.view(np.float32)).astype(np.float32).view(np.uint32), i)

    def access(self, instr):
        name, ops = instr.mnemonic, instr.operands
        words = int(name.rsplit("_b", 1)[1]) // 32 if "2addr" not in name else 1
        offset = instr.modifiers.get("offset", 0)
        if name.startswith("s_load"):
            base = self.scalar(ops[1], 0) | self.scalar(ops[1], 1) << 32
            for k in range(words):
                self.put_scalar(ops[0], self.memory(base + ops[2] + 4 * k), k)
            return
        active = [i for i in range(LANES) if self.exec >> i & 1]
        if name.startswith("ds_"):
            address = self.vector(ops[1] if "load" in name else ops[0])
            for k in range(words):
                if "load" in name:
                    value = np.array(
                        [self.lds.get(int(address[i]) + offset + 4 * k, 0) if i in active else 0 for i in range(LANES)],
                        np.uint32,
                    )
                    self.put_vector(ops[0], value, k) if k == 0 else self._later(ops[0], value, k)
                else:
                    data = self.vector(ops[1], k)
                    for i in active:
                        self.lds[int(address[i]) + offset + 4 * k] = int(data[i])
            return
        load = "load" in name
        base = self.scalar(ops[2], 0) | self.scalar(ops[2], 1) << 32
        address = self.vector(ops[1] if load else ops[0]).copy()
        loaded = []
        for k in range(words):
            data = None if load else self.vector(ops[1], k)
            value = np.zeros(LANES, np.uint32)
            for i in active:
                place = base + int(address[i]) + offset + 4 * k
                if load:
                    value[i] = self.memory(place)
                else:
                    self.memory(place, int(data[i]))
            loaded.append(value)
        if load:
            for k, value in enumerate(loaded):
                self.put_vector(ops[0], value, k)

    def _later(self, operand, value, k):
        self.put_vector(operand, value, k)


class Words:
    """The evaluator's memory: words by address. Only mapped words exist."""

    def __init__(self, regions):
        self.regions = regions

    def __call__(self, gpu_va, value=None):
        for base, words in self.regions:
            if base <= gpu_va < base + 4 * len(words):
                if value is None:
                    return int(words[(gpu_va - base) // 4])
                words[(gpu_va - base) // 4] = value
                return value
        raise AssertionError(f"{gpu_va:#x} is mapped to nothing")


@dataclass
class Arena:
    """An engine's memory with exact bounds."""

    regions: list = field(default_factory=list)
    epoch: int = 0

    def place(self, gpu_va, data, executable=False):
        raw = np.frombuffer(bytes(data), np.uint8).copy()
        self.regions.append((Region(gpu_va, raw.size, raw.ctypes.data, not executable, executable), raw))
        return raw

    def region(self, gpu_va, write, execute=False):
        for one, _ in self.regions:
            if one.gpu_va <= gpu_va < one.gpu_va + one.size_bytes:
                return one
        raise MemoryFault(gpu_va, write, "not mapped")


class _Deaf:
    def message(self, code, m0, wave):
        return 0

    def realtime(self):
        return 0


INPUT = np.random.default_rng(7).integers(0, 1 << 32, IN_WORDS, dtype=np.uint64).astype(np.uint32)
ENGINES = {"interpreter": Interpreter(), "translator": Translator()}


def run_binary(binary, out_words, engine="interpreter", strict=True, groups=1):
    """Run a kernel that takes two buffers; return the second buffer, and the run."""
    arena = Arena()
    arena.place(CODE_VA, binary.code, executable=True)
    arena.place(ARGS_VA, np.array([IN_VA, 0, OUT_VA, 0, 5, 9, 0, 0], np.uint32).tobytes())
    arena.place(IN_VA, INPUT.tobytes())
    out = arena.place(OUT_VA, bytes(4 * out_words))
    wave_bytes = -(-binary.scratch_bytes * LANES // 1024) * 1024
    waves = groups * -(-binary.group_size // LANES)
    if wave_bytes:
        arena.place(SCRATCH_VA, bytes(wave_bytes * waves))
    dispatch = Dispatch(
        pc=CODE_VA, wave_size=32, group_size=(binary.group_size, 1, 1), group_count=(groups, 1, 1), vgpr_count=-(-binary.vgprs // 8) * 8,
        user_sgprs=(ARGS_VA, 0, *[0] * (binary.user_sgprs - 2)), enable_group_id=binary.group_ids, lds_size_bytes=binary.lds_bytes,
        scratch_base=SCRATCH_VA if wave_bytes else 0, scratch_wave_bytes=wave_bytes, float_mode=binary.float_mode,
    )  # fmt: skip
    run = ENGINES[engine].start(dispatch, arena, _Deaf(), strict=strict)
    for _ in range(4000):
        if run.step(10_000) or run.violations:
            break
    return out.view(np.uint32), run


def evaluate(code, out_words):
    """Return what the code stores according to the evaluator."""
    out = np.zeros(out_words, np.uint32)
    memory = Words([(ARGS_VA, np.array([IN_VA, 0, OUT_VA, 0, 5, 9, 0, 0], np.uint32)), (IN_VA, INPUT), (OUT_VA, out)])
    evaluator = Evaluator(code, memory)
    for reg in code.inputs:
        if reg.bank == "v":
            evaluator.regs[reg, 0] = np.arange(LANES, dtype=np.uint32)
        elif reg.fixed == 0:
            evaluator.regs[reg, 0], evaluator.regs[reg, 1] = ARGS_VA, 0
        else:
            evaluator.regs[reg, 0] = 0
    evaluator.run()
    return out


class Maker:
    """Writes a program, by hand-written calls or at random. `code` is the result."""

    def __init__(self, name="kernel", lds_bytes=0, target="gfx1100"):
        self.kernarg = Reg("s", 2, name="kernarg", fixed=0)
        self.group = Reg("s", name="group", fixed=15)
        self.thread = Reg("v", name="thread", fixed=0)
        self.blocks = [Block("entry")]
        self.depth = 0
        self.out_words = 0
        self.code = Code(
            name, target, self.blocks, [self.kernarg, self.group, self.thread], 32, LANES, lds_bytes=lds_bytes
        )
        self.args = Reg("s", 4, name="args")
        self.scalars = Reg("s", 2, name="scalars")
        self("s_load_b128", self.args, self.kernarg, 0)
        self("s_load_b64", self.scalars, self.kernarg, 16)
        self.source, self.target = self.args[0:2], self.args[2:4]
        self.lane4 = self.v("v_lshlrev_b32", 2, self.thread)

    def __call__(self, mnemonic, *operands, **modifiers):
        self.blocks[-1].instrs.append(Instr(mnemonic, *operands, **modifiers))

    def v(self, mnemonic, *sources, count=1, **modifiers):
        reg = Reg("v", count)
        self(mnemonic, reg, *sources, **modifiers)
        return reg

    def s(self, mnemonic, *sources, count=1, **modifiers):
        reg = Reg("s", count)
        self(mnemonic, reg, *sources, **modifiers)
        return reg

    def block(self, name="block"):
        made = Block(f"{name}{len(self.blocks)}", self.depth)
        self.blocks.append(made)
        return made

    def load(self, number, count=1):
        """Load `count` dwords for each lane from the input."""
        name = {1: "b32", 2: "b64", 4: "b128"}[count]
        if count == 1:
            return self.v(f"global_load_{name}", self.lane4, self.source, offset=128 * (number % 31))
        address = self.v("v_lshlrev_b32", {2: 3, 4: 4}[count], self.thread)
        return self.v(f"global_load_{name}", address, self.source, count=count, offset=16 * (number % 64))

    def store(self, value):
        """Store one dword a lane behind the earlier ones."""
        at = self.out_words * 4
        self.out_words += LANES
        if at < 4096 - 128:
            self("global_store_b32", self.lane4, value, self.target, offset=at)
        else:
            self("global_store_b32", self.v("v_add_nc_u32", at, self.lane4), value, self.target)

    def end(self):
        self("s_endpgm", 0)
        return self.code

    def divergent(self, condition, body, skip=False):
        """Write `body` so that only the lanes of a mask run it."""
        saved = self.s("s_and_saveexec_b32", condition)
        after = Block(f"after{len(self.blocks)}.{id(saved) & 0xFFF}", self.depth)
        if skip:
            self("s_cbranch_execz", after)
            self.block("then")
        body()
        self.blocks.append(after)
        self("s_mov_b32", EXEC_LO, saved)

    def loop(self, count, body):
        """Write a loop that runs `body(counter)` so many times."""
        counter = self.s("s_mov_b32", 0)
        self.depth += 1
        head = self.block("loop")
        body(counter)
        self("s_add_co_u32" if self.code.target == "gfx1201" else "s_add_u32", counter, counter, 1)
        self("s_cmp_lt_u32", counter, count)
        self("s_cbranch_scc1", head)
        head.loop_end = self.blocks[-1]
        self.depth -= 1
        self.block("exit")


class RandomProgram:
    """A seeded program of straight code, loops, conditions and wide registers, with `live` values alive at once."""

    TWO = (
        "v_add_nc_u32",
        "v_sub_nc_u32",
        "v_mul_lo_u32",
        "v_and_b32",
        "v_or_b32",
        "v_xor_b32",
        "v_lshlrev_b32",
        "v_lshrrev_b32",
        "v_min_u32",
        "v_max_u32",
    )
    THREE = ("v_add3_u32", "v_lshl_add_u32")
    SCALAR = ("s_add_u32", "s_and_b32", "s_or_b32", "s_xor_b32", "s_mul_i32", "s_lshl_b32")

    def __init__(self, seed, size=60, live=12, scalars=6, nests=3):
        self.random = random.Random(seed)
        self.make = Maker(f"random{seed}", lds_bytes=4096)
        self.live, self.scalar_limit, self.nests = live, scalars, nests
        self.values = [self.make.thread, self.make.lane4]
        self.floats = [self.make.v("v_cvt_f32_u32", self.make.thread)]
        self.scalars = [self.make.scalars[0], self.make.scalars[1]]
        self.lds = 0
        self.masked = 0
        while len(self.values) < min(live, 24):
            self.values.append(self.make.load(self.random.randrange(1000)))
        self.region(size)
        for value in self.values + self.floats:
            self.make.store(value)
        for value in self.scalars:
            self.make.store(self.make.v("v_mov_b32", value))
        self.code, self.out_words = self.make.end(), self.make.out_words

    def value(self):
        return self.random.choice(self.values)

    def source(self):
        roll = self.random.random()
        if roll < 0.72:
            return self.value()
        if roll < 0.86:
            return self.random.choice(self.scalars)
        return self.random.choice((1, 7, 33, -3, 0x12345, 0xFFFF0000))

    def keep(self, reg):
        if len(self.values) < self.live:
            self.values.append(reg)
        else:
            self.values[self.random.randrange(2, len(self.values))] = reg

    def keep_scalar(self, reg):
        if len(self.scalars) < self.scalar_limit:
            self.scalars.append(reg)
        else:
            self.scalars[self.random.randrange(len(self.scalars))] = reg

    def region(self, size, level=0):
        while size > 0:
            roll = self.random.random()
            if roll < 0.06 and level < self.nests and size > 6:
                self.a_loop(size // 2, level)
                size -= size // 2
            elif roll < 0.14 and level < self.nests and size > 4:
                self.a_condition(size // 3 + 1, level)
                size -= size // 3
            else:
                self.random.choice(self.KINDS)(self)
                size -= 1

    def two(self):
        self.keep(self.make.v(self.random.choice(self.TWO), self.source(), self.value()))

    def three(self):
        self.keep(self.make.v(self.random.choice(self.THREE), self.value(), self.value(), self.source()))

    def again(self):
        """Write to an existing register; under a condition only some lanes write."""
        reg = self.value()
        if reg is not self.make.thread and reg is not self.make.lane4:
            self.make(self.random.choice(self.TWO), reg, self.source(), self.value())

    def scalar(self):
        name = self.random.choice(self.SCALAR)
        a, b = self.random.choice(self.scalars), self.random.choice((*self.scalars, 3, 17))
        if name == "s_lshl_b32":
            b = self.random.randrange(5)
        self.keep_scalar(self.make.s(name, a, b))

    def chosen(self):
        self.make("s_cmp_lt_u32", self.random.choice(self.scalars), self.random.choice((5, 100, 1 << 20)))
        self.keep_scalar(
            self.make.s("s_cselect_b32", self.random.choice(self.scalars), self.random.choice(self.scalars))
        )

    def compare(self):
        mask = self.mask()
        self.keep(self.make.v("v_cndmask_b32", self.value(), self.value(), mask))

    def mask(self):
        name = self.random.choice(("v_cmp_lt_u32", "v_cmp_eq_u32", "v_cmp_gt_u32"))
        if self.random.random() < 0.3:
            self.make(name, VCC_LO, self.source(), self.value())
            return VCC_LO
        return self.make.s(name, self.source(), self.value())

    def wide_load(self):
        count = self.random.choice((2, 4))
        reg = self.make.load(self.random.randrange(1000), count)
        for k in range(count):
            if self.random.random() < 0.6:
                self.keep(self.make.v("v_add_nc_u32", self.random.randrange(60), reg[k]))

    def wide_lds(self):
        """Compose a wide register from parts, send it through LDS and read it back."""
        count = self.random.choice((2, 4))
        reg = Reg("v", count)
        for k in range(count):
            if self.random.random() < 0.5:
                self.make("v_mov_b32", reg[k], self.value())
            else:
                self.make(self.random.choice(self.TWO), reg[k], self.value(), self.value())
        address = self.make.v("v_lshlrev_b32", 4, self.make.thread)
        offset = self.random.choice((0, 512, 1024))
        self.make(f"ds_store_b{32 * count}", address, reg, offset=offset)
        back = self.make.v(f"ds_load_b{32 * count}", address, count=count, offset=offset)
        for k in range(count):
            self.keep(self.make.v("v_xor_b32", back[k], self.value()))

    def float_op(self):
        if self.random.random() < 0.3:
            masked = self.make.v("v_and_b32", 0xFF, self.value())
            self.floats.append(self.make.v("v_cvt_f32_u32", masked))
            del self.floats[:-6]
        else:
            accumulator = self.make.v("v_mov_b32", self.random.choice(self.floats))
            for _ in range(self.random.randrange(1, 4)):
                small = self.make.v("v_cvt_f32_u32", self.make.v("v_and_b32", 7, self.value()))
                self.make(
                    "v_fmac_f32",
                    accumulator,
                    small,
                    self.make.v("v_cvt_f32_u32", self.make.v("v_and_b32", 3, self.value())),
                )
            self.keep(accumulator)

    def product(self):
        added = Reg("v", 2)
        self.make("v_mov_b32", added[0], self.value())
        self.make("v_mov_b32", added[1], self.value())
        reg = self.make.v("v_mad_u64_u32", Special("null"), self.value(), self.value(), added, count=2)
        self.keep(self.make.v("v_xor_b32", reg[0], reg[1]))

    def lane(self):
        # Under a mask, no lane may be active, and the instruction would read what was never written.
        if not self.masked:
            self.keep_scalar(self.make.s("v_readfirstlane_b32", self.value()))

    KINDS = (
        two,
        two,
        two,
        two,
        three,
        again,
        again,
        scalar,
        scalar,
        chosen,
        compare,
        compare,
        wide_load,
        wide_lds,
        float_op,
        float_op,
        product,
        lane,
    )

    def a_loop(self, size, level):
        """Write a loop that carries values by copies at its end, two of which are exchanged."""
        make = self.make
        carried = []
        for _ in range(self.random.randrange(1, 4)):
            carried.append(make.v("v_mov_b32", self.source()))
        values, scalars, floats = list(self.values), list(self.scalars), list(self.floats)
        self.values += carried

        def body(counter):
            self.scalars = [*self.scalars, counter]
            self.region(size, level + 1)
            new = [make.v("v_add_nc_u32", self.value(), old) for old in carried]
            if len(carried) > 1:
                hold = make.v("v_mov_b32", carried[0])
                make("v_mov_b32", carried[0], carried[1])
                make("v_mov_b32", carried[1], hold)
            for old, made in list(zip(carried, new, strict=True))[2:] or list(zip(carried, new, strict=True))[:1]:
                make("v_mov_b32", old, made)

        make.loop(self.random.choice((1, 2, 3)), body)
        self.values, self.scalars, self.floats = values, scalars, floats
        for reg in carried:
            self.keep(reg)

    def a_condition(self, size, level):
        make = self.make
        values, scalars, floats = list(self.values), list(self.scalars), list(self.floats)
        outer = make.v("v_mov_b32", self.source())
        skip = self.random.random() < 0.5

        def body():
            self.masked += 1
            self.region(size, level + 1)
            self.masked -= 1
            make("v_xor_b32", outer, self.value(), self.value())

        mask = self.mask()
        make.divergent(mask, body, skip)
        self.values, self.floats = values, floats
        self.scalars = scalars
        self.keep(outer)


@dataclass
class Tools:
    """What tests of single passes need."""

    maker = Maker
    random_program = RandomProgram
    run_binary = staticmethod(run_binary)
    evaluate = staticmethod(evaluate)

    @staticmethod
    def prepared(code, upto="waits", **sizes):
        """Run the passes before `upto`; return the program and the numbers of VGPRs and SGPRs."""
        split_blocks(code)
        place_group_ids(code)
        program = Program(code)
        counts = (0, 0)
        if upto != "schedule":
            schedule(program)
        if upto not in ("schedule", "allocate"):
            allocation = allocate(program, **sizes)
            counts = allocation.vgprs, allocation.sgprs
            if upto != "dual":
                pair(program)
        return program, counts

    @staticmethod
    def check(code, out_words, engines=("interpreter",), **options):
        """Evaluate, compile and run a program; all must store the same. Return the binary."""
        expected = evaluate(code, out_words)
        binary = finish(code, **options)
        for engine in engines:
            got, run = run_binary(binary, out_words, engine)
            assert not run.violations, f"{code.name} on {engine}: {run.violations[0]}\n{code}"
            assert np.array_equal(got, expected), (
                f"{code.name} on {engine}: {np.flatnonzero(got != expected)[:8]}\n{code}"
            )
        return binary


@pytest.fixture(scope="session")
def tools():
    """The makers, the evaluator, the engines, and a function that runs the passes before a given one."""
    return Tools


@pytest.fixture(scope="session")
def assembled(headers):
    """`assembled(code)` returns the bytes that LLVM 22's assembler makes of finished code's text."""
    command = llvm_mc(headers("llvm-22"))

    def run(code, accept=True):
        argv = [*command, "-triple=amdgcn-amd-amdhsa", f"-mcpu={code.target}", "-show-encoding", "-mattr=-real-true16"]
        done = subprocess.run(argv, input=llvm_text(code).encode(), capture_output=True, timeout=60, check=False)
        if accept:
            assert not done.returncode, done.stderr.decode()[:2000]
        found = re.findall(r"encoding: \[(.*?)\]", done.stdout.decode())
        return list(found), done.returncode

    return run


def llvm_text(code):
    """Return finished code as assembly text, with labels for branches."""
    labels = {block: f".L{i}" for i, block in enumerate(code.blocks)}
    lines = []
    for block in code.blocks:
        lines.append(f"{labels[block]}:")
        for instr in block.instrs:
            lines.append(
                " :: ".join(_line(one, labels) for one in ((instr.x, instr.y) if isinstance(instr, Pair) else (instr,)))
            )
    return "\n".join(lines) + "\n"


def _line(instr, labels):
    operands = [labels.get(one, str(one)) if isinstance(one, Block) else str(one) for one in instr.operands]
    return f"{instr.mnemonic} {', '.join(operands)}" + "".join(
        f" {name}" if value is True else f" {name}:{value}" for name, value in instr.modifiers.items()
    )
