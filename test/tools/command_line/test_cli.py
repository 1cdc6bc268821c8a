"""The command line as users see it: help, exit codes, and one-line errors."""

import json
import re
import shlex
import signal
import subprocess
import sys

import pytest

import ringup
from ringup import errors
from ringup.errors import HeaderError, NoSuchCard
from ringup.tools.command_line import cli
from ringup.tools.command_line import parser as command_line
from ringup.tools.command_line.examples import EXAMPLES
from ringup.tools.common.json_text import json_text

# The numbers among the arguments of `mandelbrot`.
NUMBERS = ["--arg", "256", "--arg", "50", "--arg", "f32:1", "--arg", "f32:1", "--arg", "f32:1"]
FULL = "{}: No space left on device; free some space there, or name another place"


def test_the_version_is_the_package_s(capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"ringup {ringup.__version__}\n"


def test_help_names_every_command(capsys):
    assert cli.main([]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in cli.COMMANDS)


def test_every_command_has_help_that_explains_its_arguments(capsys):
    for name in cli.COMMANDS:
        with pytest.raises(SystemExit) as end:
            cli.main([name, "--help"])
        assert end.value.code == 0
        assert f"usage: ringup {name}" in capsys.readouterr().out


def test_every_help_ends_with_examples_that_can_be_typed(capsys):
    assert set(EXAMPLES) == set(cli.COMMANDS)
    for name, lines in EXAMPLES.items():
        with pytest.raises(SystemExit):
            cli.main([name, "--help"])
        text = capsys.readouterr().out
        assert lines
        for line in lines:
            assert f"  {line}\n" in text
            words = shlex.split(line)
            # Some examples begin with sudo.
            words = words[words.index("ringup") + 1 :]
            assert command_line.build_parser(name).parse_args(words).command == name


def test_help_lists_what_every_exit_status_says(capsys):
    assert cli.main([]) == 0
    codes = dict(re.findall(r"^  +(\d+)  (.+)$", capsys.readouterr().out, re.MULTILINE))
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.RingupError)]
    assert all(codes[str(kind.exit_code)] == kind.__name__ for kind in kinds if kind is not errors.RingupError)
    assert {"0", "1", "2", "130"} <= set(codes)


@pytest.mark.parametrize(
    "name", ["up", "down", "info", "stats", "top", "regs", "mem", "run", "trace", "reset", "report"]
)
def test_commands_on_a_card_take_the_same_options(capsys, name):
    with pytest.raises(SystemExit):
        cli.main([name, "--help"])
    text = capsys.readouterr().out
    assert all(option in text for option in ("--card NAME", "--json", "--verbose", "RINGUP_CARD"))


def test_an_unknown_command_is_wrong_usage(capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["nonsense"])
    assert end.value.code == 2
    assert "invalid choice: 'nonsense'" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["mem", "virtual:navi31", "read", "0", "16", "--out", "\0"], ["up", "virtual:\0"]])
def test_a_word_with_a_zero_byte_is_wrong_usage(capsys, words):
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    assert end.value.code == 2
    assert "a word contains a zero byte" in capsys.readouterr().err


@pytest.mark.parametrize("error", [HeaderError("reading x.h: it is not there"), NoSuchCard("no card")])
def test_an_error_is_one_line_and_its_own_exit_code(monkeypatch, capsys, error):
    def fail(args):
        raise error

    monkeypatch.setattr("ringup.tools.cards.list_cards.run", fail)
    assert cli.main(["list"]) == error.exit_code
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"ringup list: {type(error).__name__}: {error}\n")


def test_json_has_no_number_that_readers_refuse():
    value = {"a": [1.5, float("nan"), (float("inf"), {"b": -float("inf")})], "c": None}
    assert json_text(value) == '{"a": [1.5, "nan", ["inf", {"b": "-inf"}]], "c": null}'


def test_a_reader_that_closes_early_is_no_error():
    command = f"{sys.executable} -m ringup.tools.command_line.cli regs navi31 --all '*' | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1


