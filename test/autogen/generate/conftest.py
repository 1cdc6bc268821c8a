"""gcc as the reference for layouts: a compiled probe prints where every member lies, and the facts must agree."""

from __future__ import annotations

import struct
import subprocess
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from ringup.autogen.generate.emit.facts import BitRange, Member, StructFacts, Unit
from ringup.autogen.generate.nvidia import modules as nvidia
from ringup.autogen.generate.nvidia.unit import parse_tree

SIZES = {"char": 1, "bool": 1, "ptr": 8} | {
    f"{kind}{bits}": bits // 8 for kind in "uif" for bits in (8, 16, 32, 64, 128)
}

PROBE_HEAD = """
#include <stdio.h>
#include <string.h>
#include <stddef.h>
#include <stdlib.h>
"""
PROBE_BODY = """
static unsigned char *ringup_memory;
static void ringup_put(unsigned long value) { fwrite(&value, 8, 1, stdout); }
static void ringup_bits(unsigned long size) /* lowest set bit, how many, whether they are one run */
{
    unsigned long low = 0, high = 0, count = 0;
    for (unsigned long bit = 0; bit < size * 8; bit++)
        if (ringup_memory[bit / 8] >> bit % 8 & 1) { if (!count++) low = bit; high = bit; }
    ringup_put(low), ringup_put(count), ringup_put(count == high - low + 1);
}
#define RINGUP_FIELD(T, m) do { T *p = (T *)ringup_memory; memset(p, 0, sizeof(T)); p->m = -1; \\
    ringup_bits(sizeof(T)); ringup_put(p->m < 0); } while (0)
#define RINGUP_MEMBER(T, m) (ringup_put(offsetof(T, m)))
#define RINGUP_SIZE(T, m) (ringup_put(sizeof(((T *)0)->m)))
"""


class Judged(NamedTuple):
    """How much gcc was asked about, and where it disagrees with the facts."""

    structs: int
    members: int
    differences: list[str]


def type_names(unit: Unit) -> dict[str, str]:
    """Return how C names each record: by its tag, or as the type of the member that holds it."""
    names = {name: facts.c_name for name, facts in unit.structs.items() if facts.c_name}
    holders = [(facts, member) for facts in unit.structs.values() for member in facts.members if member.type.is_struct]
    while True:
        found = {
            member.type.base: f"typeof((({names[facts.name]} *)0)->{member.name}{'[0]' * len(member.type.dims)})"
            for facts, member in holders
            if member.type.base not in names and facts.name in names
        }
        if not found:
            return names
        names |= found


def member_size(unit: Unit, member: Member) -> int | None:
    """Return the bytes of an ordinary member; None for a flexible array, which has no size."""
    size = unit.structs[member.type.base].size_bytes if member.type.is_struct else SIZES[member.type.base]
    for length in member.type.dims:
        if length is None:
            return None
        size *= length
    return size


