"""amdgpu's register headers: what the reader accepts, what it lists, and gcc's value of every macro of every header."""

import json
import re
import subprocess
from array import array

import pytest

from ringup.autogen.generate.amd.chips import ASIC_REG, read_chips
from ringup.autogen.generate.amd.registers import read_block
from ringup.autogen.generate.emit.register_facts import SEGMENT_UNKNOWN, FieldFacts, RegisterFacts
from ringup.autogen.generate.emit.registers import emit_registers
from ringup.autogen.regdb import FOLDER, open_chip
from ringup.autogen.regfile import BlockFile
from ringup.errors import HeaderError

STEMS = sorted({place.file for chip in read_chips().values() for place in chip.places})

# The number of macros that each header has and its database lacks. They are a shift without its mask, a segment without
# its register, a shift that contradicts its mask (the mask counts), and one segment that is no number (`1  1`).
LEFT_OUT = {
    "gc/gc_11_0_0": 3, "gc/gc_11_5_0": 1, "mmhub/mmhub_4_1_0": 45, "mp/mp_14_0_2": 1, "smuio/smuio_14_0_2": 68,
    "umc/umc_8_10_0": 1, "vcn/vcn_4_0_0": 1, "vcn/vcn_4_0_5": 406, "lsdma/lsdma_7_0_0": 19, "dcn/dcn_3_5_0": 10,
    "dcn/dcn_3_5_1": 10, "dcn/dcn_4_1_0": 0,
}  # fmt: skip
NO_NUMBER = {("dcn_4_1_0_offset.h", "regPHYPLLE_PIXCLK_RESYNC_CNTL_BASE_IDX")}

# Here Mesa's lists differ from the kernel's headers. Mesa adds fields, and leaves registers of gfx9.4.3 at the
# addresses of older chips.
MESA_ADDS = re.compile(r"CB_COLOR\d_FDCC_CONTROL|VGT_DRAW_PAYLOAD_CNTL")
MESA_OLDER = re.compile(r"SQ_THREAD_TRACE_\w+|SPI_CONFIG_CNTL")


@pytest.fixture
def block(tmp_path):
    """Write the headers of an invented block and read them."""

    def read(offset, masks=""):
        for ending, body in (("offset", offset), ("sh_mask", masks)):
            (tmp_path / f"b_1_0_{ending}.h").write_text(f"#ifndef _b_{ending}\n#define _b_{ending}\n{body}\n#endif\n")
        return read_block(tmp_path / "b_1_0")

    return read


def test_a_register_has_its_prefix_as_kind_its_segment_and_its_fields_low_bits_first(block):
    read = block(
        "#define regA 0x10 // twice: dwords\n#define regA_BASE_IDX 2\n#define smnA 0x5000",
        "#define A__HIGH_MASK 0xFFFF0000L\n#define A__HIGH__SHIFT 0x10\n#define A__LOW__SHIFT 0x0\n#define A__LOW_MASK 0x1L",
    )
    fields = (FieldFacts("LOW", 0, 0), FieldFacts("HIGH", 31, 16))
    assert read.registers == (
        RegisterFacts("A", "reg", 0x10, 2, 4, fields=fields),
        RegisterFacts("A", "smn", 0x5000, None, 1, fields=fields),
    )
    assert read.rejected == ()


def test_double_underscores_split_at_the_longest_register(block):
    read = block(
        "#define regA 1\n#define regA_BASE_IDX 0\n#define regA__B 2\n#define regA__B_BASE_IDX 0",
        "#define A__B__C__SHIFT 0\n#define A__B__C_MASK 0x1\n#define A__D__E__SHIFT 0\n#define A__D__E_MASK 0x1",
    )
    assert {one.name: [field.name for field in one.fields] for one in read.registers} == {"A": ["D__E"], "A__B": ["C"]}


def test_a_field_without_a_register_s_offset_is_kept(block):
    (read,) = block("", "#define A__F__SHIFT 0x4\n#define A__F_MASK 0x00000030L").registers
    assert (read.name, read.kind, read.offset) == ("A", "", None)
    assert read.fields == (FieldFacts("F", 5, 4),)


def test_wide_masks_widen_the_register_and_gaps_stay_in_the_mask(block):
    (read,) = block(
        "#define regA 1\n#define regA_BASE_IDX 0",
        "#define A__W__SHIFT 0x20\n#define A__W_MASK 0x00FFFFFF00000000L\n#define A__G__SHIFT 0x0\n#define A__G_MASK 0x5",
    ).registers
    assert read.width_bits == 64
    assert read.fields == (FieldFacts("G", 2, 0, 0b101), FieldFacts("W", 55, 32))


