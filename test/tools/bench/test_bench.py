"""The bench command: the contents of a figure, and a run without a competitor. These tests check no measured time."""

import json

import pytest

from ringup.tools.bench import command, sample
from ringup.tools.bench.bench import Bench
from ringup.tools.bench.benches import fields, imports, registers, shader
from ringup.tools.bench.figure import Figure, Goal, number, table
from ringup.tools.bench.timing import loop_ns
from ringup.tools.command_line import cli
from ringup.tools.competitor.environment import Peer


class FreshStub:
    """Returns fixed answers for our side and runs nothing."""

    def evaluate(self, code):
        return 4.0

    def call(self, module, job):
        return {"open_ms": 1.0, "first_ms": 2.0, "place_us": 3.0, "fields_us": 4.0}


@pytest.fixture
def lonely():
    """A bench that runs without the competitor, whose installation failed."""
    return Bench(sources=None, peer=Peer(None), fresh=FreshStub(), quick=True, say=lambda text: None)


def test_a_figure_is_one_json_object_with_the_promised_keys():
    row = json.loads(Figure("open", "ms", 2.0, 10.0, Goal("ours", 5)).as_json())
    assert row == {
        "name": "open",
        "unit": "ms",
        "ours": 2.0,
        "peer": 10.0,
        "ratio": 5.0,
        "better": "less",
        "beside": "tinygrad",
        "goal": "ours <= 5 ms",
        "met": True,
    }


def test_without_a_peer_peer_and_ratio_are_null_and_a_goal_on_the_ratio_is_neither_met_nor_missed():
    row = json.loads(Figure("nvidia", "CPU s", 0.5, None, Goal("ratio", 20)).as_json())
    assert (row["peer"], row["ratio"], row["met"], row["beside"]) == (None, None, None, None)


@pytest.mark.parametrize(
    ("better", "ours", "peer", "ratio"),
    [
        ("less", 2.0, 10.0, 5.0),
        ("less", 10.0, 2.0, 0.2),
        ("more", 10.0, 2.0, 5.0),
        ("more", 2.0, 10.0, 0.2),
        ("less", 0.0, 3.0, None),
    ],
)
def test_a_ratio_above_one_means_ours_is_better(better, ours, peer, ratio):
    assert Figure("x", "s", ours, peer, better=better).ratio == ratio


@pytest.mark.parametrize(
    ("figure", "met"),
    [
        (Figure("x", "s", 3.0, goal=Goal("ours", 3)), True),
        (Figure("x", "s", 3.1, goal=Goal("ours", 3)), False),
        (Figure("x", "s", 3.1, goal=Goal("ours", 3), better="more"), True),
        (Figure("x", "s", 1.0, 20.0, Goal("ratio", 20)), True),
        (Figure("x", "s", 1.0, 19.9, Goal("ratio", 20)), False),
        (Figure("x", "s", 1.0, 19.9), None),
    ],
)
def test_a_goal_is_met_at_its_bound_and_missed_beyond_it(figure, met):
    assert figure.met is met


def test_the_table_is_aligned_and_marks_a_missed_goal():
    lines = table(
        [Figure("a", "ms", 1.0, 20.0, note="why"), Figure("longer", "CPU s", 123.4, goal=Goal("ours", 5))]
    ).splitlines()
    assert lines == [
        "        unit   ours  peer  ratio  peer is   goal",
        "a [1]   ms        1    20     20  tinygrad",
        "longer  CPU s   123     -      -            ours <= 5 CPU s  MISSED",
        "[1] why",
    ]


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (0.0, "0"), (0.000123, "0.000123"), (5.0, "5"), (61.193, "61.2"), (2973.4, "2973")]
)
def test_numbers_are_short_and_without_exponents(value, text):
    assert number(value) == text


