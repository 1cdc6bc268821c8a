"""Firmware files of the distribution, and folders that hold a card's files."""

import pytest


@pytest.fixture(scope="session")
def firmware_folder(sources):
    """The distribution's firmware folder. A missing package fails the test; it never skips it."""
    return sources.root("firmware-amd") / "lib/firmware"


@pytest.fixture(scope="session")
def real(firmware_folder):
    """`real("gc_11_0_0_mec.bin")`: the bytes of a published file."""
    return lambda name: (firmware_folder / "amdgpu" / name).read_bytes()
