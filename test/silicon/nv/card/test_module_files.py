"""Made-up GSP firmware in the file that NVIDIA's kernel modules load, read as kernel_gsp.c reads it."""

import struct

import pytest

from ringup.silicon import nvidia_firmware
from ringup.silicon.nv.common.signed import Part, identify

RELEASE = "535.261.03"


def sections(file):
    """Return the sections by name, from ELF's own tables."""
    assert file[:6] == b"\x7fELF\x02\x01"
    table, entry_bytes, count, names = struct.unpack_from("<Q10xHHH", file, 0x28)
    rows = [struct.unpack_from("<II8x8xQQ", file, table + entry_bytes * index) for index in range(count)]
    at = rows[names][2]
    named = [(file[at + name : file.index(b"\0", at + name)].decode(), place, size) for name, _, place, size in rows]
    return {name: file[place : place + size] for name, place, size in named}


@pytest.mark.parametrize(
    ("chip", "name", "family", "chips"),
    [
        ("tu102", "gsp_tu10x.bin", "tu10x", ("tu102",)),
        ("ga102", "gsp_ga10x.bin", "ga10x", ("ga102", "ad102")),
        ("ad102", "gsp_ga10x.bin", "ad10x", ("ga102", "ad102")),
    ],
)
def test_the_modules_find_an_image_and_a_signature_of_their_release(chip, name, family, chips):
    found = sections(nvidia_firmware(chip)[f"nvidia/{RELEASE}/{name}"])
    assert found[".fwversion"] == RELEASE.encode() + b"\0"
    for section, part, wanted in (
        (".fwimage", Part.GSP_RM, chips),
        (f".fwsignature_{family}", Part.SIGNATURE, (chip,)),
    ):
        identity = identify(found[section])
        assert identity is not None
        assert (identity.part, identity.chips, identity.releases) == (part, wanted, (RELEASE,))
