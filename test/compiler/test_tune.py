"""The search over candidates finds, stores and uses the best one. A damaged file does no harm, and cards can
measure.
"""

import json
import logging
import os

import numpy as np
import pytest

import ringup
from ringup.compiler import tuning as tuning_module
from ringup.compiler.compile import compile_graph
from ringup.compiler.files.whole_file import write_whole
from ringup.compiler.kernel import choose
from ringup.compiler.runtime.device import Device
from ringup.compiler.runtime.measure import CardMeasure
from ringup.compiler.tensor import Tensor, device
from ringup.compiler.tune import ModelMeasure, jobs_of, tune_graph
from ringup.compiler.tuning import Entry, Tuning, key_of
from ringup.errors import CompileError

X = np.random.default_rng(0).standard_normal((48, 160)).astype(np.float32)


def graph():
    return [Tensor(X).sum(1).node]


class Backwards:
    """Says that the last candidate measured is the best. Those in `broken` cannot be compiled."""

    judge, unit = "model", "cycles"

    def __init__(self):
        self.cost_, self.steps = 1000.0, []

    def cost(self, step):
        self.cost_ -= 50
        self.steps.append(step)
        return self.cost_


def test_the_best_candidate_is_kept_and_compiled_from_then_on(tmp_path):
    path = tmp_path / "cache" / "tuning.json"
    measure = Backwards()
    (found,) = tune_graph(graph(), Tuning(path), measure=measure)
    assert found.best == len(found.trials) - 1 > 3
    assert [one.choice for one in found.trials] == [one.lowered.choice for one in measure.steps]
    again = Tuning(path)
    assert len(again) == 1
    (launch,) = compile_graph(graph(), tuning=again).launches
    assert launch.binary.code == measure.steps[-1].binary.code
    assert launch.binary.code != measure.steps[0].binary.code
    # Untuned graphs are as before.
    assert compile_graph(graph()).launches[0].binary.code == measure.steps[0].binary.code
    # Another target's result is not used.
    other = compile_graph(graph(), "gfx1151", tuning=again).launches[0].binary
    assert other.code == compile_graph(graph(), "gfx1151").launches[0].binary.code


def test_what_is_known_is_not_tried_again_unless_asked(tmp_path):
    tuning = Tuning(tmp_path / "tuning.json")
    tune_graph(graph(), tuning, measure=Backwards())
    second = Backwards()
    (found,) = tune_graph(graph(), tuning, measure=second)
    assert found.known
    assert not second.steps
    tune_graph(graph(), tuning, measure=second, again=True)
    assert second.steps


def test_a_shape_that_is_hardly_better_does_not_replace_the_heuristic_one():
    class Flat(Backwards):
        def cost(self, step):
            self.cost_ -= 1
            return self.cost_

    (found,) = tune_graph([Tensor(X).sum(0).node], Tuning(), measure=Flat())
    assert found.best == 0
    assert found.gain == 1.0


def test_the_model_finds_a_better_tile_for_a_convolution():
    """The model's figures, loosely pinned: a convolution of 64 channels fills half of the units with the heuristic's
    tile.
    """
    image, weights = Tensor(np.zeros((1, 64, 56, 56), np.float32)), Tensor(np.zeros((64, 64, 3, 3), np.float32))
    said = []
    (found,) = tune_graph([image.conv2d(weights, padding=1).node], Tuning(), say=said.append)
    assert found.gain > 1.2
    assert all(one.cost is not None and one.cost > 0 for one in found.trials)
    assert len(said) == len(found.trials)


def test_a_candidate_that_cannot_be_compiled_is_passed_over_and_the_heuristic_one_is_an_error(monkeypatch):
    real = choose.lower
    calls = []

    def lower(kernel, name, traits, choice=None):
        calls.append(choice)
        if choice is not None:
            raise CompileError("no registers")
        return real(kernel, name, traits, choice)

    monkeypatch.setattr("ringup.compiler.compile.lower", lower)
    (found,) = tune_graph([(Tensor(X) * 3).node], Tuning())
    assert found.best == 0
    assert {one.refused for one in found.trials[1:]} == {"no registers"}
    assert len(calls) == len(found.trials)
    monkeypatch.setattr("ringup.compiler.compile.lower", lambda *_: lower(None, "", None, 1))
    with pytest.raises(CompileError, match="no registers"):
        tune_graph([(Tensor(X) * 4).node], Tuning())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        '{"version": 1}',
        '{"version": 1, "kernels": {"a": {"choice": 3}}}',
        '{"version": 1, "kernels": 4}',
        "\udcff",
    ],
)
def test_a_damaged_file_is_an_empty_one_with_a_warning(tmp_path, caplog, text):
    path = tmp_path / "tuning.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with caplog.at_level(logging.WARNING):
        tuning = Tuning(path)
    assert len(tuning) == 0
    assert f"{path}: damaged" in caplog.text
    tune_graph(graph(), tuning, measure=Backwards())
    assert len(Tuning(path)) == 1


