"""The demonstration does what it shows: NumPy confirms its kernels, a pulled cable comes back, and its files hold the
run.
"""

import html
import json
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from ringup.errors import DeviceFault
from ringup.tools.command_line import cli
from ringup.tools.demo import command as demo
from ringup.tools.demo import kernels as demo_kernels
from ringup.tools.demo import sentences as demo_sentences
from ringup.tools.demo import show as demo_show
from ringup.tools.demo.desk import Desk, bring_up
from ringup.tools.demo.show import Show
from ringup.tools.embedder import files as sentence_files

PICTURE = Path(__file__).parents[3] / "docs/demo.svg"
README = Path(__file__).parents[3] / "README.md"
TRACK_NAMES = (b"bring-up", b"host", b"demo", b"control", b"bulk out", b"bulk in", b"compute 0", b"copy 0.0")
# The set has an area of 1.5066 (OEIS A098403), and the 256 x 256 pixels show an area of 9: 10,971 pixels. 200 steps
# miss some of them.
INSIDE = 10_800


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """One demonstration on little data: (its object, its folder)."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "SWEEP", (4096, 65536))
        patch.setattr(demo, "COPY_BYTES", 1 << 20)
        patch.setattr(demo, "BUSY_RUNS", 20)
        lines = []
        patch.setattr("builtins.print", lambda *words, **options: lines.extend(words))
        assert cli.main(["demo", "--json", "--out", str(folder)]) == 0
    (line,) = [line for line in lines if line]
    return json.loads(line), folder


def test_every_chapter_is_reported_and_the_models_saw_no_mistake(played):
    story, _ = played
    assert story["chapters"] == list(demo.HEADINGS)
    assert story["mistakes"] == []


def test_a_stage_tells_its_time_and_its_transfers(played):
    story, _ = played
    assert sum(row["transfers"] for row in story["stages"]) <= story["bring_up"]["transfers"]
    assert all(row["transfers"] > 0 for row in story["stages"])
    assert story["bring_up_ms"] == pytest.approx(sum(row["ms"] for row in story["stages"]), abs=0.1)


def test_every_element_of_every_kernel_is_numpys(played):
    story, _ = played
    assert [(row["kernel"], row["right"]) for row in story["kernels"]] == [
        ("saxpy", demo_kernels.ELEMENTS),
        ("matmul", demo_kernels.SIDE**2),
        ("mandelbrot", demo_kernels.WIDTH**2),
    ]
    assert all(row["us"] > 0 for row in story["kernels"])


def test_a_model_finds_the_nearest_sentence_and_is_numpys(played):
    told = played[0]["sentences"]
    assert told["sentence"] == demo_sentences.DEFAULT
    assert len(told["embedding"]) == 384
    assert sum(one * one for one in told["embedding"]) == pytest.approx(1, abs=1e-4)
    assert told["nearest"][0]["sentence"] == "The cat sleeps on the warm stove."
    assert sorted(one["sentence"] for one in told["nearest"]) == sorted(demo_sentences.TEN)
    assert [one["cosine"] for one in told["nearest"]] == sorted(
        (one["cosine"] for one in told["nearest"]), reverse=True
    )
    for one in told["nearest"]:
        assert one["cosine"] == pytest.approx(one["numpy"], abs=1e-5)
    assert told["off"] < 1e-3
    assert told["cosine_distance"] < 1e-5
    assert 0 < told["warm_us"] < told["first_us"]


def test_a_faster_cable_is_no_slower_and_five_gigabits_are_never_exceeded(played):
    story, _ = played
    for way in ("to", "from"):
        slow, usual, fast = (dict(row[way]) for row in story["sweep"])
        assert all(slow[size] <= usual[size] <= fast[size] * 1.01 for size in map(int, slow))
        # MB/s: 5 Gb/s, of which 8b/10b leaves four fifths
        assert max(slow.values()) < 500


def test_a_pulled_cable_is_reported_and_the_card_comes_up_again(played):
    story, _ = played
    pulled = story["unplug"]
    assert (pulled["error"], pulled["found"]) == ("DeviceLost", "cold")
    assert pulled["noticed_ms"] < 2_000


def test_power_rises_with_work_and_the_slot_ends_without_a_link(played):
    power = played[0]["power"]
    assert power["busy_w"] > power["idle_w"]
    assert power["slot"].startswith("down")


def test_the_trace_has_stages_transfers_copies_and_kernels(played):
    story, folder = played
    trace = (folder / "demo.pftrace").read_bytes()
    assert story["files"]["trace"] == str(folder / "demo.pftrace")
    assert all(name in trace for name in TRACK_NAMES)
    assert all(name in trace for name in (b"saxpy", b"matmul", b"mandelbrot", b"loading firmware", b"no_device"))
    assert trace.count(b"queued_us") > story["bring_up"]["transfers"]


def test_the_page_has_its_plots_and_asks_no_network(played):
    _, folder = played
    page = (folder / "demo.html").read_text()
    assert page.count("<svg") == 4
    assert "data:image/png;base64,iVBORw0KGgo" in page
    assert re.findall(r'(?:src|href)="(?!data:)', page) == []


def test_the_set_has_its_size_and_is_its_own_mirror_image():
    steps = demo_kernels.tasks()[-1].expected
    inside = int((steps == demo_kernels.STEPS).sum())
    assert INSIDE < inside < 1.1 * INSIDE
    # Row 128 is the real axis.
    assert (steps[1:] == steps[:0:-1]).mean() > 0.999


def test_a_card_that_computes_otherwise_than_numpy_is_reported(monkeypatch):
    wrong = np.full((1, 384), 384**-0.5, np.float32)
    monkeypatch.setattr(demo_sentences, "TEN", demo_sentences.TEN[:1])
    monkeypatch.setattr(demo_sentences.Sentences, "embed", lambda self, texts: wrong)
    desk = Desk("virtual:navi31")
    with (
        bring_up(desk, []) as up,
        pytest.raises(DeviceFault, match="embeddings of 2 sentences differ from NumPy's by up to 0"),
    ):
        demo_sentences.embed(up, Show(quiet=True, picture=None), "A dog.")


def test_without_the_model_the_rest_is_shown_and_the_remedy(ringup, plug, tmp_path, monkeypatch):
    plug()
    monkeypatch.setattr(demo, "COPY_BYTES", 1 << 20)
    monkeypatch.setattr(demo, "BUSY_RUNS", 5)
    monkeypatch.setattr(demo_sentences, "open_files", lambda: sentence_files.open_files(tmp_path))
    status, out, err = ringup("demo", "virtual:navi31", "--out", tmp_path)
    assert (status, err) == (0, "")
    assert "skipped: the model all-MiniLM-L6-v2 is not in place" in out
    assert "python -m ringup.tools.embedder.files downloads it" in re.sub(r"\s+", " ", out)
    assert demo.DOWN in out


def test_it_works_without_a_bridge_and_draws_shades_where_no_terminal_watches(ringup, plug, tmp_path, monkeypatch):
    plug()
    monkeypatch.setattr(demo, "COPY_BYTES", 1 << 20)
    monkeypatch.setattr(demo, "BUSY_RUNS", 5)
    monkeypatch.setattr(demo_sentences, "TEN", demo_sentences.TEN[:2])
    status, out, err = ringup("demo", "virtual:navi31", "--out", tmp_path, "--sentence", "The dough rose overnight.")
    assert (status, err) == (0, "")
    assert "“The dough rose overnight.” became 384 numbers" in out
    assert [line for line in out.splitlines() if line.split("   ")[0] in demo.HEADINGS and line] == [
        line for line in out.splitlines() if line and not line.startswith(" ")
    ]
    assert demo.ENCLOSURE not in out
    assert demo.PULLED not in out
    assert "@@@@@@@@" in out
    assert "\x1b" not in out
    assert (tmp_path / "demo.html").read_text().startswith("<!DOCTYPE html>")


def test_a_pipe_gets_the_same_text_with_a_picture_as_without(tmp_path, capsys):
    told = []
    for picture in (None, tmp_path / "q.svg"):
        show = Show(quiet=False, picture=picture)
        show.heading("The card", "it is up")
        show.marks([("doctor", "+", "green")])
        show.table(("stage", "ms"), [("waking the bus", "1.5")])
        show.image(demo_kernels.tasks()[-1].expected)
        show.line("done", "red")
        show.end()
        told.append(capsys.readouterr().out)
    assert told[0] == told[1]
    assert "@@@@@@@@" in told[1]
    assert (tmp_path / "q.svg").read_text().count("<text") > 20


@pytest.mark.parametrize(
    ("typed", "taken"),
    [(b"A dog.\n", "A dog."), (b"\n", "said before"), (b"  \xc3\xa9 \n", "\u00e9"), (b"", "said before")],
)
def test_a_sentence_is_asked_for_on_a_terminal_and_not_waited_for_long(typed, taken, monkeypatch, capsys):
    ours, theirs = os.openpty()
    monkeypatch.setattr(demo_show, "PATIENCE_S", 0.2)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    with os.fdopen(theirs, encoding="utf-8") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        os.write(ours, typed)
        assert Show(quiet=False, picture=None).ask("A sentence", "said before") == taken
        assert Show(quiet=True, picture=None).ask("A sentence", "said before") == "said before"
    os.close(ours)
    assert capsys.readouterr().out.count("A sentence: ") == 1


def test_the_picture_in_the_readme_is_of_a_run():
    words = html.unescape(" ".join(re.findall(r"<text[^>]*>([^<]*)</text>", PICTURE.read_text()))).replace("\xa0", " ")
    assert [title for title in demo.HEADINGS if title not in words] == []
    assert "of 65536" in words
    # A font face would make the browser ask a server.
    assert "@font-face" not in PICTURE.read_text()
    assert PICTURE.stat().st_size < 150 << 10
    assert "docs/demo.svg" in README.read_text()


def test_two_names_of_a_card_are_refused(ringup):
    assert ringup("demo", "virtual:navi31", "--card", "virtual:navi33")[0] == cli.WRONG_USAGE
