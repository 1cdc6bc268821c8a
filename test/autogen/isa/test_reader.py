"""Reading the committed instruction facts."""

from importlib import resources

import pytest

from ringup.autogen import isa
from ringup.autogen.isa.reader import parse
from ringup.errors import HeaderError


@pytest.fixture
def facts():
    return (resources.files(isa) / "gfx1100.tsv").read_bytes()


def test_an_unknown_target_names_the_known_ones():
    with pytest.raises(
        ValueError, match="no instruction facts for gfx1030; there are gfx1100, gfx1151, gfx1201, gfx942, gfx950"
    ):
        isa.target("gfx1030")


@pytest.mark.parametrize("keep", [0, 1, 17, 5000, -1, -40])
def test_a_file_cut_short_is_one_header_error(facts, keep):
    with pytest.raises(HeaderError, match=r"instruction facts of gfx1100 .* are damaged"):
        parse("gfx1100", facts[:keep])


@pytest.mark.parametrize("at", [3, 200, 90_000, -3])
def test_a_changed_byte_is_noticed(facts, at):
    damaged = bytearray(facts)
    damaged[at] ^= 1
    with pytest.raises(HeaderError, match="are damaged"):
        parse("gfx1100", bytes(damaged))


def test_bytes_that_are_no_text_are_one_header_error():
    with pytest.raises(HeaderError, match="are damaged"):
        parse("gfx942", b"\xff\xfe\x00" * 100)


def test_facts_of_another_target_are_refused(facts):
    with pytest.raises(HeaderError, match="it begins"):
        parse("gfx1201", facts)


def test_a_format_becomes_a_word_class():
    vop2 = isa.target("gfx1100").formats["VOP2"].word()
    # llvm-mc, gfx1100: v_add_f32_e32 v0, v1, v2
    word = vop2(0x06000501)
    assert (word.op, word.vdst, word.src0, word.vsrc1) == (3, 0, 257, 2)


def test_wide_formats_reach_beyond_64_bits():
    word = isa.target("gfx1201").formats["VGLOBAL"].word()
    assert int(word(vaddr=2, ioffset=1)) == 2 << 64 | 1 << 72


# llvm-mc 22 with the encodings in its output
ROWS = [
    (
        "gfx1100",
        "01050006",
        "VOP2",
        "v_add_f32",
        ["vdst def vgpr 32 f32", "src0 use vgpr 32 f32", "vsrc1 use vgpr 32 f32"],
    ),
    (
        "gfx1100",
        "01050002",
        "VOP2",
        "v_cndmask_b32",
        ["vdst def vgpr 32 b32", "src0 use vgpr 32 b32", "vsrc1 use vgpr 32 b32", "implied use vcc 32 mask"],
    ),
    (
        "gfx1100",
        "01050a56",
        "VOP2",
        "v_fmac_f32",
        ["vdst both vgpr 32 f32", "src0 use vgpr 32 f32", "vsrc1 use vgpr 32 f32"],
    ),
    (
        "gfx1201",
        "00000080",
        "SOP2",
        "s_add_co_u32",
        ["sdst def sgpr 32 u32", "ssrc0 use sgpr 32 u32", "ssrc1 use sgpr 32 u32"],
    ),
    (
        "gfx942",
        "01050002",
        "VOP2",
        "v_add_f32",
        ["vdst def vgpr 32 f32", "src0 use vgpr 32 f32", "vsrc1 use vgpr 32 f32"],
    ),
]


@pytest.mark.parametrize(("target", "code", "fmt", "mnemonic", "operands"), ROWS)
def test_an_instruction_has_its_operands(target, code, fmt, mnemonic, operands):
    (found,) = isa.target(target).identify(bytes.fromhex(code))
    shown = [f"{o.field} {o.direction} {o.kinds[0]} {o.size_bits} {o.type}" for o in found.operands]
    assert (found.format, found.mnemonic, shown) == (fmt, mnemonic, operands)


def test_a_dual_instruction_is_two():
    # llvm-mc, gfx1100: v_dual_fmac_f32 v1, v2, v3 :: v_dual_mov_b32 v4, v5
    found = isa.target("gfx1100").identify(bytes.fromhex("020710c805010401"))
    assert [row.mnemonic for row in found] == ["v_dual_fmac_f32", "v_dual_mov_b32"]


def test_derived_targets_keep_the_rest_of_their_base():
    base, derived = isa.target("gfx1100"), isa.target("gfx1151")
    assert derived.by_opcode("VOP2", 3) == base.by_opcode("VOP2", 3)
    assert base.by_mnemonic("s_add_f32") == ()
    assert [row.format for row in derived.by_mnemonic("s_add_f32")] == ["SOP2"]


def test_every_row_can_be_unpacked_and_is_found_by_its_name():
    for name in isa.TARGETS:
        target = isa.target(name)
        for row in target.instructions:
            assert row == target.by_opcode(row.format, row.op)
            assert row in target.by_mnemonic(row.mnemonic)


def test_what_could_not_be_settled_is_listed():
    assert any(line.startswith("SCC, M0, MODE") for line in isa.target("gfx1100").unsettled)
    assert any(line.startswith("SMEM: the document prints dlc at bit 14") for line in isa.target("gfx1100").unsettled)


@pytest.mark.parametrize("target", isa.TARGETS)
def test_no_format_has_a_mnemonic_twice(target):
    """If an opcode field were a bit too wide or a bit off, opcodes would repeat."""
    for fmt in {row.format for row in isa.target(target).instructions}:
        names = [row.mnemonic for row in isa.target(target).instructions if row.format == fmt]
        assert sorted(set(names)) == sorted(names)


# Opcode tables of the ISA documents, chapter "Microcode Formats": how many instructions each format lists, and the
# first and the last of them.
DOCUMENTED = [
    ("gfx1100", "SOP2", 52, {0: "s_add_u32", 53: "s_pack_hl_b32_b16"}),
    ("gfx1100", "VOP1", 86, {0: "v_nop", 1: "v_mov_b32"}),
    ("gfx1100", "MUBUF", 73, {0: "buffer_load_format_x", 86: "buffer_atomic_add_f32"}),
    ("gfx1151", "SOP1", 80, {0: "s_mov_b32", 77: "s_sendmsg_rtn_b64"}),
    ("gfx1201", "VGLOBAL", 65, {16: "global_load_u8", 20: "global_load_b32", 53: "global_atomic_add_u32"}),
    ("gfx1201", "VFLAT", 55, {16: "flat_load_u8", 29: "flat_store_b128"}),
    ("gfx1201", "VSCRATCH", 24, {16: "scratch_load_u8", 29: "scratch_store_b128"}),
    ("gfx942", "MTBUF", 16, {0: "tbuffer_load_format_x"}),
    ("gfx942", "GLOBAL", 59, {16: "global_load_ubyte"}),
    ("gfx950", "MUBUF", 74, {0: "buffer_load_format_x"}),
]


@pytest.mark.parametrize(("target", "fmt", "count", "named"), DOCUMENTED)
def test_opcode_numbers_are_the_documents(target, fmt, count, named):
    facts = isa.target(target)
    assert sum(row.format == fmt for row in facts.instructions) == count
    assert {op: row.mnemonic if (row := facts.by_opcode(fmt, op)) else None for op in named} == named
