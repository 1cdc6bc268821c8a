"""NVIDIA's facts compared with gcc: every struct, for each driver tree at hand, and every bit range, as gcc reads the
macro.
"""

from __future__ import annotations

import importlib
import re
import shutil
import struct
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

import ringup.autogen
from ringup.autogen.generate.c.clang import parse
from ringup.autogen.generate.emit.facts import Unit
from ringup.autogen.generate.emit.structs import layout_rows, python_name
from ringup.autogen.generate.nvidia import modules as nvidia
from ringup.autogen.generate.nvidia.manifest import WANTED, load
from ringup.autogen.generate.nvidia.unit import module_facts
from ringup.autogen.layout import Struct, Word
from ringup.autogen.regdb import open_chip
from ringup.errors import HeaderError, NotSupported

FACTS = Path(ringup.autogen.__file__).parent
WANTED_ROWS = load()
# These headers are in Debian.
ALWAYS = ("535", "555")
BRANCHES = tuple(WANTED_ROWS.branches)
C_MODULES = tuple(module.path for module in WANTED_ROWS.modules)


def module(path: str) -> ModuleType:
    return importlib.import_module(f"ringup.autogen.nv.{path}")


def structs_of(committed: ModuleType) -> dict[str, type[Struct]]:
    return {
        name: value
        for name, value in vars(committed).items()
        if isinstance(value, type) and issubclass(value, Struct) and value is not Struct
    }


@pytest.fixture(scope="session")
def tree(sources, headers):
    """The driver tree of a branch. No registry holds some of them: those are skipped unless `--tree nvidia-580=DIR`
    names one.
    """

    def find(branch: str) -> Path:
        label = f"nvidia-{branch}"
        if branch in ALWAYS:
            return headers(label)
        found = sources.find(label)
        if found is None:
            pytest.skip(f"no registry holds the {branch} tree; give it with --tree {label}=DIR")
        return found

    return find


@pytest.fixture(scope="session")
def documents(sources):
    """The tree of open-gpu-doc, which no registry holds."""
    found = sources.find("open-gpu-doc")
    if found is None:
        pytest.skip("open-gpu-doc is in no registry; give it with --tree open-gpu-doc=DIR")
    return found


@pytest.fixture(scope="module")
def parsed(tree, parsed_once):
    """What is known of a branch: its root folder, the unit, and the facts by module."""
    known = {}

    def get(branch: str):
        if branch not in known:
            root = tree(branch)
            unit = parsed_once(WANTED_ROWS, root)
            known[branch] = root, unit, module_facts(WANTED_ROWS, root, unit)
        return known[branch]

    return get


# ----------------------------------------------------------------------------------------------------------- generation


def test_any_subset_of_the_sources_gives_the_committed_bytes(tree):
    made = nvidia.generate_nvidia({branch: tree(branch) for branch in ALWAYS})
    differing = [
        path
        for path, content in made.items()
        if (FACTS / path).read_bytes() != (content.encode() if isinstance(content, str) else content)
    ]
    assert not differing
    assert len(made) > 60


def test_all_sources_and_no_committed_row_give_the_committed_bytes(tree, documents, tmp_path):
    made = nvidia.generate_nvidia({branch: tree(branch) for branch in BRANCHES}, documents, committed=tmp_path / "nv")
    differing = [
        path
        for path, content in made.items()
        if (FACTS / path).read_bytes() != (content.encode() if isinstance(content, str) else content)
    ]
    assert not differing


def test_a_header_that_contradicts_the_committed_row_shows_in_the_output(tree, tmp_path):
    """The row of a later branch comes from the committed module, the row of the changed tree from the tree."""
    root = tmp_path / "tree"
    shutil.copytree(tree("535"), root, ignore=shutil.ignore_patterns("*.c", "*.bin", "nouveau"))
    header = root / "kernel-open/nvidia-uvm/uvm_ioctl.h"
    text = header.read_text()
    assert "} UVM_FREE_PARAMS;" in text
    header.write_text(text.replace("} UVM_FREE_PARAMS;", "NvU64 added; } UVM_FREE_PARAMS;"))
    made = str(nvidia.generate_nvidia({"535": root})["nv/uvm.py"])
    block = made[made.index("class UVM_FREE_PARAMS") :].split("\n\n\n")[0]
    assert "added:u64@24" in block
    assert '"545": (24, "-added")' in block


def test_a_branch_with_neither_tree_nor_row_is_refused(tree, tmp_path):
    with pytest.raises(HeaderError, match=r"rm\.py: branch 545 is wanted, no tree of it is given and no row"):
        nvidia.generate_nvidia({"535": tree("535")}, committed=tmp_path)


