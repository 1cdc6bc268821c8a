"""Several accesses joined to one instruction: which ones are joined and which are not. Registers and memory hold the
same afterwards.
"""

import random

import numpy as np
import pytest

from ringup.compiler.amd.instructions.code import Block, Code, Instr, Reg, Signed
from ringup.compiler.amd.instructions.steps import Program
from ringup.compiler.amd.objects import object_of
from ringup.compiler.amd.passes.join_accesses import FORMS, join_accesses
from ringup.compiler.amd.pipeline import finish
from ringup.compiler.amd.select.function import select
from ringup.compiler.amd.target import arguments_of
from ringup.compiler.machine.build import Builder
from ringup.compiler.machine.ir import I32, I64, Param
from ringup.silicon.shader import workbench
from ringup.silicon.shader.amd.translator.engine import Translator
from ringup.silicon.shader.program import load as loaded

A, B, X, Y, Z = (Reg("v", name=name) for name in "abxyz")
WIDE = Reg("v", 2, name="wide")
S, OTHER = Reg("s", 2, name="s"), Reg("s", 2, name="other")


def store(address, data, offset=0, name="ds_store_b32"):
    return Instr(name, address, data, **({"offset": offset} if offset else {}))


def load(to, address, offset=0, name="ds_load_b32"):
    return Instr(name, to, address, **({"offset": offset} if offset else {}))


def fetch(to, offset=0, name="global_load_b32", buffer=None, address=None, base=None):
    made = Instr(name, to, address or A, base or S, **({"offset": offset} if offset else {}))
    made.buffer = buffer
    return made


def put(data, offset=0, name="global_store_b32", buffer=None):
    made = Instr(name, A, data, S, **({"offset": offset} if offset else {}))
    made.buffer = buffer
    return made


def regs(count, size=1):
    return [Reg("v", size, name=f"r{i}") for i in range(count)]


def joined(*instrs, inputs=(), **code):
    """Return the block's steps after the pass."""
    program = Program(Code("hand", "gfx1100", [Block("b0", instrs=list(instrs))], list(inputs), 0, 32, **code))
    join_accesses(program)
    # The units that a step reads and writes are those of its operands.
    for step in program.blocks[0]:
        again = program.step(step.instr)
        assert (step.reads, step.writes) == (again.reads, again.writes)
    return program.blocks[0]


def paired(*instrs, **code):
    """Return the text of a block after the pass."""
    return [str(step) for step in joined(*instrs, **code)]


def mnemonics(*instrs, **code):
    return [step.instr.mnemonic for step in joined(*instrs, **code)]


def test_neighbours_of_one_address_become_one_store_at_the_later_place():
    between = Instr("v_mov_b32", Z, 7)
    assert paired(store(A, X, 4), between, store(A, Y, 12)) == [
        "v_mov_b32 v%z, 7",
        "ds_store_2addr_b32 v%a, v%x, v%y offset0:1 offset1:3",
    ]


def test_an_odd_one_stays():
    found = paired(store(A, X), store(A, Y, 4), store(A, Z, 8))
    assert found == ["ds_store_2addr_b32 v%a, v%x, v%y offset1:1", "ds_store_b32 v%a, v%z offset:8"]


def test_doubles_count_in_their_own_size():
    found = paired(store(A, WIDE, 8, "ds_store_b64"), store(A, WIDE, 2040, "ds_store_b64"))
    assert found == ["ds_store_2addr_b64 v%a, v%wide:2, v%wide:2 offset0:1 offset1:255"]


@pytest.mark.parametrize(
    "between",
    [
        store(B, Z), Instr("ds_load_b32", Z, B), Instr("s_barrier"), Instr("v_mov_b32", X, 1), Instr("v_mov_b32", A, 1),
        Instr("v_cmpx_eq_u32", X, Y), store(A, Z, 4),
    ],
    ids=["another address", "a load", "a barrier", "the data is written", "the address is written", "EXEC is written", "the same bytes"],
)  # fmt: skip
def test_what_comes_between_keeps_stores_apart(between):
    assert paired(store(A, X, 4), store(A, Y, 200))[0].startswith("ds_store_2addr_b32")
    found = paired(store(A, X, 4), between, store(A, Y, 200))
    assert found[0] == str(store(A, X, 4))


def test_far_offsets_count_in_strides_of_64():
    found = paired(store(A, X, 1280), store(A, Y, 65280))
    assert found == ["ds_store_2addr_stride64_b32 v%a, v%x, v%y offset0:5 offset1:255"]


