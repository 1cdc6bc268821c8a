"""Kernels as text, cubins of both generations, and damaged ones."""

import random
import struct

import pytest

from ringup.compiler.isa.sass import CHIPS, assembly, cubin, cubin_write, machine
from ringup.compiler.isa.sass.cubin import Generation
from ringup.compiler.isa.sass.dsl import Code
from ringup.errors import CompileError

SOURCE = """\
.target {chip}
.kernel add_one     ; adds one to every element
.registers 8
.barriers 1
.shared 256
.parameter 8
.parameter 4
.parameter 16
again:
  [B------:R-:W0:Y:S02] S2R R0, SR_TID.X
  [B0-----:R-:W-:Y:S13] ISETP.GE.U32.AND P0, PT, R0, 0x20, PT   // too many
  [B------:R-:W-:Y:S05] @P0 BRA done
  BAR.SYNC 0x0
  @!P0 BRA again
done:
  [B------:R-:W-:-:S05] EXIT
"""


@pytest.mark.parametrize("generation", list(Generation))
@pytest.mark.parametrize("chip", CHIPS)
def test_a_kernel_goes_into_a_cubin_and_comes_back(chip, generation):
    (kernel,) = assembly.assemble(SOURCE.format(chip=chip)).kernels
    found = cubin.read(cubin_write.write([kernel], chip, generation))
    (back,) = found.kernels.values()
    assert (found.chip, found.generation, back.name, back.code) == (chip, generation, "add_one", kernel.code)
    assert (back.registers, back.barriers, back.shared_bytes, back.exits) == (8, 1, 256, (0x50,))
    assert [(each.ordinal, each.offset, each.size_bytes) for each in back.parameters] == [
        (0, 0, 8),
        (1, 8, 4),
        (2, 16, 16),
    ]
    assert back.parameters_at == {"sm_90": 0x210, "sm_100": 0x380, "sm_120": 0x380}.get(chip, 0x160)
    text = "\n".join(assembly.cubin_lines(found, machine(chip)))
    assert "BRA L50" in text
    assert "@!P0 BRA L0" in text
    assert assembly.assemble(text).kernels[0].code == kernel.code


def test_python_writes_the_same_kernel():
    code = Code("sm_86", "k", registers=8, parameters=(8,))
    code.S2R("R0, SR_TID.X", write=0, stall=2)
    code.IMAD.WIDE.U32("R2, R0, 0x4, R4", wait=(0,), stall=5, guard="!P0")
    code.LDS._64("R2, [R0]", write=1)
    code.label("end")
    code.EXIT(stall=5, stay=True)
    isa = machine("sm_86")
    words = struct.iter_unpack("<QQ", code.kernel().code)
    assert [isa.line(low | high << 64) for low, high in words] == [
        "[B------:R-:W0:Y:S02] S2R R0, SR_TID.X",
        "[B0-----:R-:W-:Y:S05] @!P0 IMAD.WIDE.U32 R2, R0, 0x4, R4",
        "[B------:R-:W1:Y:S01] LDS.64 R2, [R0]",
        "[B------:R-:W-:-:S05] EXIT",
    ]
    assert cubin.read(code.cubin(Generation.CUDA_13)).kernels["k"].parameter_bytes == 8


WITH_DATA = """\
.target {chip}
.global table 64 01020304
.global scratch 256
.global table2 8 ff
.kernel k
.registers 8
  LDC.64 R2, c[0x4][scratch+0x10]
  LDC.64 R4, c[0x4][table]
  LDC.64 R6, c[0x4][scratch+16]
  EXIT
"""


@pytest.mark.parametrize("generation", list(Generation))
@pytest.mark.parametrize("chip", CHIPS)
def test_global_memory_and_its_addresses_go_into_a_cubin_and_come_back(chip, generation):
    made = assembly.assemble(WITH_DATA.format(chip=chip))
    found = cubin.read(cubin_write.write(made.kernels, chip, generation, made.data, made.addresses))
    assert [(*each[:2], each.content) for each in found.data] == [
        ("table", 64, bytes((1, 2, 3, 4))),
        ("scratch", 256, b""),
        ("table2", 8, b"\xff"),
    ]
    assert found.addresses == {0: ("scratch", 16), 8: ("table", 0)}
    # The two tables do not share a place.
    places = {symbol.name: symbol.value for symbol in found.symbols if symbol.section == ".nv.global.init"}
    assert places["table2"] - places["table"] >= 64
    text = "\n".join(assembly.cubin_lines(found, machine(chip), places=False))
    assert text.count("c[0x4][scratch+0x10]") == 2
    again = assembly.assemble(text)
    assert (again.kernels[0].code, again.addresses) == (made.kernels[0].code, made.addresses)


