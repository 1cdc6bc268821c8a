"""Words have named bits and check their values. Structs are views of memory with a fixed layout."""

import copy
import os
import pickle
import struct
import subprocess
import sys

import pytest

from ringup.autogen import layout, plain_view, structs
from ringup.autogen.layout import Field, Struct, Word
from ringup.errors import NotSupported


class Request(Word):
    per_vmid_invalidate_req = Field(15, 0)
    flush_type = Field(18, 16)
    invalidate_l2_ptes = Field(19)


class Descriptor(Word, width=256):
    version = Field(255, 252)
    bank_valid = Field(10, 10, count=8, stride=4)


PLACES = {(1, 0): {Request: (0x10, 0)}, (2, 0): {Request: (0x20, 0)}, (3, 0): {Request: (0x20, 0)}}
CHANGES = {(2, 0): {Request: {"flush_type": (20, 19), "invalidate_l2_ptes": None, "log": (31, 31)}}}


def test_a_word_puts_each_field_where_the_header_says():
    word = Request(per_vmid_invalidate_req=1, flush_type=5, invalidate_l2_ptes=1)
    assert int(word) == 0x000D0001
    assert (word.per_vmid_invalidate_req, word.flush_type, word.invalidate_l2_ptes) == (1, 5, 1)


def test_replace_leaves_every_other_bit():
    word = Request(0xFFF0_FFFF).replace(flush_type=2)
    assert int(word) == 0xFFF2_FFFF
    assert isinstance(word, Request)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"flush_type": 9}, "Request.flush_type holds 3 bits, not 0x9"),
        ({"flush_type": -1}, "Request.flush_type holds 3 bits, not -0x1"),
        ({"invalidate_l2_ptes": 2}, "Request.invalidate_l2_ptes holds 1 bits, not 0x2"),
    ],
)
def test_a_value_too_wide_is_refused_and_named(fields, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        Request(**fields)


def test_a_word_too_wide_is_refused():
    with pytest.raises(ValueError, match="Request holds 32 bits, not 0x100000000"):
        Request(1 << 32)


def test_a_typo_in_a_field_names_the_near_one():
    with pytest.raises(TypeError, match="Request has no field flsh_type; near: flush_type"):
        Request(flsh_type=1)


def test_a_value_that_is_no_integer_is_refused():
    with pytest.raises(TypeError, match=r"Request\.flush_type takes an integer, not '1'"):
        Request(flush_type="1")


def test_a_word_cannot_be_changed():
    with pytest.raises(AttributeError):
        Request(0).flush_type = 1


def test_overlapping_fields_are_refused_when_the_class_is_made():
    with pytest.raises(TypeError, match="Bad: fields low and high share bits"):
        type("Bad", (Word,), {"low": Field(7, 0), "high": Field(10, 7)})


def test_a_field_beyond_the_word_is_refused_when_the_class_is_made():
    with pytest.raises(TypeError, match=r"Bad\.top reaches bit 32 of a word of 32"):
        type("Bad", (Word,), {"top": Field(32)})


def test_a_field_that_would_hide_a_method_is_refused():
    with pytest.raises(TypeError, match=r"Bad\.replace would hide Word.replace"):
        type("Bad", (Word,), {"replace": Field(0)})


def test_repr_names_what_is_set_and_reads_back():
    word = Request(0x8000_0000, flush_type=3)
    assert repr(word) == "Request(0x80000000, flush_type=0x3)"
    assert eval(repr(word)) == word
    assert repr(Request()) == "Request(0x0)"


def test_an_array_field_has_its_elements_a_stride_apart():
    word = Descriptor(bank_valid=(1, 0, 0, 0, 0, 0, 0, 1), version=4)
    assert int(word) == 4 << 252 | 1 << 10 | 1 << 38
    assert word.bank_valid == (1, 0, 0, 0, 0, 0, 0, 1)
    with pytest.raises(ValueError, match=r"Descriptor.bank_valid takes 8 values"):
        Descriptor(bank_valid=(1,))
    with pytest.raises(ValueError, match=r"Descriptor.bank_valid\[1\] holds 1 bits, not 0x2"):
        Descriptor(bank_valid=(0, 2, 0, 0, 0, 0, 0, 0))


def test_a_version_that_differs_has_its_own_fields():
    other = Request.at((2, 0))
    assert int(other(flush_type=3, log=1)) == 0x8018_0000
    assert list(other.FIELDS) == ["per_vmid_invalidate_req", "flush_type", "log"]
    with pytest.raises(AttributeError, match="Request of this version has no field invalidate_l2_ptes"):
        _ = other(0).invalidate_l2_ptes
    with pytest.raises(TypeError, match="no field invalidate_l2_ptes"):
        other(invalidate_l2_ptes=1)
    assert Request.at((1, 0)) is Request
    assert Request.at((2, 0)) is other


def test_a_version_nobody_knows_is_refused():
    with pytest.raises(ValueError, match=r"knows versions \(1, 0\), \(2, 0\), \(3, 0\), not \(9, 0\)"):
        Request.at((9, 0))


class Inner(Struct):
    SIZE, ALIGN = 8, 4
    LAYOUT = "x:u32@0 y:i32@4"


class Outer(Struct):
    SIZE, ALIGN = 72, 8
    LAYOUT = (
        "a:u32@0 three:u8@4.1+3 wide:u32@4.4+20 minus:i32@7.0+4 d:u64@8 body:Inner[2]@16 name:char[8]@32 id:u8[4]@40 both:u32@44 low:u16@44"
        " ratio:f64@48 flag:bool@56 grid:u16[2][3]@58"
    )


class Tail(Struct):
    SIZE, ALIGN = 4, 4
    LAYOUT = "count:u32@0 entry:Inner[]@4"


# Three bytes: no aligned unit inside the struct holds 20 bits from bit 0 on, and none may reach past its end.
class Odd(Struct):
    SIZE, ALIGN = 3, 1
    LAYOUT = "low:u32@0.0+20 high:u8@2.4+4"


def test_a_view_writes_each_member_where_its_row_says():
    buffer = bytearray(72)
    view = Outer.view(buffer)
    view.a, view.d, view.three, view.wide, view.minus = 0x11223344, 0x8877665544332211, 5, 0xABCDE, -2
    view.body[1].y = -5
    view.name = b"ringup"
    view.id[3] = 0xEE
    view.both = 0x99887766
    view.ratio = 1.5
    view.flag = True
    view.grid[1][2] = 0x1234
    assert buffer[0:8] == bytes.fromhex("44332211") + ((5 << 1 | 0xABCDE << 4 | (14 << 24)).to_bytes(4, "little"))
    assert buffer[8:16] == bytes.fromhex("1122334455667788")
    assert struct.unpack_from("<i", buffer, 28) == (-5,)
    assert buffer[32:40] == b"ringup\0\0"
    assert (buffer[43], view.low, view.minus) == (0xEE, 0x7766, -2)
    assert struct.unpack_from("<d", buffer, 48) == (1.5,)
    assert (buffer[56], buffer[68:70]) == (1, b"\x34\x12")


def test_bits_beside_a_bit_field_are_left_alone():
    buffer = bytearray(b"\xff" * 72)
    Outer.view(buffer).wide = 0
    assert buffer[4:8] == bytes.fromhex("0f0000ff")


@pytest.mark.parametrize("make", [lambda: bytearray(71), lambda: memoryview(bytearray(72))[1:], lambda: bytearray()])
def test_a_buffer_a_byte_short_is_refused(make):
    with pytest.raises(ValueError, match="Outer takes 72 bytes, the buffer has"):
        Outer.view(make())


def test_an_offset_that_leaves_too_little_is_refused():
    with pytest.raises(ValueError, match="Outer takes 72 bytes, the buffer has 71 from byte 1"):
        Outer.view(bytearray(72), 1)
    with pytest.raises(ValueError, match="the buffer has"):
        Outer.view(bytearray(100), -1)


def test_a_buffer_that_cannot_be_written_is_refused():
    with pytest.raises(ValueError, match="Outer needs a writable buffer"):
        Outer.view(bytes(72))


@pytest.mark.parametrize(
    ("member", "value"), [("a", 1 << 32), ("a", -1), ("three", 8), ("minus", 8), ("minus", -9), ("d", 1 << 64)]
)
def test_a_member_value_too_wide_never_spills(member, value):
    buffer = bytearray(72)
    with pytest.raises(OverflowError):
        setattr(Outer.view(buffer), member, value)
    assert buffer == bytes(72)
    with pytest.raises(ValueError, match=f"Outer.{member} cannot hold"):
        Outer(**{member: value})


def test_an_index_past_an_array_is_refused():
    view = Outer.view(bytearray(72))
    with pytest.raises(IndexError):
        _ = view.body[2]
    with pytest.raises(IndexError):
        view.id[4] = 0


def test_a_typo_in_a_member_names_the_near_one():
    with pytest.raises(TypeError, match="Outer has no member ratoi; near: ratio"):
        Outer(ratoi=1)


def test_bulk_pack_and_views_see_the_same_bytes():
    values = [1, 5, 0xABCDE, -2, 2, 3, -4, 5, -6, b"abc", b"wxyz", 7, 2.5, True, 1, 2, 3, 4, 5, 6]
    leaves = Outer.leaves()
    assert leaves == (
        *(
            "a",
            "three",
            "wide",
            "minus",
            "d",
            "body[0].x",
            "body[0].y",
            "body[1].x",
            "body[1].y",
            "name",
            "id",
            "both",
            "ratio",
            "flag",
        ),
        *(f"grid[{i}][{j}]" for i in range(2) for j in range(3)),
    )
    buffer = bytearray(b"\xff" * 80)
    Outer.pack_into(buffer, 4, *values)
    assert buffer[:4] + buffer[76:] == b"\xff" * 8
    assert bytes(buffer[4:76]) == Outer.pack(*values)
    view = Outer.view(buffer, 4)
    assert (view.a, view.three, view.wide, view.minus, view.body[0].y, view.body[1].y) == (1, 5, 0xABCDE, -2, -4, -6)
    assert Outer.unpack(buffer, 4) == (*values[:9], b"abc\0\0\0\0\0", *values[10:])


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((1,), "Odd has 2 leaves, not 1"),
        ((1 << 20, 0), r"Odd.low holds 20 bits, not 0x100000"),
        ((0, -1), r"Odd.high holds 4 bits, not -0x1"),
    ],
)
def test_bulk_pack_refuses_what_does_not_fit(values, message):
    with pytest.raises(ValueError, match=message):
        Odd.pack(*values)


