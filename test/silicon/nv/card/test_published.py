"""NVIDIA's own images, where their package is installed: the model knows them by their fingerprints."""

from __future__ import annotations

import struct

import pytest

from ringup.silicon.nv.common.signed import Part, identify

RELEASE = "535.113.01"


@pytest.fixture(scope="module")
def files(request):
    folder = request.getfixturevalue("sources").root("firmware-nvidia") / "usr/lib/firmware/nvidia"
    return lambda name: (folder / name).read_bytes()


def words(data, at, count):
    return struct.unpack_from(f"<{count}I", data, at)


@pytest.mark.parametrize("chip", ["tu102", "ga102", "ad102"])
def test_published_images_are_known_by_chip_and_release(files, chip):
    found = {}
    for part in (Part.BOOTER_LOAD, Part.BOOTER_UNLOAD):
        file = files(f"{chip}/gsp/{part.value.replace(' ', '_')}-{RELEASE}.bin")
        # nvfw_bin_hdr, nvfw_hs_header_v2, nvfw_hs_load_header_v2
        header, data = words(file, 12, 2)
        load = words(file, header, 9)[7]
        offset, size = words(file, load + 20, 2)
        found[part] = identify(file[data + offset : data + offset + size])
    file = files(f"{chip}/gsp/bootloader-{RELEASE}.bin")
    data, size = words(file, 16, 2)
    found[Part.BOOTLOADER] = identify(file[data : data + size])
    for part, identity in found.items():
        assert identity is not None, part
        assert (identity.part, identity.release) == (part, RELEASE)
        assert chip in identity.chips
