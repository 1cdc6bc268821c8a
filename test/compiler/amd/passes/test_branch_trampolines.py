"""Branches that cannot reach their target go through trampolines. Tests use a short reach, so that small programs need
many trampolines, and the real one.
"""

import re
import subprocess

import numpy as np
import pytest

from ringup.autogen.generate.isa.probe import llvm_mc
from ringup.compiler.amd import branch_trampolines
from ringup.compiler.amd.branch_trampolines import Branch, link
from ringup.compiler.amd.objects import object_of
from ringup.compiler.amd.pipeline import finish
from ringup.errors import CompileError

# In dwords. A clause has up to 97 dwords, and no trampoline may lie inside one.
SHORT = 150
# High halves of branches in these tests: s_branch (llvm-mc, gfx1100), and the program's own.
TRAMPOLINE, OWN = 0xBFA0, 0xEE00


def encode(mnemonic, operands):
    high = TRAMPOLINE if mnemonic == "s_branch" else OWN + int(mnemonic)
    return (high << 16 | operands[0]).to_bytes(4, "little")


def landing(words, at):
    """Return the index of the word where a branch ends, through trampolines, and how many trampolines there were."""
    hops = -1
    while True:
        at += 1 + int(np.int16(words[at] & 0xFFFF))
        hops += 1
        if words[at] >> 16 != TRAMPOLINE:
            return at, hops