def test_a_tree_of_another_release_is_refused_with_those_rows_are_read_from(tmp_path):
    (tmp_path / "version.mk").write_text("NVIDIA_VERSION = 580.65.06\n")
    with pytest.raises(HeaderError, match=r"is release 580\.65\.06; rows are read from 535\.261\.03.*580\.142"):
        nvidia.generate_nvidia({"x": tmp_path})


def test_a_folder_that_is_no_driver_tree_is_named(tmp_path):
    with pytest.raises(HeaderError, match=r"is no tree of NVIDIA's open kernel modules: version\.mk"):
        nvidia.generate_nvidia({"x": tmp_path})


def test_an_edited_module_is_not_taken_for_rows(tree, tmp_path):
    (tmp_path / "rm.py").write_text('BRANCHES = ("535", "545")\nclass X(Struct):\n    SIZE, ALIGN = open("x"), 4\n')
    with pytest.raises(HeaderError, match=r"rm\.py cannot be read back"):
        nvidia.generate_nvidia({"535": tree("535")}, committed=tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('path = "rm"', 'paht = "rm"', r"\[\[module\]\] number 1: unknown key paht"),
        ("\n[chips]\n", "\n[chisp]\n", r"unknown section chisp"),
        ('535 = "535.261.03"', "535 = ", r"reading wanted\.toml"),
    ],
)
def test_a_mistake_in_the_list_is_named(old, new, message, tmp_path):
    text = WANTED.read_text()
    assert old in text
    wrong = tmp_path / "wanted.toml"
    wrong.write_text(text.replace(old, new, 1))
    with pytest.raises(HeaderError, match=message):
        load(wrong)


# -------------------------------------------------------------------------------------------------------------- structs


@pytest.mark.parametrize("branch", BRANCHES)
def test_every_committed_struct_of_a_release_is_what_gcc_lays_out(branch, parsed, gcc_layout):
    root, unit, by_module = parsed(branch)
    inside = {}
    compared = 0
    for path in C_MODULES:
        committed = structs_of(module(path))
        found = {python_name(name): facts for name, facts in by_module[path].structs.items()}
        here = {name: cls for name, cls in committed.items() if has(cls, WANTED_ROWS.branches[branch])}
        assert here.keys() == found.keys(), path
        for name, cls in here.items():
            laid_out = cls.at(WANTED_ROWS.branches[branch])
            assert found[name].size_bytes == laid_out.SIZE, name
            rows = dict(part.split(":", 1) for part in laid_out.LAYOUT.split())
            assert rows == layout_rows(found[name]), name
            compared += 1
        inside |= {name: unit.structs[name] for name in by_module[path].structs}
    # The types of opaque members are missing so far.
    while (
        missing := {member.type.base for facts in inside.values() for member in facts.members if member.type.is_struct}
        - inside.keys()
    ):
        inside |= {name: unit.structs[name] for name in missing}
    headers = [path for name in WANTED_ROWS.unit.headers for path in sorted(root.glob(name.lstrip("?")))]
    judged = gcc_layout(
        Unit(structs=inside),
        headers,
        include=[root / folder for folder in WANTED_ROWS.unit.include],
        defines=WANTED_ROWS.unit.defines,
    )
    assert not judged.differences
    assert judged.structs >= 1300
    assert compared >= 1300


def has(cls: type[Struct], release: str) -> bool:
    try:
        cls.at(release)
    except NotSupported:
        return False
    return True


@pytest.mark.parametrize("branch", BRANCHES)
def test_every_constant_of_a_release_is_what_the_tree_says(branch, parsed):
    from ringup.autogen.nv.by_release import constant

    release = WANTED_ROWS.branches[branch]
    _, _, by_module = parsed(branch)
    compared = 0
    for path in C_MODULES:
        committed = module(path)
        for name, fact in by_module[path].constants.items():
            value = constant(committed, python_name(name), release)
            expected = (fact.value.hi, fact.value.lo) if hasattr(fact.value, "hi") else fact.value
            assert value == expected, f"{path}.{name}"
            compared += 1
    assert compared > 6500


KERNEL_TYPES = """
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef unsigned long long u64;
typedef signed char s8; typedef short s16; typedef int s32; typedef long long s64;
#define DECLARE_FLEX_ARRAY(type, name) struct { struct { } empty_##name; type name[]; }
#define __counted_by(member)
"""


