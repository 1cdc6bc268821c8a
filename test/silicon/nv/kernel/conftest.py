"""Machines with a card and the kernel's driver, and a process on one."""

import pytest
from nvidia_process.process import MIB, Client

from ringup.silicon import nvidia_kernel


@pytest.fixture
def machine():
    """Return a machine with a card of that name."""
    made = []

    def make(chip="ga102", release="535.261.03"):
        made.append(nvidia_kernel(chip, release=release, vram_bytes=512 * MIB))
        return made[-1]

    yield make
    for system in made:
        system.end()


@pytest.fixture
def client(machine):
    return Client(machine())