def test_unpacking_a_buffer_a_byte_short_is_refused():
    with pytest.raises(ValueError, match="Outer takes 72 bytes from byte 0"):
        Outer.unpack(bytes(71))


def test_a_flexible_array_ends_with_the_buffer():
    view = Tail.view(bytearray(4 + 3 * 8 + 5))
    assert len(view.entry) == 3
    view.entry[2].x = 7
    with pytest.raises(IndexError):
        _ = view.entry[3]


def test_a_struct_no_unit_covers_is_served_all_the_same():
    buffer = bytearray(b"\xff" * 3)
    view = Odd.view(buffer)
    assert isinstance(view, plain_view.PlainView)
    view.low = 0x12345
    assert (buffer.hex(), view.high) == ("4523f1", 15)
    with pytest.raises(OverflowError):
        view.low = 1 << 20
    with pytest.raises(AttributeError, match="Odd has no member lwo; near: low"):
        view.lwo = 1


def test_plain_views_agree_with_quick_ones_on_every_member():
    """The comparison covers each value and type, down to the elements of arrays."""
    raw = bytes(range(1, 57)) + b"\x01" + bytes(range(58, 73))
    quick, plain = Outer.view(bytearray(raw)), plain_view.PlainView(memoryview(bytearray(raw)), Outer)

    def flat(value):
        if hasattr(value, "x"):
            return (value.x, value.y)
        return value if isinstance(value, bytes | int | float) else [flat(part) for part in value]

    for name in Outer.members():
        assert flat(getattr(quick, name)) == flat(getattr(plain, name)), name


