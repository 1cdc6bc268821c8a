"""`ringup compile`, `explain` and `tune`: what they make of a user's file, what they show, and how they report its
mistakes.
"""

import html.parser
import json
import re

import pytest

from ringup.compiler.isa.amd.objects import elf_read
from ringup.errors import CompileError
from ringup.tools.code import explain, graph_file
from ringup.tools.code.compile import size
from ringup.tools.common import table

FILE = """
import numpy as np
import helper
from ringup.compiler.tensor import Size, Tensor

def main():
    return Tensor(np.zeros((16, 256), np.float32), name="<logits>").softmax(-1)

def pair():
    a, b = Tensor(np.zeros((64, 64), np.float16)), Tensor(np.zeros((64, 64), np.float16))
    return (a @ b).relu(), a.sum(1)

def again():
    x, y = (Tensor(np.zeros((64, 64), np.float32)) for _ in range(2))
    return x @ y @ y @ y

def symbolic():
    n = Size("n", 1, 50)
    return Tensor.arange(50)[:n].cast("float32") * 2 if False else Tensor(np.zeros((50, 4), np.float32))[:n] * 2

def assigned():
    x = Tensor(np.zeros(8, np.float32))
    x.assign(x + 1)
    return x

def data():
    return Tensor([1.0, 2.0])

def shapes():
    return Tensor([1.0, 2.0]) + Tensor([1.0, 2.0, 3.0])

def deep():
    return helper.broken()

def asks():
    return Tensor([1.0, 2.0]).sum().item()

def wants(x, y=1):
    return x

def number():
    return 3

def nothing():
    return ()

def raises():
    raise RuntimeError("many\\nlines")

answer = 42
"""
HELPER = "def broken():\n    return 1 / 0\n"


