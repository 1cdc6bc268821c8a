"""The register database: reading gives what was written. A damaged file gives one error, only for a reader who needs
that file.
"""

import json
import random
import struct
import zlib
from contextlib import suppress

import pytest

from ringup.autogen.generate.emit.regdb import write_block, write_chip
from ringup.autogen.generate.emit.register_facts import SEGMENT_UNKNOWN, FieldFacts, RegisterFacts
from ringup.autogen.regdb import ChipRow, Place, chip_names, open_chip
from ringup.errors import HeaderError

MODE = FieldFacts("MODE", 5, 4, values=(("OFF", 0), ("ON", 1), ("ALSO_ON", 1)), note="how it runs")
FACTS = [
    RegisterFacts("CP_CNTL", "reg", 0x10, 1, fields=(FieldFacts("HALT", 0, 0), MODE)),
    RegisterFacts("CP_CNTL", "cfg", 0xFFFE00000000, None, 1, fields=(FieldFacts("HALT", 0, 0), MODE)),
    RegisterFacts(
        "NV_PFB_X", "mmio", 0x100, None, 1, 64, 8, 32, (FieldFacts("ODD", 6, 2, 0b1010100),), "A7XX-", "a note"
    ),
    RegisterFacts("LOST", "", None, fields=(FieldFacts("X", 63, 63, variant="A6XX"),)),
    RegisterFacts("SOMEWHERE", "reg", 0, SEGMENT_UNKNOWN),
]


@pytest.fixture
def folder(tmp_path):
    """A database folder with one chip, `toy`. It has two blocks that share a file."""
    (tmp_path / "chips").mkdir()
    (tmp_path / "one.bin").write_bytes(write_block(FACTS))
    places = (
        Place("gc", "1.0", "one.bin", ((0x1000, 0x2000), (0x3000, 0x4000)), "made up"),
        Place("gc1", "1.0", "one.bin", (), "made up", guess=True),
    )
    (tmp_path / "chips" / "toy.bin").write_bytes(write_chip(ChipRow("toy", "gfx0", "nobody", places)))
    return tmp_path


@pytest.fixture
def toy(folder):
    return open_chip("toy", folder)


def test_a_register_has_its_place_and_address_by_instance(toy):
    register = toy.register("CP_CNTL")
    assert (register.offset, register.segment, register.place.block) == (0x10, 1, "gc")
    assert [register.address(0), register.address(1), register.address(2)] == [0x8040, 0x10040, None]


def test_rows_of_one_name_are_found_in_every_block_and_kind(toy):
    found = [(one.place.block, one.row.kind, one.offset) for one in toy.registers("CP_CNTL")]
    assert found == [
        ("gc", "reg", 0x10),
        ("gc", "cfg", 0xFFFE00000000),
        ("gc1", "reg", 0x10),
        ("gc1", "cfg", 0xFFFE00000000),
    ]


def test_arrays_notes_variants_and_gaps_survive(toy):
    register = toy.register("NV_PFB_X")
    row = register.row
    assert (row.unit_bytes, row.width_bits, row.stride, row.count, row.variant, row.note) == (
        1,
        64,
        8,
        32,
        "A7XX-",
        "a note",
    )
    assert register.address(element=3) == 0x118
    (odd,) = register.fields
    assert (odd.hi, odd.lo, odd.mask, odd.of(0xFF)) == (6, 2, 0b1010100, 0b10101)


def test_named_values_survive_with_their_order(toy):
    halt, mode = toy.register("CP_CNTL").fields
    assert (halt.name, halt.values) == ("HALT", ())
    assert mode.values == (("OFF", 0), ("ON", 1), ("ALSO_ON", 1))
    assert (mode.note, mode.of(0x10), mode.named(1), mode.named(2)) == ("how it runs", 1, "ON", "")