def test_an_address_is_moved_where_two_pairs_gain_by_it():
    found = paired(*(store(A, X, 10240 + 80 * i) for i in range(4)))
    assert len(found) == 3
    assert found[0].startswith("v_add_nc_u32 ")
    assert found[0].endswith(", 10240, v%a")
    assert [one.partition("v%x, ")[2] for one in found[1:]] == ["v%x offset1:20", "v%x offset0:40 offset1:60"]
    assert not [one for one in paired(store(A, X, 10240), store(A, X, 10320)) if "2addr" in one]


@pytest.mark.parametrize(
    "offsets", [(0, 4, 8), (0, 1024, 2048, 4096), (6144, 6148, 7000, 7164, 7168), (256, 8192, 4, 12, 3000)]
)
def test_the_same_lies_in_lds_afterwards(offsets):
    build = Builder("scattered", [Param("out", I64, True, True, 64 << 10)], 32)
    build.function.lds_bytes = 16384
    own = build.mul(build.op("thread_id", I32), 4 * len(offsets) + 0)
    lane = build.mul(build.op("thread_id", I32), 8192)
    first = build.op("and", I32, lane, build.const(0))
    only = build.compare("eq", build.op("thread_id", I32), build.const(3))
    with build.when(only):
        for i, offset in enumerate(offsets):
            build.lds_store(first, build.add(build.op("thread_id", I32), 100 * i), constant=offset)
    build.barrier()
    for i, offset in enumerate(offsets):
        build.store(build.param(0), own, build.lds_load(I32, first, constant=offset), constant=4 * i)
    function = build.function
    elf = object_of([finish(select(function, "gfx1100"), arguments=arguments_of(function.params))])
    out = np.zeros(16 << 10, np.uint32)
    workbench.run(Translator(), loaded(elf), "scattered", [out], groups=(1, 1, 1), group_size=(32, 1, 1))
    assert (out[: 32 * len(offsets)].reshape(32, -1) == [3 + 100 * i for i in range(len(offsets))]).all()


def test_loads_of_lds_become_one_at_the_first_place_into_a_tuple_that_is_named_everywhere():
    x, y = regs(2)
    found = joined(
        load(x, A, 8), Instr("v_add_f32", Z, x, x), load(y, A), Instr("v_add_f32", Z, Signed(y, neg=True), x)
    )
    assert [one.instr.mnemonic for one in found] == ["ds_load_2addr_b32", "v_add_f32", "v_add_f32"]
    (pair, address), (_, *first), (_, negated, second) = (one.instr.operands for one in found)
    assert (pair.count, address, found[0].instr.modifiers) == (2, A, {"offset1": 2})
    # The higher offset is the second half.
    assert first == [pair[1], pair[1]]
    assert (negated, second) == (Signed(pair[0], neg=True), pair[1])


def test_loads_of_64_bits_of_lds_pair_as_they_are_and_parts_of_them_are_found_again():
    x, y = regs(2, 2)
    found = joined(load(x, A, 0, "ds_load_b64"), load(y, A, 144, "ds_load_b64"), Instr("v_add_f32", Z, x[1], y[0]))
    pair = found[0].instr.operands[0]
    assert (found[0].instr.mnemonic, pair.count, found[0].instr.modifiers) == ("ds_load_2addr_b64", 4, {"offset1": 18})
    assert found[1].instr.operands[1:] == [pair[1], pair[2]]


def test_offsets_of_loads_count_in_strides_and_from_a_moved_address_like_those_of_stores():
    far = regs(6)
    assert mnemonics(load(far[0], A, 2048), load(far[1], A, 65280)) == ["ds_load_2addr_stride64_b32"]
    found = joined(*(load(one, A, 9000 + 8 * i) for i, one in enumerate(far)))
    assert [one.instr.mnemonic for one in found] == ["v_add_nc_u32", *["ds_load_2addr_b32"] * 3]
    moved = found[0].instr.operands[0]
    assert found[0].instr.operands[1:] == [9000, A]
    assert [one.instr.operands[1] for one in found[1:]] == [moved] * 3
    assert [one.instr.modifiers for one in found[1:]] == [
        {"offset1": 2}, {"offset0": 4, "offset1": 6}, {"offset0": 8, "offset1": 10},
    ]  # fmt: skip