@pytest.mark.parametrize(
    ("offset", "masks", "name", "reason"),
    [
        ("", "#define A__F__SHIFT 3", "A__F", "without a mask"),
        ("", "#define A__F__SHIFT 3\n#define A__F_MASK 0x10", "A__F__SHIFT", "shift 3 beside mask 0x10"),
        ("", "#define A__F__SHIFT 0\n#define A__F_MASK 0x0", "A__F", "names no bit"),
        ("", "#define A__F 0x1", "A__F", "neither the shift nor the mask"),
        ("#define regA_BASE_IDX 1", "", "regA_BASE_IDX", "no offset"),
        ("#define regA 0x1", "", "regA", "without a segment"),
        ("#define regA (1 + 2)", "", "regA", "not a number"),
        ("#define regA 010", "", "regA", "not a number"),
        ("#define A 0x1", "", "A", "without a register's prefix"),
        ("#define regA 1\n#define regA 2\n#define regA_BASE_IDX 0", "", "regA", "defined again as 0x2"),
        ("system(rm)", "", "system(rm)", "neither a comment nor a #define"),
    ],
)
def test_what_cannot_be_read_is_listed_with_its_reason(block, offset, masks, name, reason):
    (rejected,) = block(offset, masks).rejected
    assert rejected.name == name
    assert reason in rejected.reason


def test_of_two_definitions_the_last_counts_as_in_c(block):
    (read,) = block("#define regA 1\n#define regA 2\n#define regA_BASE_IDX 0").registers
    assert read.offset == 2


def test_a_register_without_a_segment_has_no_address_to_mistake(block):
    (read,) = block("#define regA 0x1").registers
    assert read.segment == SEGMENT_UNKNOWN


@pytest.mark.parametrize("line", ["#ifdef X\n#define regA 1\n#endif", "#undef regA", '#include "x.h"', "#else"])
def test_a_header_that_is_conditional_beyond_its_guard_is_an_error(block, line):
    with pytest.raises(HeaderError, match=r"b_1_0_offset\.h:3: "):
        block(line)


def test_a_header_cut_short_is_an_error(tmp_path):
    (tmp_path / "b_1_0_offset.h").write_text("#ifndef _b\n#define _b\n#define regA 0x1\n")
    with pytest.raises(HeaderError, match="cut short"):
        read_block(tmp_path / "b_1_0")


def test_a_missing_header_is_an_error(tmp_path):
    with pytest.raises(HeaderError, match=r"no register header b_9_offset\.h"):
        read_block(tmp_path / "b_9")


def macros_by_gcc(header, folder):
    """Let cpp list a header's macros and gcc compute each of them. Our code reads nothing here."""
    listing = subprocess.run(["cpp", "-dM", header], capture_output=True, text=True, check=True).stdout
    own = subprocess.run(["cpp", "-dM", "/dev/null"], capture_output=True, text=True, check=True).stdout
    builtin = {line.split()[1] for line in own.splitlines()}
    named = (line.split(None, 2) for line in listing.splitlines())
    names = [line[1] for line in named if len(line) == 3 and line[1] not in builtin]
    names = [name for name in names if (header.name, name) not in NO_NUMBER]
    source, compiled, values = folder / "values.c", folder / "values.o", folder / "values.bin"
    lines = ",\n".join([*names, "0"])
    source.write_text(
        f'#include "{header}"\n__attribute__((section(".facts"))) unsigned long long values[] = {{\n{lines}}};\n'
    )
    subprocess.run(["gcc", "-w", "-c", "-o", compiled, source], check=True)
    subprocess.run(["objcopy", "-O", "binary", "-j", ".facts", compiled, values], check=True)
    return dict(zip(names, array("Q", values.read_bytes()), strict=False))


@pytest.mark.parametrize("stem", STEMS)
@pytest.mark.sweep(25)
def test_every_register_and_field_of_the_committed_databases_is_as_gcc_computes_it(stem, headers, tmp_path):
    folder, name = stem.split("/")
    root = headers("linux") / ASIC_REG / folder
    paths = [root / f"{name}_{ending}.h" for ending in ("offset", "sh_mask")]
    macros = {k: v for path in paths if path.exists() for k, v in macros_by_gcc(path, tmp_path).items()}
    database = FOLDER / "amd" / f"{'dcn_3_5_0' if name == 'dcn_3_5_1' else name}.bin"
    # dcn_3_5_1 is equal to dcn_3_5_0 and shares its file.
    file = BlockFile(database)
    wrong, seen = [], set()
    for index in range(len(file)):
        row = file.row(index)
        macro = row.kind + row.name
        if row.offset is not None:
            seen.add(macro)
            if macros.get(macro) != row.offset:
                wrong.append((macro, row.offset))
        if row.segment is not None and row.segment >= 0:
            seen.add(f"{macro}_BASE_IDX")
            if macros.get(f"{macro}_BASE_IDX") != row.segment:
                wrong.append((macro, "segment", row.segment))
        for field in file.fields(index):
            stem_of_field = f"{row.name}__{field.name}"
            seen.add(f"{stem_of_field}_MASK")
            if macros.get(f"{stem_of_field}_MASK") != field.mask:
                wrong.append((stem_of_field, field.mask))
            if macros.get(f"{stem_of_field}__SHIFT") == field.lo:
                seen.add(f"{stem_of_field}__SHIFT")
    assert wrong == []
    assert len(macros.keys() - seen) == LEFT_OUT.get(stem, 0)


