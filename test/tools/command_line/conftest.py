"""Signals of the command's tests."""

import signal

import pytest


@pytest.fixture(autouse=True)
def hangup():
    """Let SIGHUP act as by default: under `nohup` it is ignored, and the command respects that."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)