def test_an_unknown_bench_is_refused_with_the_names_there_are(capsys):
    with pytest.raises(SystemExit) as ended:
        cli.main(["bench", "feilds"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "there is no bench feilds; near: fields; the benches are import, registers, fields, generate" in said


def test_the_list_is_json_for_programs(capsys):
    assert cli.main(["bench", "--list", "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == list(command.BENCHES)


def test_the_list_names_every_bench_and_measures_nothing(capsys):
    assert cli.main(["bench", "--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == [
        "import",
        "registers",
        "fields",
        "generate",
        "shader",
        "sm",
        "queues",
        "nvidia-queues",
        "nvidia-descriptor",
        "latency",
        "kfd",
        "transfers",
        "bringup",
        "nvidia-bringup",
        "usb",
        "compile",
        "schedule",
        "code",
        "memory",
    ]


def test_figures_without_a_peer_still_come_with_ours(lonely):
    rows = [json.loads(figure.as_json()) for figure in registers.measure(lonely)]
    assert [(row["ours"], row["peer"], row["ratio"]) for row in rows] == [
        (ours, None, None) for ours in (1.0, 2.0, 3.0, 4.0)
    ]


def test_every_generated_module_is_imported_by_the_import_bench(lonely):
    names = imports.generated_modules()
    assert "ringup.autogen.amd.gc" in names
    assert not [name for name in names if "generate" in name or name.endswith("__init__")]
    figures = {figure.name: figure for figure in imports.measure(lonely)}
    assert figures["one block's module, median"].ours == 4.0


def test_the_sides_of_the_field_bench_write_the_same_bytes():
    sides = {"ours": sample.ours(), "ctypes": sample.with_ctypes(), "cffi": sample.with_cffi()}
    fields.check_same_layout(sides)
    assert sides["ours"]["memory"] == sides["ctypes"]["memory"] != bytes(sample.Whole.SIZE)


def test_sides_that_differ_are_refused():
    ours, other = sample.ours(), sample.with_ctypes()
    # These statements write to another place.
    other["memory"] = bytearray(sample.Whole.SIZE)
    with pytest.raises(Exception, match="ours, ctypes do not write the same bytes"):
        fields.check_same_layout({"ours": ours, "ctypes": other})


SIDES = {"ours": sample.ours, "ctypes": sample.with_ctypes, "cffi": sample.with_cffi}


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", fields.LOOPS)
def test_every_loop_runs_on_every_side_and_its_setters_leave_what_was_set(side, name):
    names, loop = {**SIDES[side](), **fields.names_of(name)}, fields.LOOPS[name]
    loop_ns(loop.ours if side == "ours" and loop.ours else loop.statement, names, 1)
    part, values = ("b", sample.BIT_VALUES) if "bit" in name else ("p", sample.VALUES)
    seen = [getattr(names[part], f"f{i}") for i in range(len(values))]
    writes = "fill" in name or name in ("plain set", "bit-field set")
    nested = [0, 0, sample.VALUES[2], 0] if name == "nested set" else [0] * len(values)
    assert seen == (list(values) if writes else nested)


def test_a_statement_that_does_not_run_is_an_error_and_no_time():
    with pytest.raises(AttributeError):
        loop_ns("p.nope", sample.ours(), 1)


def test_help_says_that_the_peer_is_downloaded_and_how_it_is_not(capsys):
    with pytest.raises(SystemExit):
        cli.main(["bench", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "The first run downloads tinygrad." in text
    assert "with --no-peer the network is not used" in text


def test_json_output_is_one_object_a_line(capsys):
    command.show("fields", [Figure("a", "ns", 1.0), Figure("b", "ns", 2.0, 4.0)], as_json=True)
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["a", "b"]


def test_the_shader_bench_gives_the_peer_whole_rows_of_a_grid_or_a_part_of_one():
    limit = shader.PEER_INSTRUCTIONS
    assert shader.part((32, 32, 1), limit) == (32, 32, 1)
    assert shader.part((32, 32, 1), 4 * limit) == (32, 8, 1)
    assert shader.part((32, 32, 1), 64 * limit) == (16, 1, 1)
    assert shader.part((4, 4, 1), 1000 * limit) == (1, 1, 1)