@pytest.fixture
def net(tmp_path, monkeypatch):
    """A user's file in a new folder, which is also the current folder and the cache."""
    (tmp_path / "net.py").write_text(FILE)
    (tmp_path / "helper.py").write_text(HELPER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RINGUP_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.parametrize("target", ["gfx1100", "gfx1151", "gfx1201", "gfx942"])
def test_compile_shows_the_kernels_and_writes_a_code_object(ringup, net, target):
    status, out, err = ringup("compile", "net.py:pair", "--target", target, "-o", "net.o")
    assert (status, err) == (0, "")
    head, *rows, summary, written = out.splitlines()
    assert head.split() == [
        "kernel",
        "launches",
        "groups",
        "threads",
        "VGPRs",
        "SGPRs",
        "LDS",
        "scratch",
        "waves",
        "code",
        "moved",
    ]
    assert len(rows) == 2
    assert summary.startswith(f"{target}: 2 launches of 2 kernels, ")
    code = (net / "net.o").read_bytes()
    assert written == f"net.o: {len(code)} bytes"
    found = elf_read.read(code, "net.o")
    assert found.processor == target
    assert {row.split()[0] for row in rows} == {name.removesuffix(".kd") for name in found.descriptors}


def test_compile_as_json_says_what_the_table_says_in_numbers(ringup, net):
    status, out, _ = ringup("compile", "net.py", "--json")
    shown = json.loads(out)
    assert status == 0
    (kernel,) = shown["kernels"]
    assert kernel["threads"] * kernel["groups"][0] >= 16 * 32
    assert shown["bytes_moved"] == kernel["bytes_moved"] == 2 * 16 * 256 * 4
    assert shown["outputs"] == [{"dtype": "float32", "shape": [16, 256]}]
    assert kernel["estimate"]["cycles"] == max(
        kernel["estimate"]["compute_cycles"], kernel["estimate"]["memory_cycles"]
    )
    assert not (net / "net.o").exists()


def test_other_functions_compile_too(ringup, net):
    assert ringup("compile", "net.py:again")[1].splitlines()[-1].startswith("gfx1100: 3 launches of 2 kernels, ")
    status, out, err = ringup("compile", "net.py:symbolic", "--json")
    assert (status, err) == (0, "")
    assert json.loads(out)["outputs"][0]["shape"] == ["n", 4]
    assert ringup("compile", "net.py:assigned")[0] == 0
    assert "nothing to compile" in ringup("compile", "net.py:data", "-o", "data.o")[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("net.py:shapes", r"net\.py:\d+: ValueError: shapes \[2\] and \[3\] do not broadcast.*"),
        ("net.py:deep", r"net\.py:\d+: ZeroDivisionError: division by zero"),
        ("net.py:asks", r"net\.py:\d+: CompileError: a tensor is to be computed and no card is chosen.*"),
        ("net.py:wants", r"net\.py: wants needs x; write a function without arguments that makes its tensors"),
        ("net.py:number", r"net\.py: number\(\) returned int; it has to be a Tensor, or a tuple of them"),
        ("net.py:nothing", r"net\.py: nothing\(\) returned no tensors"),
        ("net.py:raises", r"net\.py:\d+: RuntimeError: many lines"),
        ("net.py:answer", r"net\.py: answer is int, not a function that returns tensors"),
        ("net.py:forward", r"net\.py has no function forward; it has main, pair, .*: name one, as in net\.py:main"),
        ("helper.py", r"helper\.py has no function main or model; it has broken: name one, as in helper\.py:broken"),
        ("missing.py", r"missing\.py cannot be read \(No such file or directory\); check its path"),
        ("/dev/zero", r"/dev/zero has more than 64 MiB, which is more than any program"),
        ("wrong.py", r"wrong\.py:2: SyntaxError: .*"),
        ("nul.py", r"nul\.py: (SyntaxError|ValueError): .*null bytes.*"),
        ("ends.py", r"ends\.py:2: it exits Python \(SystemExit: 3\)"),
        ("ends_later.py", r"ends_later\.py:2: it exits Python \(SystemExit: bye\)"),
        ("waits.py", r"waits\.py: main is asynchronous; write a plain function that returns tensors"),
        ("absent.py", r"absent\.py:1: ModuleNotFoundError: No module named 'no_such_module'"),
    ],
)
@pytest.mark.parametrize("command", ["compile", "explain", "tune"])
def test_what_is_wrong_in_the_file_is_one_line_with_its_place(ringup, net, words, said, command):
    (net / "wrong.py").write_text("def main():\n    return (\n")
    (net / "nul.py").write_bytes(b"a = 1\0\n")
    (net / "absent.py").write_text("import no_such_module\n")
    (net / "ends.py").write_text("import sys\nsys.exit(3)\n")
    (net / "ends_later.py").write_text("def main():\n    raise SystemExit('bye')\n")
    (net / "waits.py").write_text("async def main():\n    return 1\n")
    status, out, err = ringup(command, words)
    assert status == CompileError.exit_code
    assert out == ""
    assert re.fullmatch(rf"ringup {command}: CompileError: {said}\n", err), err


def test_a_wrong_target_lists_the_right_ones(ringup, net, capsys):
    with pytest.raises(SystemExit) as end:
        ringup("compile", "net.py", "--target", "gfx906")
    assert end.value.code == 2
    assert "gfx1100', 'gfx1151', 'gfx1201', 'gfx942" in capsys.readouterr().err


def test_a_full_place_for_the_result_is_refused_before_the_work(ringup, net):
    status, _, err = ringup("compile", "net.py", "-o", "no/such/folder/net.o")
    assert status == 1
    assert "check its path" in err


def test_the_user_s_path_is_put_back_and_a_colon_in_a_file_s_name_is_its_own(net):
    import sys

    before = list(sys.path)
    graph_file.outputs_of("net.py")
    with pytest.raises(CompileError):
        graph_file.outputs_of("net.py:shapes")
    assert sys.path == before
    (net / "odd:name").write_text(FILE)
    assert len(graph_file.outputs_of("odd:name")) == 1