def test_importing_the_layouts_loads_nothing_slow():
    def loaded(module):
        code = f"import sys; import {module}; print([m for m in ('typing', 'dataclasses', 'cffi', 'ctypes', 'enum') if m in sys.modules])"
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout

    assert loaded("ringup.autogen.layout") == loaded("sys")


def test_the_public_names_are_those_of_the_document():
    assert layout.__all__ == ["Array", "Field", "Struct", "Word"]
    assert layout.Struct is structs.Struct


def test_plain_views_store_what_quick_ones_store():
    quick, plain = Outer(), plain_view.PlainView(memoryview(bytearray(72)), Outer)
    for view in (quick, plain):
        view.name = b"ab"
        view.name[7] = b"z"
        view.body[1] = {"x": 1, "y": -2}
        view.body = [(3, 4)]
        view.grid = [[1, 2, 3], [4, 5, 6]]
        view.grid[0][1:3] = [8, 9]
        view.id = [1, 2, 3, 4]
        with pytest.raises(ValueError, match=r"3 items|need 3"):
            view.id[0:3] = [1, 2]
        with pytest.raises((TypeError, OverflowError)):
            view.a = 1.5
    assert structs.memory(plain).tobytes() == structs.memory(quick).tobytes()
    assert set(dir(plain)) == set(Outer.members())
    assert copy.copy(plain).a == plain.a