@pytest.mark.parametrize("offsets", [(2, 6), (0, 1022), (9000, 9008), (1020, 1028)])
def test_what_two_offsets_cannot_say_is_loaded_twice(offsets):
    assert mnemonics(*(load(one, A, at) for one, at in zip(regs(2), offsets, strict=True))) == ["ds_load_b32"] * 2


@pytest.mark.parametrize(
    "between",
    [
        store(A, Z, 2000), store(B, Z), store(B, WIDE, 0, "ds_store_b64"), Instr("ds_add_u32", B, Z), Instr("s_barrier"),
        Instr("v_mov_b32", A, 1), Instr("v_cmpx_eq_u32", X, Y), Instr("ds_load_b32", A, A), Instr("flat_store_b32", WIDE, Z),
    ],
    ids=["a store", "another address", "a wider one", "an atomic", "a barrier", "the address", "EXEC", "the address is loaded", "flat"],
)  # fmt: skip
def test_what_comes_between_keeps_loads_of_lds_apart(between):
    x, y = regs(2)
    assert mnemonics(load(x, A), between, load(y, A, 4)) == ["ds_load_b32", between.mnemonic, "ds_load_b32"]


def test_other_loads_and_memory_that_is_not_lds_keep_nothing_apart():
    x, y, other, wide = *regs(3), Reg("v", 4)
    between = [load(other, B), load(wide, B, 16, "ds_load_b128"), fetch(Z), put(Z)]
    found = mnemonics(load(x, A), *between, load(y, A, 4))
    assert found == ["ds_load_2addr_b32", *(one.mnemonic for one in between)]


@pytest.mark.parametrize(
    "use",
    [
        lambda x, y: [Instr("v_mov_b32", Z, y)], lambda x, y: [Instr("v_mov_b32", y, 0)], lambda x, y: [Instr("v_mov_b32", x, 0)],
    ],
    ids=["copied", "written again", "the first is written again"],
)  # fmt: skip
def test_registers_that_something_ties_go_into_no_tuple(use):
    x, y = regs(2)
    assert "2addr" not in " ".join(mnemonics(load(x, A), load(y, A, 4), *use(x, y)))


def test_an_input_and_a_register_of_a_tuple_go_into_no_other():
    x, y, z, t = regs(4)
    assert mnemonics(load(x, A), load(y, A, 4), inputs=[x]) == ["ds_load_b32"] * 2
    assert mnemonics(load(Reg("v", fixed=5), A), load(y, A, 4)) == ["ds_load_b32"] * 2
    found = joined(load(x, A), load(y, A, 4), put(x), put(y, 4))
    assert [one.instr.mnemonic for one in found] == ["ds_load_2addr_b32", "global_store_b64"]
    assert found[1].instr.operands[1] == found[0].instr.operands[0][0:2]
    found = mnemonics(load(x, A), load(y, A, 4), load(z, A, 8), load(t, A, 12), put(y), put(z, 4))
    assert found == [*["ds_load_2addr_b32"] * 2, *["global_store_b32"] * 2]


