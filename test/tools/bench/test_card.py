"""The benches of a card's driver: each one runs, with `--quick` and without the competitor, and writes its page. These
tests check no measured time.
"""

import json
import random
from html import escape
from html.parser import HTMLParser

import pytest

import ringup
from ringup.errors import NoSuchCard, NotSupported
from ringup.silicon import card
from ringup.tools.bench import plain_memory
from ringup.tools.bench.benches import kfd, queues
from ringup.tools.bench.benches.shader import compiled
from ringup.tools.bench.figure import Figure, Goal
from ringup.tools.bench.page import Section, page
from ringup.tools.bench.plot import Bars, Curves, Distribution, size_text, svg
from ringup.tools.command_line import cli
from ringup.tools.competitor.pci_door import PciDoor

KEYS = {"name", "unit", "ours", "peer", "ratio", "better", "beside"}


class Reader(HTMLParser):
    """Parses the page: counts its elements, and collects the links it would fetch and the elements that stay open."""

    def __init__(self, text):
        super().__init__()
        self.count, self.fetched, self.open = {}, [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.count[tag] = self.count.get(tag, 0) + 1
        self.fetched += [value for name, value in attrs if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture
def bench(capsys, tmp_path):
    """`bench(name, …)` runs the command with `--quick` and without the competitor. It returns the figures as objects,
    and the page.
    """

    def run(name, *options):
        html = tmp_path / f"{name}.html"
        assert cli.main(["bench", name, "--quick", "--no-peer", "--json", "--html", str(html), *options]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()], html.read_text(encoding="utf-8")

    return run


def check(figures, html, plots):
    assert all(set(row) >= KEYS for row in figures)
    assert all(row["ours"] > 0 and row["peer"] is None and row["ratio"] is None for row in figures)
    assert len({row["name"] for row in figures}) == len(figures)
    seen = Reader(html)
    assert (seen.count.get("svg", 0), seen.fetched, seen.open) == (plots, [], [])
    assert all(f">{escape(row['name'])}<" in html for row in figures)


def test_the_queues_bench_gives_times_and_bytes(bench):
    figures, html = bench("queues")
    check(figures, html, plots=0)
    sizes = {row["name"]: row["ours"] for row in figures if row["unit"] == "bytes"}
    # COPY_LINEAR of SDMA is seven dwords: navi10_sdma_pkt_open.h, SDMA_PKT_COPY_LINEAR
    assert sizes["append a copy, stream"] == 28


def test_the_queues_bench_submits_what_it_says():
    instant = queues.Instant()
    before = instant.compute.ring.wptr
    instant.launch()
    instant.compute.submit(instant.stream(plain_memory.LONG))
    assert instant.compute.ring.wptr - before > len(instant.stream(plain_memory.LONG).body)
    assert instant.compute.timeline.idle
    assert instant.stream(plain_memory.LONG).dispatches == plain_memory.LONG


@pytest.mark.parametrize("chip", ["navi31", pytest.param("navi33", marks=pytest.mark.fuzz)])
def test_the_latency_bench_draws_every_kind_of_queue(bench, chip):
    figures, html = bench("latency", "--card", f"virtual:{chip}")
    check(figures, html, plots=3)
    assert sum("HSA queue" in row["name"] for row in figures) == 4
    assert all(f"virtual:{chip}, a virtual card" in row["note"] for row in figures)


def test_the_transfers_bench_draws_every_direction_over_size(bench):
    figures, html = bench("transfers")
    check(figures, html, plots=2)
    names = [row["name"] for row in figures]
    assert [name for name in names if name.endswith("64 KiB")] == [
        f"{way}, 64 KiB" for way in ("up", "down", "device", "fill")
    ]
    assert html.count("<polyline") == 8
    assert "2 engines at once, 1 MiB each" in names


def test_the_bringup_bench_draws_the_stages_of_both_starts(bench):
    figures, html = bench("bringup")
    # Two starts and two clocks give four plots: of a navi31 with two windows, and of an MI300X.
    check(figures, html, plots=12)
    # Only a cold start boots the secure OS.
    assert html.count(">booting the secure OS<") == 6
    goals = [row["goal"] for row in figures if row["name"].startswith("import")]
    assert goals == ["ours <= 50 ms", "ours <= 100 ms"]


def test_the_memory_bench_runs(bench):
    figures, html = bench("memory")
    check(figures, html, plots=0)


def test_the_peers_sides_run_and_give_every_figure(competitor, made_firmware):
    job = {"times": 10, "grid": plain_memory.GRID, "block": plain_memory.BLOCK, "group": 10, "long": plain_memory.LONG}
    answer = competitor.call("queues", job)
    assert {row.peer_key or row.key for row in queues.ROWS} <= set(answer)
    radeon = card("navi31", vram_bytes=1 << 30, bar0_bytes=1 << 30)
    with PciDoor(radeon) as door:
        variables = {"DEV": "PCI+AMD:LLVM", "REMOTE": door.address, "REMOTE_TIMEOUT": "60"}
        starts = [
            competitor.call("bringup", {"variables": variables, "firmware": [str(made_firmware)]}) for _ in range(2)
        ]
    assert [(start["warm"], start["chip"]) for start in starts] == [(False, "gfx1100"), (True, "gfx1100")]
    assert all(start["reads"] > 100 < start["writes"] for start in starts)
    assert not radeon.violations


DRAW = random.Random(3)
PLOTS = {
    "distribution": Distribution("d", "us", [DRAW.expovariate(1) for _ in range(500)]),
    "one value": Distribution("d", "us", [3.0, 3.0]),
    "no value": Distribution("d", "us", []),
    "curves": Curves(
        "c", "size", "GiB/s", {"up": [(4096, 0.01), (1 << 20, 30.0)], "down": [(4096, 0.0), (1 << 20, 2.0)]}
    ),
    "no curve": Curves("c", "size", "GiB/s", {}),
    "bars": Bars("b", "ms", ["one", "two"], {"CPU": [1.0, 2.0], "card": [0.0, 9.0]}),
    "bars of nothing": Bars("b", "ms", ["one"], {"CPU": [0.0]}),
}


@pytest.mark.parametrize("name", PLOTS)
def test_every_plot_is_whole_and_lies_within_its_frame(name):
    text = svg(PLOTS[name])
    assert not Reader(text).open
    assert "nan" not in text
    assert "inf" not in text
    bounds = [float(part) for part in text.split('viewBox="')[1].split('"')[0].split()]
    for part in text.split('<rect x="')[1:]:
        x, y, width, height = (float(value) for value in part.split('"')[0:8:2])
        assert 0 <= x <= x + width <= bounds[2]
        assert 0 <= y <= y + height <= bounds[3]


def test_bars_are_as_long_as_their_values():
    widths = [float(part.split('width="')[1].split('"')[0]) for part in svg(PLOTS["bars"]).split("<rect")[1:5]]
    assert widths == pytest.approx([widths[3] / 9, 1, 2 * widths[3] / 9, widths[3]], abs=0.2)


def test_the_page_marks_goals_and_escapes_what_it_is_given():
    figures = [
        Figure("a<b", "us", 2.0, 1.0, Goal("ratio", 5), note="x & y"),
        Figure("c", "us", 1.0, goal=Goal("ours", 2)),
    ]
    html = page("t", "about", [Section("queues", "text", figures, [PLOTS["bars"]])])
    assert "a&lt;b" in html
    assert "x &amp; y" in html
    assert (html.count(">MISSED<"), html.count(">met<")) == (1, 1)
    assert not Reader(html).open


@pytest.mark.parametrize(
    ("size", "text"), [(512, "512 B"), (4096, "4 KiB"), (64 << 20, "64 MiB"), (3 << 29, "1.5 GiB")]
)
def test_sizes_are_written_as_people_write_them(size, text):
    assert size_text(size) == text


@pytest.mark.parametrize("name", ["latency", "transfers", "bringup", "usb"])
@pytest.mark.parametrize(
    "card", ["zz", "virtual:zz", "virtual:zz@asm2464pd", "virtual:navi31@zz", "virtual:usb-loopback"]
)
def test_what_is_no_card_is_reported_alike_by_every_bench(capsys, name, card):
    assert cli.main(["bench", name, "--quick", "--no-peer", "--card", card]) == NoSuchCard.exit_code
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), card in err) == ("", 1, True), err


