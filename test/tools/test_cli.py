"""The command as its users meet it: help, exit codes, one line for an error."""

import json
import signal
import subprocess
import sys

import pytest

import ringup
from ringup.errors import HeaderError, NoSuchCard
from ringup.tools import cli


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


def test_an_unknown_command_is_wrong_usage(capsys):
    with pytest.raises(SystemExit) as end:
        cli.main(["nonsense"])
    assert end.value.code == 2
    assert "invalid choice: 'nonsense'" in capsys.readouterr().err


@pytest.mark.parametrize("error", [HeaderError("reading x.h: it is not there"), NoSuchCard("no card")])
def test_an_error_is_one_line_and_its_own_exit_code(monkeypatch, capsys, error):
    def fail(args):
        raise error

    monkeypatch.setattr("ringup.tools.list_cards.run", fail)
    assert cli.main(["list"]) == error.exit_code
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"ringup list: {type(error).__name__}: {error}\n")


def test_a_reader_that_closes_early_is_no_error():
    command = f"{sys.executable} -m ringup.tools.cli regs navi31 --all '*' | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1


def test_an_interrupt_ends_with_one_line_and_130(tmp_path):
    code = (
        "import sys, time; import ringup.tools.list_cards as l; from ringup.tools import cli\n"
        "def run(args):\n    print('up', flush=True); time.sleep(60)\n"
        "l.run = run; sys.exit(cli.main(['list']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout.readline() == "up\n"
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=20)
    assert (child.returncode, err) == (130, "ringup list: interrupted\n")


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_knows_the_commands(capsys, shell):
    assert cli.main(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in ("doctor", "regs", "headers"))


def test_bash_completes_a_command(tmp_path):
    script = tmp_path / "completion"
    command = [sys.executable, "-m", "ringup.tools.cli", "completion", "bash"]
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
    code = "import sys; from ringup.tools import cli; cli.build_parser('list'); print([m for m in sys.modules if 'regs' in m or 'clang' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