def test_nouveaus_own_copy_of_535_has_the_same_offsets(headers):
    """Another project cut these 57 headers from 535.113.01 and works with that firmware."""
    folder = headers("linux") / "drivers/gpu/drm/nouveau/include"
    paths = sorted((folder / "nvrm").rglob("*.h"))
    assert len(paths) == 57
    first = [path for path in paths if path.name == "nvtypes.h"]
    unit = parse(first + [path for path in paths if path not in first], include=[folder], prelude=KERNEL_TYPES)
    ours = {name: cls for path in C_MODULES for name, cls in structs_of(module(path)).items()}
    compared, moved = [], set()
    for name, facts in unit.structs.items():
        if name in ours and has(ours[name], "535.261.03") and "__" not in name:
            laid_out = ours[name].at("535.261.03")
            members = {row.name: row.byte * 8 + row.bit for row in laid_out.members().values()}
            theirs = {member.name: member.offset_bits for member in facts.members}
            same = all(members[name] == offset for name, offset in theirs.items() if name in members)
            if not same or facts.size_bytes != laid_out.SIZE:
                moved.add(name)
            compared.append(name)
    # The row is that of 535.261.03. These structs grew between 535.113.01 and 535.261.03, in NVIDIA's own tree as well.
    assert moved <= {"GspFwWprMeta", "GspSystemInfo", "rpc_rc_triggered_v17_02"}
    assert "GspFwWprMeta" in moved
    assert len(compared) >= 60


# ----------------------------------------------------------------------------------------------------------- bit ranges

RANGE = re.compile(r"^[\s()\w+*:-]*:[\s()\w+*:-]*$")
SUM = re.compile(r"^[\s()\w+*-]+$")


class Macro:
    """What gcc says of one macro: hi and lo, or a number. A macro with a parameter has one for each index."""

    def __init__(self, hi: int, lo: int, strides: tuple[int, ...]) -> None:
        self.hi, self.lo, self.strides = hi, lo, strides