def test_the_kfd_bench_wants_a_card_that_stays_with_amdgpu(capsys):
    assert cli.main(["bench", "kfd", "--no-peer", "--card", "virtual:navi31"]) == NotSupported.exit_code
    assert "cards that stay with amdgpu, such as kfd:0; virtual:navi31 is none" in capsys.readouterr().err


def test_a_launch_through_kfd_is_timed_whole_and_its_doorbells_are_rung(monkeypatch):
    """On a card of ringup's own, since the bench uses the verbs of every card."""
    with ringup.open("virtual:navi31") as one:
        rung = []
        ring = one.compute.doorbell.ring
        monkeypatch.setattr(one.compute.doorbell, "ring", lambda value: (rung.append(value), ring(value)))
        found = kfd.run(one, compiled(queues.SOURCE, one.target), groups=1)
        assert one.mistakes == []
    assert set(found) == {row.key for row in kfd.ROWS}
    assert min(found.values()) > 0
    # a first run of four kinds; two groups of which each launch rings, two that ring once; the one that is waited for
    assert len(rung) == 5 + 2 * kfd.GROUP + 3 + 1


def test_a_card_that_is_not_there_is_told_by_a_fresh_interpreter_too(capsys):
    assert cli.main(["bench", "bringup", "--quick", "--no-peer", "--card", "pci:0000:ff:1f.7"]) == NoSuchCard.exit_code
    assert "ringup bench: NoSuchCard: there is no PCI function 0000:ff:1f.7; GPUs seen: " in capsys.readouterr().err


def test_starts_of_a_virtual_card_behind_a_bridge_are_measured_elsewhere(capsys):
    words = ["bench", "bringup", "--quick", "--no-peer", "--card", "virtual:navi31@asm2464pd"]
    assert cli.main(words) == NotSupported.exit_code
    assert "bench bringup measures cards in a slot" in capsys.readouterr().err
