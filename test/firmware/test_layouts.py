"""Our descriptions of C structs agree with views of the structs themselves, which a C compiler has checked."""

import random
import re

import pytest

from ringup.autogen import structs
from ringup.autogen.amd import discovery as facts
from ringup.autogen.amd import ucode
from ringup.errors import FirmwareError
from ringup.firmware.amd import discovery, vbios
from ringup.firmware.amd.containers import CONTAINERS, rlc_firmware_header_v2_5
from ringup.firmware.layouts import build, layout, read, read_within

HEADERS = sorted(
    {container.header for versions in CONTAINERS.values() for container in versions.values()},
    key=lambda one: one.__name__,
)
GC = [(major, minor) for major, minors in discovery.GC_INFO.items() for minor in minors]
TABLES = [struct for revisions in vbios.DECODED.values() for struct in revisions.values()]


def leaves(struct, data):
    """Return every value of a struct by its path, read through its own view. The part that a later version starts with
    is flattened.
    """
    view, found = struct.view(bytearray(data)), {}
    for path in struct.leaves():
        value = view
        for step in re.findall(r"\w+", path):
            value = value[int(step)] if step.isdigit() else getattr(value, step)
        # An array of bytes is one leaf. cffi gives elements of `char` as bytes.
        if not isinstance(value, int):
            value = b"".join(one if isinstance(one, bytes) else bytes([one]) for one in value)
        found[re.sub(r"(^|\.)(v\d+_\d+\.)+", r"\1", path)] = value
    return found


@pytest.mark.parametrize("struct", [*HEADERS, *TABLES], ids=lambda struct: struct.__name__)
def test_every_field_of_a_description_is_the_structs(struct):
    data = random.Random(struct.__name__).randbytes(struct.SIZE)
    seen, fields = leaves(struct, data), {}
    for name, value in read(struct, data, 0, "random", "the struct").items():
        if not isinstance(value, tuple):
            fields[name] = value
        elif name in seen:
            # An array of bytes is one leaf.
            fields[name] = bytes(value)
        else:
            fields |= {f"{name}[{index}]": element for index, element in enumerate(value)}
    flexible = {name for name in seen if name not in fields and name.partition("[")[0] in ("psp_fw_bin", "ta_fw_bin")}
    assert fields == {name: value for name, value in seen.items() if name not in flexible}
    made = build(struct, read(struct, data, 0, "random", "the struct"))
    assert len(made) == struct.SIZE
    assert read(struct, made, 0, "random", "the struct") == read(struct, data, 0, "random", "the struct")


@pytest.mark.parametrize(
    ("described", "struct"),
    [
        (discovery.HEADER, facts.binary_header),
        (discovery.IP_HEADER, facts.ip_discovery_header),
        (discovery.IP, facts.ip_v3),
        (discovery.VCN, facts.vcn_info_v1_0),
    ],
    ids=["binary_header", "ip_discovery_header", "ip_v3", "vcn_info_v1_0"],
)
def test_descriptions_written_by_hand_are_as_long_as_their_structs(described, struct):
    assert described.sizeof() == struct.SIZE


def test_the_bits_of_a_block_are_the_structs():
    for value in range(256):
        data = bytearray(7) + bytes([value])
        row = read(discovery.IP, bytes(data), 0, "ip", "the block")
        view = facts.ip_v3.view(data)
        assert (row["low.sub_revision"], row["low.variant"]) == (view.sub_revision, view.variant)


def test_the_flag_for_wide_bases_is_the_structs():
    view = facts.ip_discovery_header(base_addr_64_bit=1)
    assert read(discovery.IP_HEADER, bytes(structs.memory(view)), 0, "list", "the list")["flags.base_addr_64_bit"]
    view = facts.ip_discovery_header(reserved=0x7F)
    assert not read(discovery.IP_HEADER, bytes(structs.memory(view)), 0, "list", "the list")["flags.base_addr_64_bit"]


def test_fuse_bits_are_the_structs():
    # discovery.h, union _fuse_data
    for codec, bit in (("av1", 0), ("vp9", 1), ("hevc", 2), ("h264", 3)):
        table = bytearray(facts.vcn_info_v1_0.SIZE)
        table[16 + 4] = 1 << bit
        row = read(discovery.VCN, bytes(table), 0, "vcn", "the table")
        assert {name for name, value in row.items() if value} == {f"instance_info[0].fuse_data.{codec}_disabled"}


def test_the_header_with_a_second_core_extends_version_2_2():
    # Four dwords more: amdgpu_ucode.h.
    assert rlc_firmware_header_v2_5.SIZE == ucode.rlc_firmware_header_v2_2.SIZE + 16


def test_what_is_built_is_read_again():
    fields = {"header.size_bytes": 7, "ucode_size_bytes": 9, "header.ucode_size_bytes": 11}
    made = build(ucode.gfx_firmware_header_v2_0, fields)
    # common_firmware_header.size_bytes is the first dword
    assert made[:4] == b"\x07\0\0\0"
    # ... ucode_size_bytes the sixth
    assert made[20:24] == b"\x0b\0\0\0"
    # gfx_firmware_header_v2_0.ucode_size_bytes is the second after it.
    assert made[36:40] == b"\x09\0\0\0"


@pytest.mark.parametrize(
    "fields", [{"nonsense": 1}, {"header.nonsense": 1}, {"header.crc32": 1 << 32}, {"header.crc32": -1}]
)
def test_an_impossible_field_is_the_callers_mistake(fields):
    with pytest.raises(ValueError, match="field"):
        build(ucode.gfx_firmware_header_v1_0, fields)


def test_structs_with_shared_bytes_are_refused():
    with pytest.raises(ValueError, match="describe the struct manually"):
        read(facts.ip, bytes(facts.ip.SIZE), 0, "ip", "the block")
    with pytest.raises(ValueError, match="holds more than integers: describe the struct manually"):
        layout(facts.harvest_table)


def test_a_short_table_has_the_members_that_lie_inside_it():
    struct = vbios.DECODED["vram_info"][3, 0]
    # the header and one of eight modules of 68 bytes: atomfirmware.h
    data = bytes(range(64 + 68 + 10))
    found = read_within(struct, data, "rom", "vram_info")
    assert found["vram_module[0].dram_vendor_id"] == 64 + 3
    assert "vram_module[1].density" not in found


def test_an_end_before_the_header_names_file_and_bytes():
    with pytest.raises(FirmwareError, match=r"^x\.bin: the header takes bytes 4 to 36, the image ends at byte 35$"):
        read(ucode.common_firmware_header, bytes(35), 4, "x.bin", "the header")
