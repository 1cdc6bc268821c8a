"""The RLC's table of contents, from the published file of the graphics core 12 and from built ones."""

import pytest

from ringup.errors import FirmwareError
from ringup.firmware.amd import toc
from ringup.firmware.amd.image import parse


def test_the_published_table_fills_its_buffer(real):
    """gfx_v12_0.c knows the buffer's size apart from the table: RLC_TOC_UMF_SIZE_inM is 23."""
    image = parse(real("gc_12_0_0_toc.bin"), "gc_12_0_0_toc.bin")
    entries = toc.parse(image.data(image.section("code")), (12, 0, 0))
    assert entries[-1].offset_bytes + entries[-1].size_bytes == 23 << 20
    places = {entry.name: (entry.offset_bytes, entry.size_bytes) for entry in entries}
    assert places["RLC_G_UCODE"] == (0, 0x6000)
    # The table contains an entry for itself.
    assert places["RLC_TOC"] == (0x6000, image.section("code").size_bytes)
    assert places["RS64_MEC_P3_STACK"] == (0x1540000, 0xC0000)


def test_the_older_form_counts_in_dwords():
    """RLC_TABLE_OF_CONTENT: offset 25 bits and id 7, size in bits 31:14 of the second dword."""
    entry = (3 << 25 | 0x40).to_bytes(4, "little") + (0x100 << 14 | 1).to_bytes(4, "little") + bytes(8)
    (found,) = toc.parse(entry + bytes(16), (11, 0, 0))
    assert (found.name, found.offset_bytes, found.size_bytes) == ("RLCG_SCRATCH", 0x100, 0x400)
    assert found.fields["load.load_at_boot"] == 1
    assert toc.build_table(
        ({"place.id": 3, "place.offset": 0x40, "load.size": 0x100, "load.load_at_boot": 1},), (11, 0, 0)
    ) == entry + bytes(16)


def test_large_pieces_of_the_newer_form_count_in_pages():
    """RLC_SIZE_MULTIPLE: 1,024 dwords a unit when size_x16 is set; offsets count in RLC_TOC_OFFSET_DWUNIT, 8 dwords."""
    rows = ({"place.id": 20, "place.offset": 2, "load.size": 3, "load.size_x16": 1},)
    (found,) = toc.parse(toc.build_table(rows, (12, 0, 1)), (12, 0, 1))
    assert (found.offset_bytes, found.size_bytes) == (64, 12288)


def test_a_table_without_an_end_is_refused():
    entry = toc.build_table(({"place.id": 1},), (11, 0, 0))[:16]
    with pytest.raises(FirmwareError, match=r"^t: the next entry of the table of contents takes bytes 32 to 48"):
        toc.parse(entry * 2, (11, 0, 0), "t")
    with pytest.raises(FirmwareError):
        toc.parse(b"", (12, 0, 0))


def test_another_generation_is_the_callers_mistake():
    with pytest.raises(ValueError, match="graphics core"):
        toc.parse(bytes(16), (10, 3, 0))


def test_ids_without_a_name_are_numbers():
    (found,) = toc.parse(toc.build_table(({"place.id": 43},), (12, 0, 0)), (12, 0, 0))
    assert found.name == "ID_43"