def test_entries_of_the_bank_keep_their_order_though_code_names_them_in_another():
    text = ".address table\n.kernel k"
    made = assembly.assemble(WITH_DATA.format(chip="sm_86").replace(".kernel k", text))
    assert made.addresses == (("table", 0), ("scratch", 16))


def test_an_address_of_no_data_is_refused():
    (kernel,) = assembly.assemble(SOURCE.format(chip="sm_86")).kernels
    with pytest.raises(ValueError, match="the address of missing, which is no data"):
        cubin_write.write([kernel], "sm_86", Generation.CUDA_12, (), [cubin.Address("missing")])


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (("[table]", "[nowhere]"), "the text:8: there is no .global nowhere"),
        (("table 64", "table 3"), "the text:2: .global table: there are two, or 3 bytes are no size for it"),
        (("table2", "table"), "the text:4: .global table: there are two"),
        (("01020304", "0102030x"), "the text:2: .global needs a name, a size in bytes, and perhaps bytes"),
        ((".kernel k", ".address nowhere"), "the text:5: there is no .global nowhere"),
    ],
)
def test_wrong_global_memory_is_named(wrong, reason):
    with pytest.raises(CompileError) as caught:
        assembly.assemble(WITH_DATA.format(chip="sm_86").replace(*wrong))
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("R0, 0x20", "R0, R400"), "the text:11: ISETP.GE.U32.AND: operand 4, R400: there is no R400"),
        (("BRA done", "BRA nowhere"), "the text:12: there is no label nowhere"),
        ((".registers 8\n", ""), "add_one has no .registers N"),
        ((".target sm_86", ".target sm_70"), "there are no instructions of sm_70"),
        ((".shared 256", ".shared"), "the text:5: .shared needs one value"),
        (("done:", "again:"), "the text:15: again is a label twice"),
        ((":S13]", ":S99]"), "a stall of 99 cycles; at most 15"),
        ((".kernel add_one     ;", ";"), "the text:3: .registers 8: no directive, or not at this place"),
    ],
)
def test_a_wrong_line_is_named(change, reason):
    with pytest.raises(CompileError) as caught:
        assembly.assemble(SOURCE.format(chip="sm_86").replace(*change))
    assert reason in str(caught.value)


@pytest.fixture(scope="module")
def image():
    kernels = assembly.assemble(SOURCE.format(chip="sm_86")).kernels
    return cubin_write.write(kernels, "sm_86", Generation.CUDA_12)


@pytest.mark.parametrize(
    ("place", "form", "value", "reason"),
    [
        (8, "<B", 9, "has ABI version 9; ringup reads 7, 8"),
        (4, "<B", 1, "is no 64-bit little-endian cubin"),
        (18, "<H", 62, "is no cubin"),
        (40, "<Q", 1 << 40, "sections at byte 1099511627776"),
        (60, "<H", 0xFFFF, "has 65535 sections"),
        (62, "<H", 200, "section 200 does not hold the names of the sections"),
    ],
)
def test_a_damaged_header_is_one_clear_error(image, place, form, value, reason):
    data = bytearray(image)
    struct.pack_into(form, data, place, value)
    with pytest.raises(CompileError, match=reason):
        cubin.read(bytes(data), "x.cubin")


def test_a_hostile_section_table_is_one_clear_error(image):
    (table,) = struct.unpack_from("<Q", image, 40)
    for field, value in ((24, 1 << 62), (32, 1 << 62), (0, 1 << 30)):
        data = bytearray(image)
        struct.pack_into("<I" if field == 0 else "<Q", data, table + 4 * 64 + field, value)
        with pytest.raises(CompileError, match=r"x\.cubin: (section 4 ends|a name begins)"):
            cubin.read(bytes(data), "x.cubin")


def test_any_damage_is_read_or_refused_and_never_a_traceback(image):
    draw = random.Random(3)
    refused = 0
    for _ in range(400):
        data = bytearray(image[: draw.randrange(len(image))] if draw.random() < 0.2 else image)
        for _ in range(draw.randrange(1, 4)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        try:
            cubin.read(bytes(data))
        except CompileError:
            refused += 1
    assert 100 < refused < 400


def test_a_kernel_with_impossible_needs_is_refused():
    (kernel,) = assembly.assemble(SOURCE.format(chip="sm_86").replace(".registers 8", ".registers 256")).kernels
    with pytest.raises(ValueError, match="add_one has 256 registers; a thread has 1 to 255"):
        cubin_write.write([kernel], "sm_86", Generation.CUDA_12)
