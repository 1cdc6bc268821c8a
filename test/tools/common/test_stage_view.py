"""Stages on a terminal: one line for each, with its time. In a pipe they do not appear."""

import io
import logging
import sys

import pytest

from ringup.drivers.stages import Stage
from ringup.tools.common.stages import StageView

WENT_WELL = Stage("waking the bus", 0, 1500, 10_000)
FAILED = Stage("loading firmware", 0, 2500, 10_000, "no such file")


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.mark.parametrize(("encoding", "good", "bad"), [("utf-8", "✓", "✗"), ("ascii", "+", "x")])
def test_a_terminal_gets_a_line_a_stage(monkeypatch, encoding, good, bad):
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    monkeypatch.setattr(Terminal, "encoding", encoding)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    view = StageView()
    for told in (WENT_WELL.name, WENT_WELL, FAILED.name, FAILED):
        view(told)
    lines = [line.rpartition("\r")[2] for line in terminal.getvalue().split("\n")]
    shown = [line for line in lines if line.strip()]
    assert f"  {good} waking the bus" in shown[0]
    assert shown[0].rstrip().endswith("1.5 ms")
    assert f"  {bad} loading firmware" in shown[1]


def test_a_pipe_gets_nothing_and_the_log_is_enough_for_who_asked(monkeypatch, capsys, caplog):
    view = StageView()
    view("waking the bus")
    view(WENT_WELL)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    caplog.set_level(logging.INFO, "ringup.tools.common.stages")
    StageView()("waking the bus")
    assert (terminal.getvalue(), caplog.messages) == ("", ["waking the bus"])