def test_a_register_without_a_known_place_has_no_address(toy):
    assert toy.register("LOST").address() is None
    assert toy.register("LOST").fields[0].variant == "A6XX"
    assert toy.register("SOMEWHERE").address() is None
    assert toy.register("SOMEWHERE").fields == ()


def test_find_takes_parts_and_patterns_in_either_case(toy):
    assert [one.name for one in toy.find("pfb")] == ["NV_PFB_X", "NV_PFB_X"]
    assert [one.name for one in toy.find("nv_*_?")] == ["NV_PFB_X", "NV_PFB_X"]
    assert toy.find("pfb_*") == []
    assert toy.find("nothing.") == []


def test_a_name_that_is_not_there_names_near_ones(toy):
    with pytest.raises(HeaderError, match="toy has no register CP_CNTRL; near: CP_CNTL"):
        toy.register("CP_CNTRL")


def test_an_unknown_chip_lists_the_chips(folder):
    with pytest.raises(HeaderError, match=r"no chip toys .* there are: toy"):
        open_chip("toys", folder)


def test_an_empty_block_has_no_registers(folder):
    (folder / "one.bin").write_bytes(write_block([]))
    assert open_chip("toy", folder).find("") == []


@pytest.mark.parametrize(
    "field",
    [FieldFacts("F", 3, 4), FieldFacts("F", 3, 0, mask=0b101), FieldFacts("F", 0, 0, values=(("N", -1),))],
)
def test_facts_that_are_none_are_refused(field):
    with pytest.raises(HeaderError, match="F"):
        write_block([RegisterFacts("A", "reg", 0, fields=(field,))])


def read_all(folder):
    """Open everything and read every fact in it."""
    chip = open_chip("toy", folder)
    chip.verify()
    registers = [*chip.find(""), *chip.registers("CP_CNTL"), *chip.registers("NOPE")]
    return [(one.row, one.fields, one.address()) for one in registers]


@pytest.mark.parametrize("name", ["one.bin", "chips/toy.bin"])
def test_a_database_cut_short_anywhere_is_one_error(folder, name):
    whole = (folder / name).read_bytes()
    for size_bytes in range(len(whole)):
        (folder / name).write_bytes(whole[:size_bytes])
        with pytest.raises(HeaderError):
            read_all(folder)


@pytest.mark.parametrize("name", ["one.bin", "chips/toy.bin"])
def test_a_flipped_bit_anywhere_is_one_error(folder, name):
    whole = (folder / name).read_bytes()
    for at in range(len(whole)):
        damaged = bytearray(whole)
        damaged[at] ^= 1 << at * 5 % 8
        (folder / name).write_bytes(damaged)
        with pytest.raises(HeaderError):
            read_all(folder)


def test_a_file_with_a_right_checksum_and_wrong_contents_is_an_error(folder):
    whole = bytearray((folder / "one.bin").read_bytes())
    chance = random.Random(7)
    for _ in range(3000):
        damaged = bytearray(whole)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(16, len(damaged))] = chance.randrange(256)
        damaged[12:16] = zlib.crc32(damaged[16:]).to_bytes(4, "little")
        (folder / "one.bin").write_bytes(damaged)
        # Any other exception fails the test. Undamaged contents may be read.
        with suppress(HeaderError):
            read_all(folder)


def test_the_same_facts_give_the_same_bytes_whatever_the_hash_seed(tmp_path):
    import subprocess
    import sys

    code = (
        "import sys; from ringup.autogen.generate.emit.regdb import write_block;"
        "from ringup.autogen.generate.emit.register_facts import *;"
        "sys.stdout.buffer.write(write_block([RegisterFacts(f'R_{i}', 'reg', i, 0, fields=(FieldFacts(f'F{i % 7}', 3, 0),))"
        " for i in range(300)]))"
    )
    made = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "LC_ALL": locale},
            capture_output=True,
            check=True,
        ).stdout
        for seed, locale in (("1", "C"), ("2", "C.UTF-8"))
    }
    assert len(made) == 1