def test_parts_that_lie_as_memory_does_need_no_new_tuple():
    whole = Reg("v", 4, name="whole")
    found = joined(fetch(whole[1], 4), Instr("v_mov_b32", Z, whole[0]), fetch(whole[2], 8))
    assert [one.instr.mnemonic for one in found] == ["global_load_b64", "v_mov_b32"]
    assert found[0].instr.operands[0] == whole[1:3]
    seen = joined(fetch(whole[1], 4), Instr("v_mov_b32", Z, whole[2]), fetch(whole[2], 8))
    assert [one.instr.mnemonic for one in seen] == ["global_load_b32", "v_mov_b32", "global_load_b32"]
    assert mnemonics(fetch(whole[2], 4), fetch(whole[1], 8)) == ["global_load_b32"] * 2


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ([(0, 4), (4, 4), (8, 4), (12, 4)], ["global_load_b128"]),
        ([(8, 4), (0, 4), (4, 4)], ["global_load_b96"]),
        ([(-8, 8), (0, 4), (4, 4), (8, 4), (12, 4)], ["global_load_b128", "global_load_b64"]),
        ([(0, 12), (12, 4)], ["global_load_b128"]),
        ([(0, 8), (8, 12)], ["global_load_b64", "global_load_b96"]),
        ([(0, 4), (8, 4)], ["global_load_b32"] * 2),
        ([(0, 4), (0, 4), (4, 4)], ["global_load_b32", "global_load_b64"]),
        ([(2, 4), (6, 4)], ["global_load_b64"]),
    ],
)  # fmt: skip
def test_neighbours_in_global_memory_become_as_wide_as_they_are(parts, expected):
    made = []
    for at, size in parts:
        made.append(fetch(Reg("v", size // 4), at, f"global_load_b{size * 8}"))
    found = joined(*made)
    assert sorted(one.instr.mnemonic for one in found) == sorted(expected)
    covered = sorted((one.instr.modifiers.get("offset", 0), 4 * one.instr.operands[0].count) for one in found)
    assert {at + k for at, size in covered for k in range(size)} == {at + k for at, size in parts for k in range(size)}


@pytest.mark.parametrize(
    ("between", "joins"),
    [
        (put(Z, 64, buffer=1), True), (put(Z, 64, buffer=0), False), (put(Z, 64), False), (Instr("global_atomic_add_u32", A, Z, S), False),
        (Instr("v_mov_b32", A, 1), False), (Instr("s_mov_b64", S, 0), False), (store(B, Z), True), (Instr("buffer_gl0_inv"), False),
        (Instr("s_and_saveexec_b32", Reg("s"), Reg("s")), False), (fetch(Z, base=OTHER, buffer=1), True),
    ],
    ids=["another buffer", "the buffer", "any buffer", "an atomic", "the address", "the base", "LDS", "caches", "EXEC", "a load of another"],
)  # fmt: skip
def test_neighbours_are_joined_over_what_cannot_write_them(between, joins):
    x, y = regs(2)
    found = mnemonics(fetch(x, buffer=0), between, fetch(y, 4, buffer=0))
    assert found == (
        ["global_load_b64", between.mnemonic] if joins else ["global_load_b32", between.mnemonic, "global_load_b32"]
    )


def test_loads_that_ask_something_of_caches_and_other_bases_stay():
    x, y = regs(2)
    assert mnemonics(fetch(x), Instr("global_load_b32", y, A, S, offset=4, glc=1)) == ["global_load_b32"] * 2
    assert mnemonics(fetch(x), fetch(y, 4, base=OTHER)) == ["global_load_b32"] * 2
    assert mnemonics(fetch(x), fetch(y, 4, address=B)) == ["global_load_b32"] * 2


def test_stores_of_neighbours_become_one_at_the_last_place():
    x, y = regs(2)
    sums = [Instr("v_add_f32", one, Z, Z) for one in (x, y)]
    found = joined(sums[0], put(x), sums[1], put(y, 4))
    assert [one.instr.mnemonic for one in found] == ["v_add_f32", "v_add_f32", "global_store_b64"]
    whole = found[2].instr.operands[1]
    assert [one.instr.operands[0] for one in found[:2]] == [whole[0], whole[1]]
    # Nothing writes y.
    assert mnemonics(sums[0], put(x), put(y, 4)) == ["v_add_f32", *["global_store_b32"] * 2]
    assert mnemonics(put(x), fetch(Z, 64), put(y, 4)) == ["global_store_b32", "global_load_b32", "global_store_b32"]
    assert mnemonics(put(x), put(y, 2), put(Z, 4)) == ["global_store_b32"] * 3
    assert mnemonics(put(x), put(x, 4)) == ["global_store_b32"] * 2


def test_data_and_addresses_that_went_into_tuples_are_found_in_other_joined_accesses():
    x, y, p, q = regs(4)
    found = joined(load(x, A), load(y, A, 4), store(B, x), store(B, y, 8), load(p, x), load(q, x, 4))
    assert [one.instr.mnemonic for one in found] == ["ds_load_2addr_b32", "ds_store_2addr_b32", "ds_load_2addr_b32"]
    whole = found[0].instr.operands[0]
    assert found[1].instr.operands == [B, whole[0], whole[1]]
    assert found[2].instr.operands[1] == whole[0]
    moved = joined(load(x, A), load(y, A, 4), *(store(y, Z, 9000 + 8 * i) for i in range(4)))
    assert moved[1].instr.operands[1:] == [9000, moved[0].instr.operands[0][1]]


@pytest.mark.parametrize(
    ("live", "lds_bytes", "joins"), [(94, 0, True), (95, 0, False), (214, 0, True), (215, 0, False), (215, 65536, True)]
)
def test_registers_that_would_cost_waves_keep_loads_apart(live, lds_bytes, joins):
    """96 VGPRs allow 16 waves, 216 allow 7. A group that fills LDS runs alone whatever registers it uses."""
    x, y, *many = regs(live + 2)
    body = [
        fetch(x, buffer=0), Instr("v_add_f32", Z, x, x), *(Instr("v_add_f32", one, Z, Z) for one in many),
        *(put(one, 8 * i, buffer=1) for i, one in enumerate(many)), fetch(y, 4, buffer=0), put(y, 4000, buffer=1),
    ]  # fmt: skip
    code = {"lds_bytes": lds_bytes, "inputs": [A, S]}
    assert ("global_load_b64" in mnemonics(*body, **code)) is joins


@pytest.mark.parametrize(("live", "joins"), [(94, True), (95, False)])
def test_data_of_stores_waits_only_where_there_is_room(live, joins):
    many = regs(live)
    body = [
        store(A, X), Instr("v_mov_b32", Z, 0), *(Instr("v_add_f32", one, Z, Z) for one in many), *(put(one) for one in many),
        Instr("v_mov_b32", Y, 0), store(A, Y, 4),
    ]  # fmt: skip
    assert ("ds_store_2addr_b32" in mnemonics(*body, inputs=[A, S, X])) is joins


class RandomAccesses:
    """A seeded program of loads and stores: LDS and memory that belong to each lane, changing addresses, masks,
    barriers and tied registers.
    """

    WORDS = sorted({*range(0, 128, 4), *range(1024, 1152, 4), *range(1920, 2048, 4)})

    def __init__(self, tools, seed, target="gfx1100", size=70):
        self.random = random.Random(seed)
        make = self.make = tools.maker(f"accesses_{seed}", lds_bytes=65536, target=target)
        self.own = make.v("v_lshlrev_b32", 11, make.thread)
        self.addresses = [self.address(0), self.address(0), self.address(16)]
        self.places = [make.v("v_lshlrev_b32", 8, make.thread) for _ in range(2)]
        self.pool = [make.load(i) for i in range(4)]
        wide = Reg("v", 4)
        for k in range(4):
            make("v_xor_b32", wide[k], self.pool[k], 0x1234567 * k)
        for at in self.WORDS[::4]:
            make("ds_store_b128", self.own, wide, offset=at)
        for at in range(0, 256, 16):
            make("global_store_b128", self.places[0], wide, make.target, offset=at)
        make.out_words = 32 * 64
        self.some(size)
        total = make.v("v_mov_b32", 0)
        for one in self.pool:
            make("v_add_nc_u32", total, total, one)
        make.store(total)
        for i, at in enumerate(self.WORDS):
            value = make.v("ds_load_b32", self.own, offset=at)
            make("v_mul_lo_u32", total, total, 2 * i + 3)
            make("v_xor_b32", total, total, value)
        make.store(total)
        make.end()
        # Either all accesses state which buffer they use, or none does.
        if self.random.random() < 0.7:
            for instr in [one for block in make.blocks for one in block.instrs if one.mnemonic.startswith("global")]:
                instr.buffer = "out" if instr.operands[-1] == make.target else "in"

    def address(self, moved):
        return self.make.v("v_lshl_add_u32", self.make.thread, 11, moved), moved

    def word(self, count):
        return self.random.choice([at for at in self.WORDS if at % (4 * count) == 0])

    def source(self, count):
        if count == 1:
            return self.random.choice(self.pool)
        wide = Reg("v", count)
        for k in range(count):
            self.make("v_xor_b32", wide[k], self.random.choice(self.pool), k)
        return wide

    def keep(self, reg, count):
        for k in range(count):
            self.pool.append(reg if count == 1 else self.make.v("v_add_nc_u32", k, reg[k]))
        del self.pool[:-24]

    def target(self, count):
        """Return the target of a load: a register of its own, a part of another one, or one that is used again."""
        kind = self.random.random()
        if kind < 0.7 or count > 1:
            return Reg("v", count)
        return Reg("v", 2)[self.random.randrange(2)] if kind < 0.85 else self.random.choice(self.pool)

    def some(self, size, masked=False):
        for _ in range(size):
            kinds = {
                "lds_load": 9, "lds_store": 4, "global_load": 9, "global_store": 4, "move": 1, "tie": 1, "mask": not masked, "meet": not masked,
            }  # fmt: skip
            getattr(self, self.random.choices(list(kinds), list(kinds.values()))[0])()

    def run(self, count):
        """Return the places of some accesses near each other, because joinable accesses come in runs."""
        first = self.word(count)
        return [first, *(first + 4 * count * k for k in range(1, self.random.randrange(1, 5)))]

    def lds_load(self):
        count = self.random.choice((1, 1, 2))
        address, moved = self.random.choice(self.addresses)
        for at in self.run(count):
            if at in self.WORDS and at + 4 * count - 4 in self.WORDS and at >= moved and not (at - moved) % (4 * count):
                to = self.target(count)
                self.make(f"ds_load_b{32 * count}", to, address, **({"offset": at - moved} if at > moved else {}))
                self.keep(to, count)

    def lds_store(self):
        count = self.random.choice((1, 1, 2))
        address, moved = self.random.choice(self.addresses)
        for at in self.run(count):
            if at in self.WORDS and at + 4 * count - 4 in self.WORDS and at >= moved and not (at - moved) % (4 * count):
                data = self.source(count)
                self.make(f"ds_store_b{32 * count}", address, data, **({"offset": at - moved} if at > moved else {}))

    def global_load(self):
        count, written = self.random.choice((1, 1, 1, 2, 3)), self.random.random() < 0.4
        first = 4 * self.random.randrange(40)
        for k in range(self.random.randrange(1, 5)):
            at, to = first + 4 * count * k, self.target(count)
            if at + 4 * count <= 256:
                place = self.random.choice(self.places[:1] * 3 + self.places)
                base = self.make.target if written else self.make.source
                self.make(f"global_load_b{32 * count}", to, place, base, **({"offset": at} if at else {}))
                self.keep(to, count)

    def global_store(self):
        count, first = self.random.choice((1, 1, 2)), 4 * self.random.randrange(40)
        for k in range(self.random.randrange(1, 4)):
            at = first + 4 * count * k
            if at + 4 * count <= 256:
                data = self.source(count)
                self.make(
                    f"global_store_b{32 * count}",
                    self.places[0],
                    data,
                    self.make.target,
                    **({"offset": at} if at else {}),
                )

    def move(self):
        """Write to an address register again."""
        i, moved = self.random.randrange(3), self.random.choice((0, 8, 16))
        self.make("v_lshl_add_u32", self.addresses[i][0], self.make.thread, 11, moved)
        self.addresses[i] = (self.addresses[i][0], moved)

    def tie(self):
        self.pool.append(self.make.v("v_mov_b32", self.random.choice(self.pool)))

    def meet(self):
        self.make("s_barrier")

    def mask(self):
        condition = self.make.s("v_cmp_lt_u32", self.random.randrange(4, 28), self.make.thread)
        pool, addresses = list(self.pool), list(self.addresses)
        self.make.divergent(condition, lambda: self.some(6, masked=True))
        assert self.addresses == addresses or self.restore(addresses)
        self.pool = pool

    def restore(self, addresses):
        for (reg, _), (_, moved) in zip(self.addresses, addresses, strict=True):
            self.make("v_lshl_add_u32", reg, self.make.thread, 11, moved)
        self.addresses = addresses
        return True


@pytest.mark.parametrize("engine", ["interpreter", "translator"])
def test_random_accesses_find_what_they_would_have_found_one_by_one(tools, engine, sample):
    singles = afterwards = 0
    for seed in sample(range(240), few=12 if engine == "interpreter" else 3, spread=False):
        code = RandomAccesses(tools, seed).make.code
        out_words = 32 * 66
        singles += sum(instr.mnemonic in FORMS for block in code.blocks for instr in block.instrs)
        tools.check(code, out_words, engines=(engine,), max_vgprs=40 if seed % 4 == 3 else 0)
        afterwards += sum(instr.mnemonic in FORMS for block in code.blocks for instr in block.instrs)
    assert afterwards < singles * 0.6


@pytest.mark.parametrize("target", ["gfx1100", "gfx1151", "gfx1201"])
def test_llvm_encodes_what_was_joined_as_we_do(tools, assembled, target):
    code = RandomAccesses(tools, 1, target).make.code
    # gfx12 spells a barrier differently.
    for block in code.blocks:
        block.instrs = [one for one in block.instrs if one.mnemonic != "s_barrier"]
    binary = finish(code)
    names = {instr.mnemonic for block in code.blocks for instr in block.instrs}
    assert {
        "ds_load_2addr_b32",
        "ds_load_2addr_b64",
        "ds_store_2addr_b32",
        "global_load_b96",
        "global_load_b128",
    } <= names
    encodings, _ = assembled(code)
    theirs = b"".join(bytes(0 if "A" in part else int(part, 0) for part in one.split(",")) for one in encodings)
    assert theirs == binary.code[: len(theirs)]
    assert len(encodings) == binary.instructions
