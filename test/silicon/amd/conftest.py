"""Fixtures for the blocks of a Radeon."""

from __future__ import annotations

import pytest

from ringup.silicon import card


@pytest.fixture
def radeon():
    """A virtual navi31 with little memory, as a host's firmware leaves it."""
    return card("navi31", vram_bytes=64 << 20)