def test_the_bytes_of_a_struct_are_what_system_calls_take():
    own = Outer(a=1, name=b"x")
    flat = structs.memory(own)
    assert (flat.nbytes, flat[:4].tobytes(), flat.readonly) == (72, b"\1\0\0\0", False)
    flat[0] = 7
    assert own.a == 7
    assert structs.memory(own.body[1]).nbytes == 8
    buffer = bytearray(80)
    structs.memory(Outer.view(buffer, 8))[0] = 9
    assert buffer[8] == 9
    odd = Odd(low=1)
    structs.memory(odd)[2] = 0xF0
    assert odd.high == 15
    read, write = os.pipe()
    os.write(write, structs.memory(own))
    assert os.read(read, 100) == bytes(flat)


def test_a_release_chosen_twice_starts_from_the_base():
    from ringup.autogen.nv import fsp, rm_alloc, uvm

    pool = uvm.UVM_ALLOC_SEMAPHORE_POOL_PARAMS
    assert pool.at("595.45.04").at("545.29.06") is pool.at("545.29.06")
    assert (pool.at("595.45.04").at("545.29.06").SIZE, pool.at("545.29.06").at("595.45.04").SIZE) == (1184, 9248)
    # Its inner structs are those of the same release.
    assert fsp.GSP_FMC_BOOT_PARAMS.at("580.142")() is not None
    small, large = rm_alloc.NV00DE_ALLOC_PARAMETERS, rm_alloc.NV00DE_ALLOC_PARAMETERS.at("545.29.06")
    small.pack_into(bytearray(16), 0, *[1] * len(small.leaves()))
    buffer = bytearray(b"\xee" * 16)
    large.pack_into(buffer, 0, *[1] * len(large.leaves()))
    assert buffer == large.pack(*[1] * len(large.leaves())) + b"\xee" * (16 - large.SIZE)


def test_gsp_layouts_are_served_only_for_the_releases_that_were_read():
    from ringup.autogen.nv import gsp_static

    with pytest.raises(
        NotSupported, match=r"535\.113\.01: layouts of gsp_static move within a branch and are known for 535\.261\.03"
    ):
        gsp_static.GspSystemInfo.at("535.113.01")


def test_a_version_chosen_twice_starts_from_the_base_and_has_the_place_of_its_base():
    variant = Request.at((2, 0))
    assert variant.at((1, 0)) is Request
    assert variant.at((2, 0)) is variant
    assert (variant.place((2, 0)), Request.place((1, 0))) == ((0x20, 0), (0x10, 0))
    with pytest.raises(ValueError, match=r"Request has a place in \(1, 0\), \(2, 0\), \(3, 0\), not in \(7, 0\)"):
        variant.place((7, 0))