def random_layout(random):
    count = int(random.integers(20, 500))
    chunks = [i.to_bytes(4, "little") + bytes(4 * int(random.integers(0, 3))) for i in range(count)]
    places = random.choice(count, int(random.integers(1, 7)), replace=False)
    branches = [Branch(int(place), int(random.integers(count)), str(k)) for k, place in enumerate(places)]
    for one in branches:
        chunks[one.place] = bytes(4)
    return chunks, branches, {int(one) for one in random.choice(count, count // 4)}


def test_every_branch_of_random_layouts_comes_to_its_goal(monkeypatch):
    monkeypatch.setattr(branch_trampolines, "MAX_REACH", 60)
    random = np.random.default_rng(5)
    longest = 0
    for _ in range(300):
        chunks, branches, barred = random_layout(random)
        made = link(chunks, branches, lambda barred=barred: barred, encode)
        words = np.frombuffer(b"".join(made), np.uint32).astype(np.int64)
        # Walk the code with no branch of its own taken: all chunks come in order, and the walk jumps over trampolines.
        starts, at, number = (
            [],
            0,
            0,
        )
        while number < len(chunks):
            if words[at] >> 16 == TRAMPOLINE:
                assert number not in barred
                at, _ = landing(words, at)
            assert words[at] == number or words[at] >> 16 >= OWN
            starts.append(at)
            at += len(chunks[number]) // 4
            number += 1
        for one in branches:
            end, hops = landing(words, starts[one.place])
            assert end == starts[one.target]
            longest = max(longest, hops)
    assert longest > 5


def test_code_in_which_all_branches_reach_stays_as_it_is():
    chunks = [bytes(4)] * 1000
    made = link(chunks, [Branch(0, 999, "0"), Branch(999, 0, "1")], set, encode)
    assert (made[0], made[999]) == (encode("0", [998]), encode("1", [0xFFFF - 999]))
    assert made[1:999] == chunks[1:999]


def test_the_reach_is_that_of_sixteen_bits():
    """The distances are the greatest that needs no trampoline, and one dword more."""
    # A branch around the group, and one trampoline in each direction.
    for count, added in ((32768, 0), (32769, 3)):
        chunks = [bytes(4)] * (count + 1)
        assert len(link(chunks, [Branch(0, count, "0")], set, encode)) == count + 1 + min(added, 2)
        assert len(link(chunks, [Branch(count - 1, 0, "0")], set, encode)) == count + 1 + min(added, 2)
        assert len(link(chunks, [Branch(0, count, "0"), Branch(count - 1, 0, "1")], set, encode)) == count + 1 + added


def test_no_place_for_a_trampoline_is_an_error(monkeypatch):
    monkeypatch.setattr(branch_trampolines, "MAX_REACH", 60)
    with pytest.raises(CompileError, match="branches reach 240 bytes"):
        link([bytes(4)] * 200, [Branch(0, 199, "0")], lambda: set(range(200)), encode)


@pytest.mark.parametrize("engine", ["interpreter", "translator"])
def test_random_programs_over_trampolines_store_what_is_meant(tools, engine, monkeypatch, sample):
    lengths = {}
    for seed in sample(range(2000, 2200), few=3 if engine == "interpreter" else 2, spread=False):
        for reach in (1 << 15, SHORT):
            monkeypatch.setattr(branch_trampolines, "MAX_REACH", reach)
            program = tools.random_program(seed, size=400, nests=6)
            binary = tools.check(program.code, program.out_words, engines=(engine,))
            lengths.setdefault(seed, []).append(binary.instructions)
    assert all(short > long for long, short in lengths.values())


def long_loop(tools, turns, target="gfx1100"):
    """Write a loop of 200 KiB. Its condition jumps over all of the body, and its end jumps back."""
    make = tools.maker(target=target)
    # On other processors the group's number comes in another way.
    if target != "gfx1100":
        make.code.group_ids = (False, False, False)
        make.code.inputs.remove(make.group)
    total = make.v("v_mov_b32", 0)

    def skipped():
        for _ in range(26000):
            make("v_add3_u32", total, total, make.thread, 1)

    def body(counter):
        del counter
        mask = make.s("v_cmp_lt_u32", total, 100_000)
        make.divergent(mask, skipped, skip=True)
        make("v_add_nc_u32", total, total, 7)

    make.loop(turns, body)
    make.store(total)
    return make


@pytest.mark.parametrize("engine", ["interpreter", pytest.param("translator", marks=pytest.mark.fuzz)])
def test_a_loop_of_more_than_128_kib_runs(tools, engine):
    make = long_loop(tools, 12)
    binary = finish(make.end())
    assert len(binary.code) > 1 << 17
    found, run = tools.run_binary(binary, make.out_words, engine)
    assert not run.violations
    wanted = np.zeros(32, np.uint32)
    for lane in range(32):
        total = 0
        for _ in range(12):
            total += (26000 * (lane + 1) if total < 100_000 else 0) + 7
        wanted[lane] = total
    assert np.array_equal(found[:32], wanted)


@pytest.mark.parametrize("target", ["gfx1100", "gfx1151", "gfx1201"])
def test_llvm_sees_each_branch_go_to_a_trampoline_or_its_goal(tools, headers, target, tmp_path):
    binary = finish(long_loop(tools, 3, target).end())
    (tmp_path / "k.co").write_bytes(object_of([binary]))
    *loader, program = llvm_mc(headers("llvm-22"))
    command = [*loader, program.replace("llvm-mc", "llvm-objdump"), "-d", str(tmp_path / "k.co")]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "<unknown>" not in listed
    first = int(re.search(r"^([0-9a-f]+) <kernel>:", listed, re.MULTILINE)[1], 16)
    found = [(name, int(at, 16) - first, int(to or "0", 16)) for name, at, to in
             re.findall(r"^\t(s_c?branch\w*) .*// ([0-9A-F]+):.*<kernel(?:\+0x([0-9a-f]+))?>", listed, re.MULTILINE)]  # fmt: skip
    ways = {at: (name, to) for name, at, to in found}
    (skip, trampoline), *others = [(at, to) for at, (name, to) in ways.items() if name == "s_cbranch_execz"]
    (end, back), *more = [(at, to) for at, (name, to) in ways.items() if name == "s_cbranch_scc1"]
    assert not others + more
    assert ways[trampoline][0] == ways[back][0] == "s_branch"
    # The trampoline lies behind the skipped code and before the loop's end.
    assert 1 << 17 < ways[trampoline][1] - skip < end
    # The target is the loop's first instruction.
    assert ways[back][1] < skip
    assert all(abs(to - at - 4) <= 1 << 17 for at, (_, to) in ways.items())