@pytest.mark.parametrize(
    ("listing", "stem", "bases"),
    [
        ("gfx11", "gc_11_0_0", {0: 0x1260, 1: 0xA000}),
        ("gfx115", "gc_11_5_0", {0: 0x1260, 1: 0xA000}),
        ("gfx12", "gc_12_0_0", {0: 0x1260, 1: 0xA000}),
        ("gfx940", "gc_9_4_3", {0: 0x2000, 1: 0xA000}),
    ],
)
def test_mesa_s_register_lists_agree_where_both_name_a_register(listing, stem, bases, headers):
    lists = json.loads((headers("mesa") / f"src/amd/registers/{listing}.json").read_text())
    file = BlockFile(FOLDER / "amd" / f"{stem}.bin")
    ours = {(row := file.row(i)).name: (i, row) for i in range(len(file)) if file.row(i).kind == "reg"}
    compared, different = 0, []
    for mapping in lists["register_mappings"]:
        name = mapping["name"]
        if name not in ours or mapping["map"]["to"] != "mm":
            continue
        index, row = ours[name]
        compared += 1
        older = listing == "gfx940" and MESA_OLDER.fullmatch(name)
        if not older and (bases[row.segment] + row.offset) * 4 != mapping["map"]["at"]:
            different.append((name, mapping["map"]["at"], row))
        theirs = lists["register_types"].get(mapping.get("type_ref"), {"fields": []})["fields"]
        fields = {field.name: [field.lo, field.hi] for field in file.fields(index)}
        different += [
            (name, field)
            for field in theirs
            if fields.get(field["name"]) != field["bits"] and not MESA_ADDS.fullmatch(name)
        ]
    assert different == []
    assert compared > 350


def test_the_segment_bases_that_chips_name_are_those_of_mesa():
    for name in ("navi31", "navi32", "navi33", "phoenix", "strix", "strix_halo", "navi44", "navi48"):
        assert open_chip(name).register("GRBM_GFX_INDEX").address() == 0x30800  # gfx11.json, gfx12.json
        assert open_chip(name).register("COMPUTE_PGM_LO").address() == 0xB830


def load(text, name, monkeypatch):
    import sys
    import types

    module = types.ModuleType(name)
    monkeypatch.setitem(sys.modules, name, module)
    exec(compile(text, name, "exec"), module.__dict__)
    return module


VERSIONS = {
    (1, 0): [
        RegisterFacts("A", "reg", 0x10, 0, fields=(FieldFacts("X", 3, 0), FieldFacts("CLASS", 4, 4))),
        RegisterFacts("A", "cfg", 0x99, None, 1),
    ],
    (2, 0): [
        RegisterFacts("A", "reg", 0x20, 1, fields=(FieldFacts("X", 7, 0), FieldFacts("CLASS", 8, 8))),
        RegisterFacts("B", "reg", 0x21, 1, width_bits=64, fields=(FieldFacts("AT", 63, 32),)),
    ],
    (3, 0): [RegisterFacts("A", "reg", 0x30, 1, fields=(FieldFacts("X", 7, 0),))],
}


def test_a_module_holds_places_and_changes_by_version(monkeypatch):
    module = load(emit_registers("Made up.", VERSIONS, ["A", "B"], "nothing", {(2, 1): (2, 0)}), "made_up", monkeypatch)
    assert module.PLACES[1, 0] == {module.A: (0x10, 0)}
    assert module.PLACES[2, 1] == {module.A: (0x20, 1), module.B: (0x21, 1)}
    assert [module.A.at(v)(x=5).__index__() for v in ((1, 0), (2, 0), (2, 1), (3, 0))] == [5, 5, 5, 5]
    assert int(module.A.at((1, 0))(class_=1)) == 0x10
    assert int(module.A.at((2, 1))(class_=1)) == 0x100
    with pytest.raises(TypeError, match="no field class_"):
        module.A.at((3, 0))(class_=1)
    assert int(module.B(at_=1)) == 1 << 32


def test_a_wanted_register_that_no_version_has_is_an_error_with_near_names():
    facts = {(1, 0): [RegisterFacts("CP_HQD_ACTIVE", "reg", 1, 0)]}
    with pytest.raises(HeaderError, match="CP_HQD_ACTIV; near: CP_HQD_ACTIVE"):
        emit_registers("Made up.", facts, ["CP_HQD_ACTIV"], "nothing")