def gcc_reads(header: Path, folder: Path, wanted: re.Pattern[str]) -> tuple[dict[str, Macro], dict[str, Macro]]:
    """Return the ranges and numbers of a header's macros whose name `wanted` matches. The preprocessor lists the
    macros, and gcc computes them.
    """
    text = re.sub(r"/\*.*?\*/", " ", header.read_text("latin-1"), flags=re.DOTALL).replace("\\\n", " ")
    # gcc reads the macros alone, without the code around them.
    defines = [line for line in text.splitlines() if re.match(r"\s*#\s*define\b", line)]
    text = "\n".join(["#define MW(range) range", *defines, ""])
    source = folder / "header.c"
    source.write_text(text, "latin-1")
    asking = ["gcc", "-x", "c", "-w", "-ffreestanding", "-E", "-dM", str(source)]
    listed = subprocess.run(asking, capture_output=True, text=True, check=True).stdout
    names: dict[str, tuple[tuple[str, ...], str]] = {}
    for line in listed.splitlines():
        match = re.match(r"#define (\w+)(\(([^)]*)\))? ?(.*)", line)
        assert match
        names[match[1]] = (tuple(match[3].split(",")) if match[3] else (), match[4])
    usable = {
        name: (params, body)
        for name, (params, body) in names.items()
        if wanted.match(name)
        and body
        and all(w in names or w in params or w == "MW" or w[0].isdigit() for w in re.findall(r"\w+", body))
    }
    ranges = {n: p for n, (p, b) in usable.items() if RANGE.match(b)}
    sums = {n: p for n, (p, b) in usable.items() if SUM.match(b)}
    asked: list[str] = []
    for picked, pattern in ((ranges, "(1 ? {0}), (0 ? {0})"), (sums, "({0}), 0")):
        for name, params in picked.items():
            calls = [name]
            if params:
                points = [[0] * len(params)] + [[int(a == b) for b in range(len(params))] for a in range(len(params))]
                calls = [f"{name}({', '.join(map(str, point))})" for point in points]
            asked += [pattern.format(call) for call in calls]
    if not asked:
        return {}, {}
    program = folder / "program"
    table = ",\n".join(asked)
    source.write_text(
        text + f"\n#include <stdio.h>\nstatic const unsigned long long t[] = {{ {table} }};\n"
        "int main(void) { return fwrite(t, sizeof t, 1, stdout) != 1; }\n",
        "latin-1",
    )
    built = subprocess.run(["gcc", "-w", "-o", str(program), str(source)], capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr[:3000]
    data = subprocess.run([str(program)], capture_output=True, check=True).stdout
    numbers = iter(struct.unpack(f"<{len(data) // 8}q", data))

    def take(params: tuple[str, ...]) -> Macro:
        hi, lo = next(numbers), next(numbers)
        strides = []
        for _ in params:
            moved = next(numbers), next(numbers)
            strides.append(moved[0] - hi)
        return Macro(hi, lo, tuple(strides))

    return {n: take(p) for n, p in ranges.items()}, {n: take(p) for n, p in sums.items()}


def fields_of(word: type[Word]) -> dict[str, tuple[int, int, int]]:
    return {name: (field.hi, field.lo, field.stride) for name, field in word.FIELDS.items()}


@pytest.mark.parametrize("header", WANTED_ROWS.qmd)
def test_every_field_of_a_launch_descriptor_is_what_gcc_reads(header, documents, tmp_path):
    ranges, numbers = gcc_reads(documents / header, tmp_path, re.compile(r"NV\w{4}_QMDV"))
    assert len(ranges) > 70
    for name, macro in ranges.items():
        class_id, version, field = re.fullmatch(r"NV(\w{4})_(QMDV\d\d_\d\d)_(\w+)", name).groups()
        if len(macro.strides) == 2:
            # The generator lists this macro as refused. The next test checks that its elements exist.
            continue
        word = getattr(module(version.lower()), version)
        found = fields_of(word.at(int(class_id, 16)))[field.lower()]
        assert found == (macro.hi, macro.lo, macro.strides[0] if macro.strides else 0), name
    for name, macro in numbers.items():
        class_id, version, rest = re.fullmatch(r"NV(\w{4})_(QMDV\d\d_\d\d)_(\w+)", name).groups()
        values = getattr(module(version.lower()), "VALUES", {}).get(int(class_id, 16), {})
        full = f"{version}_{rest}"
        assert values.get(full, getattr(module(version.lower()), full)) == macro.hi, name


def test_elements_of_an_array_of_arrays_stand_as_arrays_of_their_own(documents, tmp_path):
    ranges, _ = gcc_reads(documents / "classes/compute/clcdc0qmd.h", tmp_path, re.compile(r"NV\w{4}_QMDV05_01"))
    fields = fields_of(module("qmdv05_01").QMDV05_01)
    doubles = {name: macro for name, macro in ranges.items() if len(macro.strides) == 2}
    assert len(doubles) == 6
    for name, macro in doubles.items():
        for j in range(2):
            single = name.split("QMDV05_01_")[1].replace("BANK_", f"BANK{j}_").lower()
            move = j * macro.strides[1]
            assert fields[single] == (macro.hi + move, macro.lo + move, macro.strides[0]), name


METHODS = [
    (methods.path, class_id, header)
    for methods in WANTED_ROWS.methods
    for class_id, headers in methods.classes.items()
    for header in headers
]


@pytest.mark.parametrize(("path", "class_id", "header"), METHODS)
def test_every_method_and_its_bits_are_what_gcc_reads(path, class_id, header, request, tree, tmp_path):
    root, _, name = header.partition(":")
    file = (request.getfixturevalue("documents") if root == "doc" else tree(WANTED_ROWS.chips.release)) / name
    number, committed, prefix = int(class_id, 16), module(path), f"NV{class_id.upper()}_"
    ranges, numbers = gcc_reads(file, tmp_path, re.compile(prefix))
    words = {word.__name__: (word, place) for word, place in committed.METHODS[number].items()}
    packets = {word: getattr(committed, word) for word in ("GP_ENTRY0", "GP_ENTRY1", "DMA") if hasattr(committed, word)}
    values = vars(committed) | getattr(committed, "VALUES", {}).get(number, {})
    methods = 0
    for macro_name, macro in numbers.items():
        short = macro_name.removeprefix(prefix)
        if short in words:
            place = words[short][1]
            offset, stride = (place, 0) if isinstance(place, int) else place[:2]
            assert (offset, stride) == (macro.hi, macro.strides[0] if macro.strides else 0), macro_name
            methods += 1
        elif "__SIZE" not in short:
            assert values[short] == macro.hi, macro_name
    assert methods >= len(words) - len(packets) if root == "doc" else methods > 5
    for macro_name, macro in ranges.items():
        short = macro_name.removeprefix(prefix)
        owner = max((w for w in (*words, *packets) if short.startswith(f"{w}_")), key=len)
        word = packets.get(owner) or words[owner][0]
        field = fields_of(word.at(number))[attribute(short.removeprefix(f"{owner}_"))]
        assert field == (macro.hi, macro.lo, macro.strides[0] if macro.strides else 0), macro_name


def attribute(name: str) -> str:
    lowered = name.lower()
    if lowered[0].isdigit():
        return f"_{lowered}"
    return (
        f"{lowered}_" if lowered in ("at", "replace", "from", "in", "class", "is", "not", "pass", "global") else lowered
    )


CHIPS = tuple(WANTED_ROWS.chips.folders)


@pytest.mark.parametrize("branch", [*ALWAYS[1:], WANTED_ROWS.chips.release])
@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.sweep(6)
def test_every_published_register_of_a_chip_is_what_gcc_reads(chip, branch, tree, tmp_path):
    """The database has every register, field and value of the chip's own headers. The modules have those that they
    include.
    """
    folder = tree(branch) / WANTED_ROWS.chips.root / WANTED_ROWS.chips.folders[chip][0]
    if not folder.is_dir():
        pytest.skip(f"{branch} publishes nothing for {chip}")
    database = open_chip(chip)
    by_name = {register.name: register for register in database.find("*")}
    words = module_words(chip)
    compared, unknown = 0, []
    for header in sorted(folder.glob("*.h")):
        ranges, numbers = gcc_reads(header, tmp_path, re.compile(r"NV_"))
        for name, macro in numbers.items():
            if name in by_name and by_name[name].row.kind == "mmio":
                row = by_name[name].row
                assert by_name[name].offset == macro.hi, f"{header.name} {name}"
                if macro.strides:
                    assert row.stride == macro.strides[0], f"{header.name} {name}"
                compared += 1
            if name in words and words[name][1] is not None:
                place = words[name][1]
                assert (place if isinstance(place, int) else place[0]) == macro.hi, name
        for name, macro in ranges.items():
            owner = longest(name, by_name)
            # This is a format in memory, an aperture, or bits of a register that nobody publishes.
            if name in by_name:
                row = by_name[name].row
                if row.kind == "aperture":
                    assert (by_name[name].offset, f"up to {macro.hi:#x}") == (macro.lo, row.note.partition(";")[0]), (
                        name
                    )
                else:
                    (field,) = by_name[name].fields
                    base = (by_name[name].offset or 0) * 8
                    assert (base + field.hi, base + field.lo) == (macro.hi, macro.lo), name
                compared += 1
            elif owner is None or attribute(name.removeprefix(f"{owner}_")) not in fields_in(by_name[owner]):
                unknown.append(f"{header.name}: {name}")
            else:
                field = fields_in(by_name[owner])[attribute(name.removeprefix(f"{owner}_"))]
                assert (field.hi, field.lo) == (macro.hi, macro.lo), f"{header.name} {name}"
                compared += 1
            if (word_name := longest(name, words)) is not None:
                bits = fields_of(words[word_name][0].at(chip)).get(attribute(name.removeprefix(f"{word_name}_")))
                if bits is not None:
                    assert bits[:2] == (macro.hi, macro.lo), name
    assert compared > 10
    if branch == WANTED_ROWS.chips.release:
        assert not unknown
    # Headers of other releases name some registers differently.
    assert len(unknown) < compared // 5, unknown


def fields_in(register):
    return {field.name: field for field in register.fields}


def longest(name: str, known) -> str | None:
    return max((owner for owner in known if name.startswith(f"{owner}_")), key=len, default=None)


def module_words(chip: str):
    found = {}
    for registers in WANTED_ROWS.registers:
        committed = module(registers.path)
        for name, value in vars(committed).items():
            if isinstance(value, type) and issubclass(value, Word) and value is not Word:
                found[name] = value, committed.PLACES[chip].get(value)
    return found


@pytest.mark.parametrize("video", [video.path for video in WANTED_ROWS.video])
def test_every_video_struct_is_what_gcc_lays_out(video, documents, gcc_layout):
    (wanted,) = [row for row in WANTED_ROWS.video if row.path == video]
    header = documents / wanted.header
    unit = parse([header], prelude=nvidia._NV_TYPES, from_files=[header])
    committed = structs_of(module(video))
    assert committed.keys() == {python_name(name) for name in unit.structs}
    for name, facts in unit.structs.items():
        rows = dict(part.split(":", 1) for part in committed[python_name(name)].LAYOUT.split())
        assert rows == layout_rows(facts), name
    judged = gcc_layout(unit, [header], prelude=nvidia._NV_TYPES)
    assert not judged.differences
    assert judged.structs >= 40