def questions(unit: Unit, facts: StructFacts, c_name: str) -> tuple[list[str], list[tuple[str, int]]]:
    """Return C statements about one record, and the numbers that they must print."""
    alias = f"ringup_{facts.name}"
    asked = [f"typedef {c_name} {alias};", f"ringup_put(sizeof({alias})); ringup_put(_Alignof({alias}));"]
    expected = [(f"{facts.name} size", facts.size_bytes), (f"{facts.name} alignment", facts.align_bytes)]
    for member in facts.members:
        label = f"{facts.name}.{member.name}"
        if member.width_bits is None:
            asked.append(f"RINGUP_MEMBER({alias}, {member.name});")
            expected.append((f"{label} offset", member.offset_bits // 8))
            assert member.offset_bits % 8 == 0, f"{label} is no bit-field and lies at bit {member.offset_bits}"
            size = member_size(unit, member)
            if size is not None:
                asked.append(f"RINGUP_SIZE({alias}, {member.name});")
                expected.append((f"{label} size", size))
        else:
            asked.append(f"RINGUP_FIELD({alias}, {member.name});")
            signed = member.type.base.startswith("i")
            expected += [(f"{label} bit", member.offset_bits), (f"{label} width", member.width_bits)]
            expected += [(f"{label} in one run", 1), (f"{label} signed", int(signed))]
    return asked, expected


def probe_source(unit: Unit, includes: Sequence[str], prelude: str = "") -> tuple[str, list[tuple[str, int]]]:
    """Return a C program that prints every size, alignment, offset and bit position of the unit, and what the facts say
    of them.
    """
    names = type_names(unit)
    functions, calls, expected = [], [], []
    for at, facts in enumerate(unit.structs.values()):
        assert facts.name in names, f"C cannot reach {facts.name}"
        asked, numbers = questions(unit, facts, names[facts.name])
        functions.append(f"static void ringup_probe_{at}(void) {{\n" + "\n".join(asked) + "\n}\n")
        calls.append(f"ringup_probe_{at}();")
        expected += numbers
    largest = max((facts.size_bytes for facts in unit.structs.values()), default=0) + 4096
    main = f"int main(void) {{ ringup_memory = aligned_alloc(4096, {largest + 4095 & ~4095}); {' '.join(calls)} return 0; }}\n"
    lines = [PROBE_HEAD, prelude, *includes, PROBE_BODY, *functions, main]
    return "\n".join(lines), expected


def run_gcc(source: str, options: Sequence[str], folder: Path) -> bytes:
    """Compile and run `source`; return its output. A compiler error fails the test and shows gcc's message."""
    code, program = folder / "probe.c", folder / "probe"
    code.write_text(source, encoding="utf-8")
    command = ["gcc", "-std=gnu11", "-w", "-O0", *options, "-o", str(program), str(code)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[:4000]
    return subprocess.run([str(program)], capture_output=True, check=True, timeout=60).stdout


def judge(unit: Unit, includes: Sequence[str], folder: Path, options: Sequence[str] = (), prelude: str = "") -> Judged:
    """Ask gcc about every record of `unit`. `includes` are C lines that define them: `#include …` or the structs
    themselves.
    """
    source, expected = probe_source(unit, includes, prelude)
    seen = run_gcc(source, options, folder)
    assert len(seen) == 8 * len(expected), f"the probe printed {len(seen) // 8} numbers, {len(expected)} were asked for"
    numbers = struct.unpack(f"<{len(expected)}Q", seen)
    differences = [
        f"{label}: gcc {number}, facts {fact}"
        for (label, fact), number in zip(expected, numbers, strict=True)
        if number != fact
    ]
    return Judged(len(unit.structs), sum(len(facts.members) for facts in unit.structs.values()), differences)


@pytest.fixture
def gcc_layout(tmp_path: Path) -> Callable[..., Judged]:
    """`gcc_layout(unit, headers, include=…, system=…, defines=…, prelude=…)` compares every record of a unit with gcc's
    layout.
    """

    def check(
        unit: Unit,
        headers: Sequence[Path],
        *,
        include: Sequence[Path] = (),
        system: Sequence[Path] = (),
        defines: Sequence[str] = (),
        prelude: str = "",
    ) -> Judged:
        options = [f"-I{folder}" for folder in include] + [f"-isystem{folder}" for folder in system]
        options += [f"-D{define}" for define in defines]
        return judge(unit, [f'#include "{header.absolute()}"' for header in headers], tmp_path, options, prelude)

    return check


@pytest.fixture
def gcc_constants(tmp_path: Path) -> Callable[..., tuple[int, list[str]]]:
    """`gcc_constants(unit, headers, …)` compares a unit's integers and bit ranges with gcc's. It returns how many there
    were and which differ.
    """

    def check(
        unit: Unit,
        headers: Sequence[Path],
        *,
        include: Sequence[Path] = (),
        system: Sequence[Path] = (),
        prelude: str = "",
    ) -> tuple[int, list[str]]:
        asked: list[str] = []
        expected: list[tuple[str, int]] = []
        for name, constant in unit.constants.items():
            # `31:0` alone is no expression; `1 ? 31:0` is one.
            if isinstance(constant.value, BitRange):
                asked += [f"(1 ? {name})", f"(0 ? {name})"]
                expected += [(f"{name} high", constant.value.hi), (f"{name} low", constant.value.lo)]
            elif isinstance(constant.value, int):
                asked.append(f"({name})")
                expected.append((name, constant.value & (1 << 64) - 1))
        table = ",\n".join(f"(unsigned long long){question}" for question in asked)
        lines = [prelude, *(f'#include "{header.absolute()}"' for header in headers), "#include <stdio.h>"]
        lines += [f"static const unsigned long long ringup_table[] = {{ {table} }};"]
        lines += ["int main(void) { return fwrite(ringup_table, sizeof ringup_table, 1, stdout) != 1; }"]
        options = [f"-I{folder}" for folder in include] + [f"-isystem{folder}" for folder in system]
        numbers = struct.unpack(f"<{len(expected)}Q", run_gcc("\n".join(lines), options, tmp_path))
        pairs = zip(expected, numbers, strict=True)
        return len(numbers), [
            f"{label}: gcc {number}, facts {fact}" for (label, fact), number in pairs if number != fact
        ]

    return check


@pytest.fixture
def gcc_judge(tmp_path: Path) -> Callable[[Unit, str], Judged]:
    """`gcc_judge(unit, text)` compares as `gcc_layout` does, for C text."""

    def check(unit: Unit, text: str) -> Judged:
        return judge(unit, [text], tmp_path)

    return check


@pytest.fixture
def gcc_output(tmp_path: Path) -> Callable[[str], str]:
    """`gcc_output(program)` returns what a C program prints."""

    def run(source: str) -> str:
        return run_gcc(source, (), tmp_path).decode("utf-8", "surrogateescape")

    return run


@pytest.fixture
def header(tmp_path: Path) -> Callable[..., Path]:
    """`header(text, name)` writes a header and returns its path."""

    def write(text: str, name: str = "it.h") -> Path:
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        return path

    return write


@pytest.fixture(scope="session", autouse=True)
def parsed_once():
    """Parses each of NVIDIA's trees once, in the test that needs it first. That is most of the work of generating."""
    known = {}

    def parse(wanted, root):
        if root not in known:
            known[root] = parse_tree(wanted, root)
        return known[root]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvidia, "parse_tree", parse)
        yield parse