@pytest.mark.parametrize(
    ("number", "status", "said"),
    [
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "ended by SIGTERM"),
        (signal.SIGHUP, 129, "ended by SIGHUP"),
    ],
)
def test_an_interrupt_ends_with_one_line_and_its_status(number, status, said):
    code = (
        "import sys, time; import ringup.tools.cards.list_cards as l; from ringup.tools.command_line import cli\n"
        "def run(args):\n    print('up', flush=True); time.sleep(60)\n"
        "l.run = run; sys.exit(cli.main(['list']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout.readline() == "up\n"
        child.send_signal(number)
        _, err = child.communicate(timeout=20)
    assert (child.returncode, err) == (status, f"ringup list: {said}\n")


@pytest.mark.parametrize(
    "module", ["argparse", "ringup.tools.command_line.parser", "ringup.cards", "ringup.tools.cards.list_cards"]
)
def test_an_interrupt_of_its_imports_ends_alike(module):
    code = (
        "import sys; from ringup.tools.command_line import cli\n"
        "class Interrupted:\n    def find_spec(self, name, *rest):\n"
        f"        if name == {module!r}: raise KeyboardInterrupt\n"
        f"sys.modules.pop({module!r}, None); sys.meta_path.insert(0, Interrupted()); sys.exit(cli.main(['list']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "ringup list: interrupted\n")


def test_the_entry_imports_nothing():
    code = "import sys; before = {*sys.modules}; import ringup.tools.command_line.cli; print(sorted({*sys.modules} - before))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['ringup', 'ringup.tools', 'ringup.tools.command_line', 'ringup.tools.command_line.cli']\n"


@pytest.mark.parametrize(
    "words", [["regs", "navi31"], ["regs", "navi31", "--all", "*"], ["doctor"], ["--help"], [], ["bench", "--list"]]
)
def test_output_that_cannot_be_written_is_one_line_and_status_1(words):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "ringup.tools.command_line.cli", *words]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    title = f"ringup {words[0]}" if words and words[0] in cli.COMMANDS else "ringup"
    assert (done.returncode, done.stderr) == (1, f"{title}: {FULL.format('standard output')}\n")


@pytest.mark.parametrize(
    "words",
    [
        ["mem", "virtual:navi31", "read", "0", "64", "--out"],
        ["report", "virtual:navi31", "--html"],
        ["bench", "registers", "--quick", "--no-peer", "--html"],
        ["run", "virtual:navi31", "CODE", "--block", "256", "--arg", "zero:1K", *NUMBERS, "--trace"],
    ],
)
def test_a_file_that_cannot_be_written_is_named_and_noticed_before_the_work(
    ringup, mandelbrot, tmp_path, monkeypatch, words
):
    words = [mandelbrot if word == "CODE" else word for word in words]
    status, _, err = ringup(*words, "/dev/full")
    assert (status, err.splitlines()[-1]) == (1, f"ringup {words[0]}: {FULL.format('/dev/full')}")
    for start in ("ringup.cards.connect", "ringup.tools.bench.benches.registers.measure"):
        monkeypatch.setattr(start, pytest.fail)
    (tmp_path / "file").touch()
    for path, why in {
        "/nope/x": "No such file or directory; check its path",
        tmp_path / "file/x": "Not a directory; check its path",
        tmp_path: "Is a directory; name a file in it",
    }.items():
        assert ringup(*words, path) == (1, "", f"ringup {words[0]}: {path}: {why}\n")


@pytest.mark.parametrize("text", ["nan", "inf", "1e300", "0", "-1", "abc"])
@pytest.mark.parametrize(
    "words", [["stats", "virtual:navi31", "--watch"], ["top", "--every"], ["run", "virtual:navi31", "x.o", "--timeout"]]
)
def test_a_time_is_finite_and_more_than_nothing(capsys, words, text):
    with pytest.raises(SystemExit, match="2"):
        cli.main([*words[:-1], f"{words[-1]}={text}"])
    last = capsys.readouterr().err.splitlines()[-1]
    assert re.fullmatch(
        r"ringup \w+: error: argument --\w+: (a time is more than 0 s and at most .*|.* is not a number of .*)", last
    )


@pytest.mark.parametrize(
    "words", [["stats", "--count", "abc"], ["top", "--count", "1e3"], ["run", "x", "--times", "1e3"]]
)
def test_what_is_no_whole_number_is_reported_in_words_of_users(capsys, words):
    with pytest.raises(SystemExit, match="2"):
        cli.main(words)
    assert f"argument {words[-2]}: {words[-1]!r} is not a whole number: write 3\n" in capsys.readouterr().err


def test_a_memory_that_is_too_small_is_one_line(ringup, monkeypatch):
    def fail(args):
        raise MemoryError

    monkeypatch.setattr("ringup.tools.cards.list_cards.run", fail)
    assert ringup("list") == (1, "", "ringup list: this computer's memory is too small for it\n")


def test_a_closed_output_is_no_error():
    command = f"{sys.executable} -m ringup.tools.command_line.cli regs navi31 >&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_terminal_of_ascii_alone_gets_ascii():
    variables = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii", "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-m", "ringup.tools.command_line.cli", "doctor"]
    done = subprocess.run(command, env=variables, capture_output=True, check=False)
    assert done.stderr == b""
    assert done.stdout.isascii()
    assert b"\n  + system " in done.stdout
    assert b"\\u" not in done.stdout


@pytest.mark.parametrize(
    ("words", "info", "debug"),
    [
        (["regs", "navi31", "CP_STAT"], False, False),
        (["-v", "regs", "navi31", "CP_STAT"], True, False),
        (["regs", "-v", "navi31", "CP_STAT"], True, False),
        (["regs", "navi31", "CP_STAT", "--verbose"], True, False),
        (["regs", "navi31", "NOPE", "-vv"], True, True),
        (["-v", "regs", "navi31", "NOPE", "-v"], True, True),
    ],
)
def test_verbose_logs_what_is_done_wherever_it_stands(words, info, debug):
    done = subprocess.run(
        [sys.executable, "-m", "ringup.tools.command_line.cli", *words], capture_output=True, text=True, check=False
    )
    assert ("ringup.tools.cards.regs: navi31 has 14 blocks\n" in done.stderr) == info
    assert ("where it came from\nTraceback" in done.stderr) == debug


@pytest.mark.parametrize(
    "words",
    [["headers", "check", "-v"], ["headers", "-v", "fetch"], ["-v", "headers", "-v", "generate", "-v"], ["list", "-v"]],
)
def test_every_command_and_action_takes_verbose(words):
    args = command_line.build_parser(next(word for word in words if word != "-v")).parse_args(words)
    assert sum(count for name, count in vars(args).items() if name.startswith(command_line.VERBOSE)) == words.count(
        "-v"
    )


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_knows_the_commands(capsys, shell):
    assert cli.main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in ("doctor", "regs", "headers"))


def test_bash_completes_a_command(tmp_path):
    script = tmp_path / "completion"
    command = [sys.executable, "-m", "ringup.tools.command_line.cli", "completion", "bash"]
    script.write_bytes(subprocess.run(command, capture_output=True, check=True).stdout)
    function = "$(complete -p ringup | sed 's/.*-F \\([^ ]*\\).*/\\1/')"
    ask = (
        f"source {script}; COMP_WORDS=(ringup doc); COMP_CWORD=1; {function} ringup doc ringup; echo ${{COMPREPLY[@]}}"
    )
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "doctor"


def test_list_without_transports_says_what_to_do(capsys, monkeypatch):
    monkeypatch.setattr("ringup.cards.entry_points", lambda group: [])
    assert cli.main(["list"]) == 0
    assert "ringup doctor" in capsys.readouterr().out
    assert cli.main(["list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_start_up_of_the_command_is_not_paid_with_unused_commands():
    code = (
        "import sys; from ringup.tools.command_line import parser as command_line; command_line.build_parser('list'); "
        "print([m for m in sys.modules if 'regs' in m or 'clang' in m])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