# ---- contents that are wrong behind a right checksum


def framed(magic, body):
    """Return a file of the database with this content and a right header and checksum."""
    return struct.pack("<8sII", magic, 16 + len(body), zlib.crc32(body)) + body


def with_column(whole, number, size, count, place):
    """Return the block file with the descriptor of one column replaced."""
    body = bytearray(whole[16:])
    struct.pack_into("<BxxxIQ", body, number * 16, size, count, place)
    return framed(b"RINGREG1", bytes(body))


@pytest.mark.parametrize(
    ("column", "size", "count", "place"),
    [
        # hash_tag of two bytes each.
        (3, 2, 4, 512),
        (3, 4, 4, 512),
        # hash_tag as a constant that is no byte.
        (3, 0, 8, 1000),
        # hash_tag as a constant that fills memory.
        (3, 0, 0xFFFFFFFF, 0),
        (0, 0, 0xFFFFFFFF, 0),  # words
        (26, 0, 0xFFFFFFFF, 0),  # value_name
        (19, 0, 3, 1 << 45),  # field_hi
    ],
)
def test_a_column_that_cannot_be_is_one_error(folder, column, size, count, place):
    file = folder / "one.bin"
    file.write_bytes(with_column(file.read_bytes(), column, size, count, place))
    with pytest.raises(HeaderError, match=r"one.bin contradicts itself"):
        read_all(folder)


BLOCK = ["gc", "1.0", "one.bin", [[1, 2]], "made up", False]
WHOLE_CHIP = {"name": "toy", "target": "", "vendor": "", "note": "", "blocks": [BLOCK]}


@pytest.mark.parametrize(
    "document",
    [
        "[" * 100_000,
        "[]",
        "3",
        {"blocks": 3},
        {"blocks": [3]},
        {"blocks": [BLOCK[:3]]},
        {"name": None},
        {"name": "other"},
        {"note": 5},
        *[
            {"blocks": [[*BLOCK[:at], wrong, *BLOCK[at + 1 :]]]}
            for at, wrong in [
                (0, ["l"]),
                (2, 5),
                (2, "../one.bin"),
                (2, "/etc/passwd"),
                (2, "one\0.bin"),
                (3, [["x", "y"]]),
                (3, [None]),
                (3, 7),
                (3, [[1.5]]),
                (4, None),
            ]
        ],
    ],
    ids=lambda document: str(document)[:40].replace("\0", "0"),
)
def test_a_chip_file_that_cannot_be_is_one_error(folder, document):
    text = document if isinstance(document, str) else json.dumps({**WHOLE_CHIP, **document})
    (folder / "chips" / "toy.bin").write_bytes(framed(b"RINGCHP1", text.encode()))
    with pytest.raises(HeaderError, match=r"toy.bin contradicts itself"):
        open_chip("toy", folder)


@pytest.mark.parametrize("name", ["a" * 300, "../chips/toy", "to\0y", "", ".", "\udcff", None])
def test_only_a_name_of_the_list_opens_a_chip(folder, name):
    with pytest.raises(HeaderError, match=r"no chip .* there are: toy"):
        open_chip(name, folder)


def test_a_name_that_is_no_text_is_no_register(toy):
    with pytest.raises(HeaderError, match="toy has no register"):
        toy.register("\udcff")
    assert toy.registers("CP_CNTL\udcff") == []


# ---- one damaged block


@pytest.fixture
def partly(folder):
    """The chip `pair`: the damaged block `bad` comes before the block `good`."""
    (folder / "bad.bin").write_bytes(write_block([RegisterFacts("CP_CNTL", "reg", 1, 0)])[:-1])
    places = (Place("bad", "1", "bad.bin"), Place("good", "1", "one.bin"))
    (folder / "chips" / "pair.bin").write_bytes(write_chip(ChipRow("pair", "", "", places)))
    return open_chip("pair", folder)


