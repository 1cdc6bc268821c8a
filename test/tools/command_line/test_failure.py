"""Unexpected errors: the command prints one line, exits with a status of its own and writes a report. It leaves no
half-written file.
"""

import errno
import importlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ringup import errors
from ringup.errors import NoSuchCard
from ringup.tools.command_line import cli, failure
from ringup.tools.command_line.examples import EXAMPLES
from ringup.tools.common import files

# EX_SOFTWARE of sysexits.h
INTERNAL = 70


class Spoiled(Exception):
    """An exception whose text cannot be made."""

    def __str__(self):
        raise RuntimeError("no text")


class Cancelled(BaseException):
    """An exception of the kind that some libraries raise and `except Exception` does not catch."""


def deep(count=0):
    return deep(count + 1)


@pytest.fixture(autouse=True)
def reports(tmp_path, monkeypatch):
    """Sets the folder for reports. Returns a function that lists their texts."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return lambda: [path.read_text() for path in sorted((tmp_path / "state/ringup").glob("internal-error-*.txt"))]


@pytest.fixture
def failing(monkeypatch):
    """`failing("list", error)` makes the command raise that error."""

    def put(name, error):
        def fail(args):
            raise error() if isinstance(error, type) else error

        monkeypatch.setattr(importlib.import_module(cli.COMMANDS[name][0]), "run", fail)
        return [word for word in shlex.split(EXAMPLES[name][0]) if word not in ("sudo", "ringup")]

    return put


def of(argv, env=(), **options):
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env={**os.environ, **dict(env)}, **options)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_what_nobody_expected_is_one_line_a_status_of_its_own_and_a_report(ringup, failing, reports, name):
    words = failing(name, ZeroDivisionError("division by zero"))
    status, out, err = ringup(*words)
    assert (status, out) == (INTERNAL, "")
    line = re.fullmatch(
        rf"ringup {name}: internal error: ZeroDivisionError: division by zero; .* the report (\S+)\n", err
    )
    assert line
    (text,) = reports()
    assert Path(line[1]).read_text() == text
    assert os.stat(line[1]).st_mode & 0o777 == 0o600
    assert f"command line: {shlex.join(['ringup', *words])}\n" in text
    for fact in ("ringup 0.1.0", "platform: ", f"Python: {sys.version.split()[0]}", "Traceback", "in fail\n"):
        assert fact in text


def test_no_other_status_means_an_internal_error():
    codes = {kind.exit_code for kind in vars(errors).values() if isinstance(kind, type)}
    assert not codes & {INTERNAL, cli.INTERRUPTED, cli.WRONG_USAGE}
    assert cli.INTERNAL == INTERNAL


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KeyError("x"), "KeyError: 'x'"),
        (Spoiled, "Spoiled: its text is not available: RuntimeError"),
        (Cancelled, "Cancelled"),
        (AssertionError, "AssertionError"),
        (StopIteration, "StopIteration"),
        (ValueError("two\nlines and \x1b[31m colour"), "ValueError: two lines and \\x1b[31m colour"),
        (ImportError("no module of that name"), "ImportError: no module of that name"),
        (SystemExit("bye"), "RuntimeError: `ringup list` ended Python with 'bye'"),
        (SystemExit(0), "RuntimeError: `ringup list` ended Python with 0"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), "UnicodeDecodeError: 'utf-8' codec can't"),
    ],
)
def test_exceptions_of_every_kind_are_one_line(ringup, failing, reports, error, said):
    status, out, err = ringup(*failing("list", error))
    assert (status, out, err.count("\n")) == (INTERNAL, "", 1)
    assert err.startswith(f"ringup list: internal error: {said}")
    assert "Traceback" in reports()[0]


def test_endless_recursion_is_one_line(ringup, monkeypatch, reports):
    monkeypatch.setattr("ringup.tools.cards.list_cards.run", lambda args: deep())
    status, _, err = ringup("list")
    assert (status, err.count("\n")) == (INTERNAL, 1)
    assert "RecursionError: maximum recursion depth exceeded" in err
    assert "repeated" in reports()[0]


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        (NoSuchCard("no card is there"), "NoSuchCard", 10),
        (ZeroDivisionError("x"), "InternalError", INTERNAL),
        (MemoryError(), "OutOfMemory", 1),
        (OSError(errno.EIO, "Input/output error", "/dev/x"), "OSError", 1),
        (KeyboardInterrupt(), "Interrupted", 130),
    ],
)
def test_json_gets_an_object_for_every_failure(ringup, failing, error, kind, status):
    seen, out, err = ringup(*failing("list", error), "--json")
    shown = json.loads(out)["error"]
    assert (seen, shown["kind"], shown["exit_status"]) == (status, kind, status)
    assert shown["message"] in err
    assert ("report" in shown) == (status == INTERNAL)


@pytest.mark.parametrize("words", [["list", "--nope", "--json"], ["mem", "read", "--json"], ["nope", "--json"]])
def test_json_gets_an_object_for_wrong_usage(capsys, words):
    try:
        status = cli.main(words)
    except SystemExit as end:
        status = end.code
    out, err = capsys.readouterr()
    shown = json.loads(out)["error"]
    assert (status, shown["kind"], shown["exit_status"]) == (2, "WrongUsage", 2)
    assert shown["message"] in err


def test_notes_of_an_error_are_in_its_line(ringup, failing):
    error = NoSuchCard("gone")
    error.add_note("the bridge was restarted")
    assert ringup(*failing("list", error)) == (10, "", "ringup list: NoSuchCard: gone; the bridge was restarted\n")


@pytest.mark.parametrize(
    "module", ["argparse", "ringup.cards", "ringup.tools.cards.list_cards", "ringup.tools.command_line.failure"]
)
def test_a_damaged_installation_is_one_line(tmp_path, module):
    code = (
        "import sys; from ringup.tools.command_line import cli\n"
        "class Damaged:\n    def find_spec(self, name, *rest):\n"
        f"        if name == {module!r}: raise SyntaxError('invalid syntax')\n"
        f"sys.modules.pop({module!r}, None); sys.meta_path.insert(0, Damaged()); sys.exit(cli.main(['list']))"
    )
    status, out, err = of([sys.executable, "-c", code], {"XDG_STATE_HOME": tmp_path})
    assert (status, out, err.count("\n")) == (INTERNAL, "", 1)
    assert err.startswith("ringup list: internal error: SyntaxError: invalid syntax")


def test_a_word_that_is_no_text_is_wrong_usage(ringup, failing):
    failing("info", UnicodeEncodeError("utf-8", "x\udcff", 1, 2, "surrogates not allowed"))
    said = "ringup info: 'virtual:x\\udcff' has bytes that are not text in this locale's encoding\n"
    assert ringup("info", "virtual:x\udcff") == (2, "", said)


@pytest.mark.parametrize("words", [["up"], ["asm"], ["regs"], ["decode", "pm4"], ["serve", "usbip"], ["compile"]])
def test_bytes_that_are_no_text_are_no_internal_error(ringup, words):
    status, _, err = ringup(*words, "virtual:\udcff\udcfe")
    assert 0 < status != INTERNAL
    assert err.count("\n") == 1


# --- streams ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("close", ["2>&-", "2>/dev/full", ">&- 2>&-", ">/dev/full 2>/dev/full", "<&- >&- 2>&-"])
def test_the_status_is_right_where_nothing_can_be_printed(close):
    command = f"{sys.executable} -m ringup.tools.command_line.cli program /no/such/file {close}"
    status, out, err = of(["bash", "-c", command])
    assert (status, out, err) == (32, "", "")


def test_a_pipe_that_breaks_elsewhere_is_an_error(ringup, failing):
    assert ringup(*failing("list", BrokenPipeError(errno.EPIPE, "Broken pipe"))) == (
        1,
        "",
        "ringup list: Broken pipe\n",
    )


@pytest.mark.parametrize("options", ["", "-u"])
def test_a_reader_that_has_gone_is_no_error(options):
    program = f"{sys.executable} {options} -m ringup.tools.command_line.cli list --help"
    _, out, err = of(["bash", "-c", f"{program} | true; echo ${{PIPESTATUS[0]}}"])
    assert (out, err) == ("0\n", "")


def test_a_drawing_library_that_ends_python_for_want_of_a_reader_is_no_error(ringup, monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)

    def draw(args):
        try:
            os.write(writer, b"x")
        except BrokenPipeError:
            raise SystemExit(1)  # noqa: B904  as rich.console.Console.on_broken_pipe

    monkeypatch.setattr("ringup.tools.cards.list_cards.run", draw)
    assert ringup("list") == (0, "", "")
    os.close(writer)


@pytest.mark.parametrize("words", [["decode", "pm4", "-"], ["asm", "-"], ["disasm", "-"], ["program", "-"]])
def test_a_closed_standard_input_is_one_line(ringup, monkeypatch, words):
    monkeypatch.setattr("sys.stdin", None)
    status, _, err = ringup(*words)
    assert status in (1, 32)
    assert err.count("\n") == 1
    assert "it is closed" in err


@pytest.mark.parametrize("shut", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
@pytest.mark.parametrize("words", ["top virtual:navi31", "compile net.py"])
def test_a_closed_standard_file_is_no_error(tmp_path, words, shut):
    (tmp_path / "net.py").write_text(
        "from ringup.compiler.tensor import Tensor\ndef main():\n    return Tensor([1.0]) + 1\n"
    )
    program = f"cd {tmp_path}; {sys.executable} -m ringup.tools.command_line.cli {words} {shut}; echo $? >&9"
    status = tmp_path / "status"
    _, _, err = of(["bash", "-c", f"exec 9>{status}; {program}"])
    assert (status.read_text(), err) == ("0\n", "")


def test_no_node_gets_the_number_of_a_standard_file_that_is_closed():
    code = (
        "import os, sys; import ringup.tools.cards.list_cards as l; from ringup.tools.command_line import cli\n"
        "l.run = lambda args: os._exit(7 if os.open('/', os.O_RDONLY) > 2 and sys.stdin is None else 8)\n"
        "sys.argv = ['ringup', 'list']; cli.main()"
    )
    assert of(["bash", "-c", f'{sys.executable} -c "{code}" >&- 2>&- <&-'])[0] == 7


def test_ctrl_c_behind_the_end_prints_no_traceback():
    code = (
        "import atexit, os, signal, sys; import ringup.tools.cards.list_cards as l; from ringup.tools.command_line import cli\n"
        "l.run = lambda args: 0; sys.argv = ['ringup', 'list']\n"
        "atexit.register(lambda: os.kill(os.getpid(), signal.SIGINT)); sys.exit(cli.main())"
    )
    status, _, err = of([sys.executable, "-c", f"import signal; signal.signal(2, signal.default_int_handler)\n{code}"])
    assert (status, err) == (-signal.SIGINT, "")


def test_ctrl_c_while_an_error_is_reported_is_an_interruption(ringup, failing, monkeypatch):
    def interrupted(text):
        raise KeyboardInterrupt

    monkeypatch.setattr(failure, "write_report", interrupted)
    assert ringup(*failing("list", ZeroDivisionError)) == (130, "", "ringup list: interrupted\n")


# --- where reports go -------------------------------------------------------------------------------------------------
def test_where_the_user_s_folder_takes_no_report_temporary_files_do(ringup, failing, tmp_path, monkeypatch):
    (tmp_path / "state").write_text("no folder")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    status, _, err = ringup(*failing("list", ZeroDivisionError))
    assert status == INTERNAL
    assert f"the report {tmp_path}/internal-error-" in err


def test_where_nothing_takes_a_report_the_place_is_reported(ringup, failing, monkeypatch):
    monkeypatch.setattr(failure, "report_folders", lambda: iter(()))
    status, _, err = ringup(*failing("list", ZeroDivisionError))
    assert (status, err.count("\n")) == (INTERNAL, 1)
    assert re.search(r"internal error: ZeroDivisionError \(.*test_failure.py:\d+\); no report could be written", err)


def test_the_newest_reports_stay(ringup, failing, reports, tmp_path):
    words = failing("list", ZeroDivisionError)
    for number in range(failure.MAX_REPORTS + 3):
        ringup(*words, *["-v"] * number)
    assert len(reports()) == failure.MAX_REPORTS
    assert max(text.count(" -v") for text in reports()) == failure.MAX_REPORTS + 2


# --- files whole or not at all ----------------------------------------------------------------------------------------
def half_written(path, error):
    with files.writing(path) as draft:
        draft.write_bytes(b"half")
        raise error


def test_a_file_that_cannot_be_written_whole_stays_as_it_was(tmp_path):
    path = tmp_path / "a.npy"
    path.write_bytes(b"before")
    with pytest.raises(OSError, match="No space left") as raised:
        half_written(path, OSError(errno.ENOSPC, "No space left on device"))
    assert raised.value.filename == str(path)
    assert [(one.name, one.read_bytes()) for one in tmp_path.iterdir()] == [("a.npy", b"before")]


def test_an_interrupted_file_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        half_written(tmp_path / "a", KeyboardInterrupt())
    assert list(tmp_path.iterdir()) == []


def test_a_file_keeps_its_rights_and_the_links_that_lead_to_it(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"before")
    real.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(real, 1234, 4321)
    before = real.stat()
    link.symlink_to(real)
    files.write(link, "after")
    assert (real.stat().st_uid, real.stat().st_gid) == (before.st_uid, before.st_gid)
    assert (link.is_symlink(), real.read_text(), real.stat().st_mode & 0o777) == (True, "after", 0o640)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_new_file_has_the_rights_that_the_user_s_mask_leaves(tmp_path):
    before = os.umask(0o027)
    try:
        files.write(tmp_path / "a", b"x")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def test_a_pipe_is_written_itself(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with subprocess.Popen(["cat", path], stdout=subprocess.PIPE) as reader:
        files.write(path, b"through")
        assert reader.communicate()[0] == b"through"
    assert path.is_fifo()


def test_commands_write_files_through_one_place():
    """The exceptions are logs that grow in place, packages fetched into their own folder, and the scratch files of
    benches.
    """
    others = {"access_log.py", "fetch.py", "files.py", "failure.py", "environment.py", "shader.py", "usb.py"}
    texts = {path.name: path.read_text() for path in Path(cli.__file__).parent.rglob("*.py")}
    writing = re.compile(r"(?<!draft)\.(write_text|write_bytes)\(|(?<!draft\.)open\(\"[wax]")
    assert {name for name, text in texts.items() if writing.search(text)} <= others