def test_another_version_s_file_and_a_folder_in_its_place_count_as_empty(tmp_path, caplog):
    path = tmp_path / "tuning.json"
    path.write_text(json.dumps({"version": tuning_module.VERSION + 1, "kernels": {}}))
    assert len(Tuning(path)) == 0
    assert not caplog.text
    assert len(Tuning(tmp_path)) == 0
    assert "cannot be read" in caplog.text


def test_an_entry_that_names_no_candidate_is_passed_over():
    tuning = Tuning()
    (job,) = jobs_of(graph())
    tuning.keep(job.signature, "gfx1100", Entry("rows parts=3 own=7 vector=5", "card", 1.0, 2.0, "k"))
    assert tuning.choice(job.kernel, job.signature, "gfx1100") is None
    assert compile_graph(graph(), tuning=tuning).launches == compile_graph(graph()).launches


def test_writers_of_one_file_keep_each_other_s_entries_and_no_half_file_is_seen(tmp_path, monkeypatch):
    path = tmp_path / "tuning.json"
    one, other = Tuning(path), Tuning(path)
    (job,) = jobs_of(graph())
    one.keep(job.signature, "gfx1100", Entry("a", "model", 1.0, 2.0, "k"))
    other.keep(job.signature, "gfx1201", Entry("b", "model", 1.0, 2.0, "k"))
    one.save()
    other.save()
    assert len(Tuning(path)) == 2
    before = path.read_bytes()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    one.keep(job.signature, "gfx1151", Entry("c", "model", 1.0, 2.0, "k"))
    with pytest.raises(OSError, match="No space"):
        one.save()
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["tuning.json"]


def test_what_a_card_said_outweighs_the_model_and_a_virtual_card_s_clock_nothing():
    (job,) = jobs_of(graph())
    tuning = Tuning()
    for judge, choice in (("virtual", "v"), ("model", "m"), ("virtual", "w"), ("card", "c"), ("model", "n")):
        tuning.keep(job.signature, "gfx1100", Entry(choice, judge, 1.0, 2.0, "k"))
        expected = {"v": "v", "m": "m", "w": "m", "c": "c", "n": "c"}[choice]
        assert tuning.entry(job.signature, "gfx1100").choice == expected


def test_a_kernel_s_key_is_the_same_in_every_process():
    """The key is pinned. A change of signatures or of the hash makes every user's file worthless, so it must be
    intended.
    """
    (job,) = jobs_of([(Tensor(np.zeros((4, 8), np.float32)) + 1).node])
    assert "0x" not in repr(job.signature)
    assert key_of(job.signature, "gfx1100") == key_of(
        jobs_of([(Tensor(np.ones((4, 8), np.float32)) + 1).node])[0].signature, "gfx1100"
    )
    assert key_of(job.signature, "gfx1100") != key_of(job.signature, "gfx1201")


def test_a_card_measures_and_then_runs_what_it_found():
    tuning = Tuning()
    x = X[:8, :8]
    with ringup.open("virtual:navi31") as card:
        (found,) = tune_graph(
            [(Tensor(x) + 1).sum(1).node], tuning, measure=CardMeasure(card, judge="virtual", runs=2, warm=1)
        )
        assert all(one.cost is not None and one.cost > 0 for one in found.trials)
        runner = Device(card, tuning=tuning)
        with device(runner):
            np.testing.assert_allclose((Tensor(x) + 1).sum(1).numpy(), (x + 1).sum(1), rtol=1e-5)
        (kernel,) = runner.compile([(Tensor(x) + 1).sum(1).node]).binaries
    (job,) = jobs_of([(Tensor(x) + 1).sum(1).node])
    best = tuning.choice(job.kernel, job.signature, "gfx1100")
    assert (best is None) == (found.best == 0)
    assert ModelMeasure().unit == "cycles"
    assert kernel.group_size > 0


def test_a_file_is_replaced_where_it_lies_and_a_pipe_never(tmp_path):
    real, link, pipe = tmp_path / "real.json", tmp_path / "link.json", tmp_path / "pipe"
    link.symlink_to(real)
    tuning = Tuning(link)
    tuning._changed["x"] = Entry("shape", "model", 1.0, 2.0, "k")
    tuning.save()
    assert link.is_symlink()
    assert json.loads(real.read_text())["kernels"]["x"]["choice"] == "shape"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(pipe, b"all of it")
    assert pipe.is_fifo()
    assert os.read(reader, 100) == b"all of it"
    os.close(reader)