def test_what_an_intact_block_holds_is_found_beside_a_damaged_one_with_one_warning(partly, caplog):
    assert partly.register("CP_CNTL").place.block == "good"
    assert [one.place.block for one in partly.registers("CP_CNTL")] == ["good", "good"]
    assert [one.name for one in partly.find("pfb")] == ["NV_PFB_X"]
    (warning,) = caplog.messages
    assert warning.startswith("pair without block bad: register database bad.bin has ")


def test_what_is_not_found_beside_a_damaged_block_is_an_error_that_names_its_file(partly):
    for ask in (partly.register, partly.registers, partly.find):
        with pytest.raises(HeaderError, match=r"bad.bin has"):
            ask("NOWHERE")


def test_one_block_is_asked_without_the_damaged_one(partly, caplog):
    assert [one.offset for one in partly.registers("CP_CNTL", "good")] == [0x10, 0xFFFE00000000]
    assert partly.registers("NOWHERE", "good") == partly.find("NOWHERE", "good") == []
    assert caplog.messages == []
    with pytest.raises(HeaderError, match=r"bad.bin"):
        partly.registers("CP_CNTL", "bad")


def test_verifying_names_every_damaged_file(partly, folder):
    with pytest.raises(HeaderError, match=r"bad.bin"):
        partly.verify()
    (folder / "one.bin").write_bytes(b"")
    with pytest.raises(HeaderError, match=r"bad.bin.*; .*one.bin"):
        open_chip("pair", folder).verify()


def test_a_block_file_is_opened_when_it_is_needed(toy, folder):
    (folder / "chips" / "pair.bin").write_bytes(
        write_chip(ChipRow("pair", "", "", (Place("good", "1", "one.bin"), Place("gone", "1", "gone.bin"))))
    )
    assert open_chip("pair", folder).register("CP_CNTL").place.block == "good"


# ---- the committed databases


@pytest.mark.parametrize("name", chip_names())
def test_every_committed_chip_is_whole(name):
    chip = open_chip(name)
    chip.verify()
    assert all(len(chip.file(place)) for place in chip.row.places)


@pytest.mark.parametrize("name", ["navi31", "navi48", "mi300x", "phoenix"])
def test_any_register_of_a_chip_is_found_by_its_name(name):
    chip = open_chip(name)
    names = [known for place in chip.row.places for known in chip.file(place).names()]
    assert len(names) > 10_000
    sample = random.Random(1).sample(names, 5000)
    assert [chip.register(known).name for known in sample] == sample


def test_the_register_file_s_registers_are_where_the_kernel_was_seen_to_access_them():
    # Dwords of BAR 5 that amdgpu.ko 6.12 accessed on a navi31 during bring-up.
    seen = {
        "MP0_SMN_C2PMSG_33": 0x16061, "RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE": 0xDE3, "MMMC_VM_FB_LOCATION_BASE": 0x1A8EC,
        "MMVM_CONTEXT0_PAGE_TABLE_BASE_ADDR_LO32": 0x1A7AB, "IH_RB_CNTL": 0x1120, "CP_STAT": 0x21A0,
        "RLC_RLCS_BOOTLOAD_STATUS": 0xEE82, "GB_ADDR_CONFIG": 0x263E, "GRBM_GFX_CNTL": 0xA900, "CP_MES_GP3_LO": 0xC849,
        "THM_THERMAL_INT_CTRL": 0x1660B, "MP1_SMN_C2PMSG_90": 0x1629A, "BIF_BX_PF0_RSMU_INDEX": 0x14,
        "BIF_BX0_BIOS_SCRATCH_7": 0x53, "HUBP0_DCSURF_PRI_VIEWPORT_DIMENSION": 0x3AAA, "IP_DISCOVERY_VERSION": 0x16A00,
    }  # fmt: skip
    chip = open_chip("navi31")
    assert {name: chip.register(name).address() for name in seen} == {name: dword * 4 for name, dword in seen.items()}