def test_words_can_be_pickled_variants_included():
    from ringup.autogen.amd import gc_vm

    word = gc_vm.GCVM_INVALIDATE_ENG17_REQ(flush_type=2)
    base = gc_vm.GCVM_L2_PROTECTION_FAULT_STATUS
    version = next(version for version, rows in gc_vm.CHANGES.items() if base in rows)
    for value in (word, base.at(version)(5)):
        again = pickle.loads(pickle.dumps(value))
        assert (again, type(again)) == (value, type(value))


def test_a_typo_cannot_be_stored_in_a_word():
    with pytest.raises(AttributeError, match=r"a Request cannot be changed: take word\.replace\(flush_typ=…\)"):
        Request().flush_typ = 3


@pytest.mark.parametrize("value", ["5", None, 1.5])
def test_what_is_no_integer_is_no_word(value):
    with pytest.raises(TypeError, match="Request takes an integer, not"):
        Request(value)
    with pytest.raises(ValueError, match=r"Descriptor\.bank_valid takes 8 values"):
        Descriptor(bank_valid=value if value != "5" else "55")


def test_anything_with_an_index_is_an_integer():
    class Index:
        def __index__(self):
            return 5

    assert Request(flush_type=Index()).flush_type == 5
    assert Request(Index()) == 5


@pytest.mark.parametrize("release", ["5_80", " 580 ", "\u0665\u0668\u0660", "", "580.", 580, None])
def test_what_is_no_release_is_refused(release):
    from ringup.autogen.nv import rm

    with pytest.raises(ValueError, match=r"a driver release is a text like 580\.65\.06"):
        rm.NVOS46_PARAMETERS.at(release)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: Outer.pack(1, 5, 0xABCDE, -2, 2, 3, -4, 5, -6, b"123456789", b"", 7, 2.5, True, *range(6)),
            r"Outer\.name holds 8 bytes",
        ),
        (lambda: Inner.pack_into(bytearray(16), -8, 1, 2), "Inner takes 8 bytes from byte -8"),
        (lambda: Inner.unpack(bytes(16), -8), "Inner takes 8 bytes from byte -8"),
        (lambda: Inner.pack(-1, 2), "Inner: .*"),
        (lambda: Inner.pack_into(bytes(8), 0, 1, 2), "Inner needs a writable buffer"),
        (lambda: Inner.pack_into(bytearray(8), 0, 1), "Inner has 2 leaves, not 1"),
        (lambda: Inner.pack_into(bytearray(7), 0, 1, 2), "Inner takes 8 bytes from byte 0"),
        (lambda: Inner.pack("x", 2), "Inner: "),
    ],
)
def test_bulk_packing_refuses_what_a_view_refuses(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_flexible_array_without_room_is_empty():
    assert len(Tail().entry) == 0
    assert len(Tail.view(bytearray(11)).entry) == 0


def test_the_base_class_has_no_layout():
    with pytest.raises(TypeError, match="Struct has no layout: use one of the generated structs"):
        Struct.view(bytearray(8))


def test_members_may_be_called_like_arguments():
    class Named(Struct):
        SIZE, ALIGN = 8, 4
        LAYOUT = "cls:u32@0 self:u32@4"

    assert structs.memory(Named(cls=1, self=2)).tobytes() == bytes((1, 0, 0, 0, 2, 0, 0, 0))


KEPT_ERROR = """
import gc
from ringup.autogen.layout import Struct
class Inner(Struct):
    SIZE, ALIGN, LAYOUT = 8, 4, "a:u32@0 b:u32@4"
class Tail(Struct):
    SIZE, ALIGN, LAYOUT = 4, 4, "count:u32@0 entry:Inner[]@4"
def fail(kind, buffer, offset):
    seen = kind.view(buffer, offset)
    raise OSError
def keep(*what):
    try:
        fail(*what)
    except OSError as error:
        kept = error
for kind in (Inner, Tail):
    for offset in (0, 8):
        keep(kind, bytearray(64), offset)
        keep(kind, memoryview(bytearray(64)), offset)
        gc.collect()
"""


def test_the_collector_clears_views_that_a_kept_error_holds():
    """CPython crashes where the memory of a view is a memoryview that its collector clears first."""
    done = subprocess.run([sys.executable, "-c", KEPT_ERROR], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
