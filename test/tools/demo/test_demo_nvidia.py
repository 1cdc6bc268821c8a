"""The demonstration on a card of NVIDIA's: kernels of our own SASS, a fault and the reset, and what it leaves out."""

import json
from types import SimpleNamespace

import pytest

import ringup
from ringup.errors import NotSupported
from ringup.tools.command_line import cli
from ringup.tools.demo import command as demo
from ringup.tools.demo import kernels, sass_kernels
from ringup.tools.demo.kernels import Prepared

CARD = "virtual:ga102@nvidia"
CHIPS = {"tu102": "sm_75", "ga100": "sm_80", "ga102": "sm_86", "ad102": "sm_89"}


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """One demonstration on little data: (its figures, its text)."""
    folder = tmp_path_factory.mktemp("demo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "COPY_BYTES", 1 << 18)
        patch.setattr(demo, "BUSY_RUNS", 2)
        patch.setattr(demo, "tasks", lambda small: kernels.tasks(small=True))
        lines = []
        patch.setattr("builtins.print", lambda *words, **options: lines.extend(words))
        assert cli.main(["demo", "--card", CARD, "--out", str(folder), "--svg", str(folder / "demo.svg")]) == 0
        text = "\n".join(map(str, lines))
        lines.clear()
        assert cli.main(["demo", CARD, "--json", "--out", str(folder)]) == 0
    (line,) = [line for line in lines if line]
    return json.loads(line), text


def test_it_tells_the_same_story_with_a_fault_in_place_of_the_cable(played):
    story, text = played
    assert story["chapters"] == [
        "This machine", "Bring-up", "Copies", "Kernels", "Sentences", "A fault", "Power down", "To look at",
    ]  # fmt: skip
    assert (story["what"]["SMs"], story["what"]["target"]) == (72, "sm_86")
    for said in ("launch descriptors (QMDs)", demo.NO_TENSORS, "DeviceFault: ", "Xid 31", "NumPy's again"):
        assert said in text
    assert not any(word in text for word in ("PM4", "compute units", "waves"))


def test_every_element_of_every_kernel_is_numpys(played):
    story, _ = played
    rows = [(row["kernel"], row["right"]) for row in story["kernels"]]
    assert rows == [("saxpy", 1 << 10), ("matmul", 32**2), ("mandelbrot", 64**2)]
    assert story["warm"]["us"] > 0


def test_the_page_has_the_fault_and_no_power(played):
    story, _ = played
    with open(story["files"]["report"]) as file:
        page = file.read()
    assert "A kernel stored where no memory is" in page
    assert "Xid 31" in page
    assert "W</td>" not in page
    assert story["fault"]["error"] == "DeviceFault"


@pytest.mark.parametrize("chip", ["tu102", "ga100", "ad102"])
def test_the_kernels_are_right_on_every_chip_that_they_are_for(chip):
    with ringup.open(f"virtual:{chip}@nvidia") as card:
        assert card.info.target == CHIPS[chip]
        for task in kernels.tasks(small=True):
            prepared = Prepared(card, task)
            assert prepared.is_right(prepared.run()), task.name


def test_chips_without_kernels_are_named():
    assert set(sass_kernels.TARGETS) == set(CHIPS.values())

    card = SimpleNamespace(info=SimpleNamespace(target="sm_90"), load=None)
    with pytest.raises(NotSupported, match="written for sm_75, sm_80, sm_86, sm_89, not for sm_90"):
        Prepared(card, kernels.tasks(small=True)[0])