def test_explain_tells_the_schedule_and_each_kernel_in_short(ringup, net):
    status, out, _ = ringup("explain", "net.py")
    assert status == 0
    lines = out.splitlines()
    assert lines[0].startswith("gfx1100: 1 launch of 1 kernel, 32K bytes moved")
    words = [" ".join(line.split()) for line in lines]
    for wanted in (
        "fuses 11 nodes, 2 reductions",
        "t1 max over axis 1 of m1 float32[16, 1]",
        "m1 float32[16, 256] <logits> buffer 0 16384 read",
        "m0 float32[16, 256] output 0 16384 written",
    ):
        assert wanted in words, wanted
    assert any(line.startswith("grid group 8 groups of rows") for line in words)
    assert any(line.startswith("reduce part") for line in words)
    assert "--- amd" not in out


def test_explain_of_a_kernel_shows_every_pass_in_order_and_the_code(ringup, net):
    _, out, _ = ringup("explain", "net.py", "--kernel", "0")
    heads = re.findall(r"^--- (.*?) -+$", out, re.MULTILINE)
    assert heads == [
        "machine lower", "machine hoist", "machine drop", "amd select", "amd schedule", "amd allocate", "amd dual", "amd waits",
        "amd hazards", "amd clause", "amd delay", "assembly",
    ]  # fmt: skip
    before, after = out.split("--- amd delay")
    assert "s_delay_alu" not in before
    assert after.count("s_delay_alu") > 2
    before, after = out.split("--- amd allocate")
    # Registers are virtual until the allocation.
    assert "v%" in before
    assert "v%" not in after
    # Every run names the registers alike.
    assert ringup("explain", "net.py", "--kernel", "0")[1] == out
    assert out.rstrip().endswith("s_endpgm")
    _, only, _ = ringup(
        "explain",
        "net.py",
        "--kernel",
        "softmax" if "softmax" in out else "r_max",
        "--pass",
        "select",
        "--pass",
        "machine drop",
    )
    assert re.findall(r"^--- (.*?) -+$", only, re.MULTILINE) == ["machine drop", "amd select"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--kernel", "7"], "there is no launch 7; there are 2, from 0"),
        (["--kernel", "r_"], "2 kernels have 'r_' in their names; there is r_"),
        (["--kernel", "beans"], "no kernels have 'beans' in their names; there is r_"),
        (["--kernel", "0", "--pass", "magic"], "there is no pass magic; there is machine lower, "),
        (["--pass", "select"], "--pass needs a kernel: choose it with --kernel"),
    ],
)
def test_explain_of_what_is_not_there_says_what_is(ringup, net, words, said):
    status, _, err = ringup("explain", "net.py:pair", *words)
    assert status == 2
    assert said in err


class Page(html.parser.HTMLParser):
    """Parses a page: tags still open, links, and texts by tag."""

    VOID = frozenset(("meta", "br"))

    def __init__(self, text):
        super().__init__()
        self.open, self.links, self.texts, self.counts, self.ids, self.options = [], [], {}, {}, set(), []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.links += [attributes[name] for name in ("src", "href") if name in attributes]
        self.counts[tag] = self.counts.get(tag, 0) + 1
        if "id" in attributes:
            assert attributes["id"] not in self.ids
            self.ids.add(attributes["id"])
        if tag == "option":
            self.options.append(attributes["value"])
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)


def test_the_page_is_whole_escaped_and_fetches_nothing(ringup, net):
    status, out, _ = ringup("explain", "net.py", "--html", "net.html")
    assert status == 0
    assert out.startswith("net.html: ")
    text = (net / "net.html").read_text()
    page = Page(text)
    assert not page.open
    assert not page.links
    assert not re.search(r"https?://|@import|url\(", text)
    assert "<logits>" not in text
    assert "&lt;logits&gt;" in text
    # One for each pass, the code and the two panes.
    assert page.counts["details"] == 13
    assert page.counts["select"] == 2
    # The page holds everything that the panes can show.
    assert set(page.options) == page.ids
    assert any("s_endpgm" in one for one in page.texts["pre"])
    assert {"grid", "reduce", "unroll"} <= set(page.texts["span"])


def test_the_page_of_one_kernel_has_that_kernel_alone(ringup, net):
    ringup("explain", "net.py:pair", "--html", "all.html")
    ringup("explain", "net.py:pair", "--kernel", "1", "--html", "one.html")
    all_, one = ((net / name).read_text() for name in ("all.html", "one.html"))
    assert all_.count("<h2>") == 3
    assert one.count("<h2>") == 2
    assert len(one) < len(all_)


def test_tune_finds_keeps_and_is_heard_by_the_others(ringup, net):
    before = json.loads(ringup("compile", "net.py:pair", "--json")[1])
    status, out, err = ringup("tune", "net.py:pair", "--json")
    assert (status, err) == (0, "")
    found = json.loads(out)
    assert all(len(one["trials"]) > 5 and one["judge"] == "model" and not one["known"] for one in found)
    assert any(one["gain"] > 1.02 for one in found)
    assert (net / "cache" / "tuning.json").exists()
    after = json.loads(ringup("compile", "net.py:pair", "--json")[1])
    shapes = [one["shape"] for one in after["kernels"]]
    assert shapes == [one["best"] for one in found]
    assert [one["tuned"] for one in after["kernels"]] == [one["gain"] > 1 for one in found]
    assert json.loads(ringup("compile", "net.py:pair", "--untuned", "--json")[1]) == before
    assert "found by tune" in ringup("explain", "net.py:pair")[1]
    _, again, _ = ringup("tune", "net.py:pair")
    assert again.count("known") == 2
    assert "by the model of gfx1100; stored in " in again


def test_tune_on_a_card_of_another_target_is_refused(ringup, net):
    status, _, err = ringup("tune", "net.py", "--target", "gfx1201", "--card", "virtual:navi31")
    assert "virtual:navi31 is a gfx1100; give --target gfx1100, not gfx1201" in err
    assert status != 0


def test_a_damaged_tuning_file_is_a_warning_and_no_more(ringup, net, caplog):
    (net / "cache").mkdir()
    (net / "cache" / "tuning.json").write_text("{")
    status, out, _ = ringup("compile", "net.py")
    assert status == 0
    assert "damaged" in caplog.text
    assert "launch" in out


def test_tables_and_sizes_for_people():
    columns = (table.Column("name"), table.Column("n", "right"))
    assert table.plain(columns, [("a", "10"), ("bcdef", "2")]) == ["name    n", "a      10", "bcdef   2"]
    assert table.plain(columns, []) == ["name  n"]
    assert [size(count) for count in (0, 10239, 10240, 20 << 20, 30 << 30)] == ["0", "10239", "10K", "20M", "30G"]


def test_the_terminal_gets_a_drawn_table(net, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    table.show((table.Column("kernel"), table.Column("n", "right")), [("[red]a", "1")])
    out = capsys.readouterr().out
    # The text contains what rich could take for markup.
    assert "[red]a" in out
    assert "─" in out
    assert explain.SCHEDULE[0].head == "#"


@pytest.mark.parametrize(
    "words",
    [
        ("compile", "net.py", "-o", "net.py"),
        ("compile", "net.py:main", "-o", "./net.py"),
        ("explain", "net.py", "--html", "link.py"),
        ("tune", "net.py", "--tuning", "net.py"),
        ("tune", "net.py", "--tuning", "other.json"),
        ("asm", "code.s", "-o", "code.s"),
    ],
    ids=" ".join,
)
def test_a_file_of_the_users_is_not_written_over(ringup, net, words):
    (net / "link.py").symlink_to("net.py")
    (net / "other.json").write_text('{"name": "mine"}')
    (net / "code.s").write_text("s_endpgm\n")
    before = {path: path.read_bytes() for path in net.iterdir() if path.is_file()}
    status, out, err = ringup(*words)
    assert (status, out) == (2, "")
    assert "would be overwritten; name another file" in err
    assert {path: path.read_bytes() for path in net.iterdir() if path.is_file()} == before
