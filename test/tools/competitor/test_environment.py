"""tinygrad's environment: how it is made, the errors of a failed installation, and the scripts that run in it."""

import subprocess

from ringup.tools.competitor.environment import SCRIPTS, Peer, find_or_make


def refuse(command, **options):
    raise subprocess.CalledProcessError(
        1, command, stderr="Looking in indexes\nERROR: No matching distribution found\n"
    )


def test_a_peer_that_cannot_be_installed_is_one_line_with_the_reason(tmp_path, capsys):
    peer = find_or_make(tmp_path / "peer", run=refuse)
    assert peer.python is None
    making, reason = capsys.readouterr().err.splitlines()
    assert "tinygrad==0.14.0, libclang==18.1.1" in making
    assert reason.startswith("ringup bench: tinygrad is not measured: ")
    assert reason.endswith(": ERROR: No matching distribution found")


def test_an_environment_that_was_cut_short_is_made_again(tmp_path):
    folder, ran = tmp_path / "peer", []
    (folder / "bin").mkdir(parents=True)
    # The interpreter is there, but the mark that the packages are installed is missing.
    (folder / "bin" / "python").touch()

    def note(command, **options):
        ran.append(command)
        folder.mkdir(exist_ok=True)

    assert find_or_make(folder, run=note).python == folder / "bin" / "python"
    assert [command[2] for command in ran] == ["venv", "pip"]
    find_or_make(folder, run=note)
    assert len(ran) == 2


def test_a_peer_that_fails_says_its_last_line_once(tmp_path, capsys):
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\necho 'Traceback' >&2\necho 'ModuleNotFoundError: no tinygrad' >&2\nexit 1\n")
    python.chmod(0o755)
    peer = Peer(python)
    assert peer.call("registers", {}) is None
    assert peer.call("registers", {}) is None
    assert capsys.readouterr().err.splitlines() == [
        "ringup bench: no figure of tinygrad: registers: ModuleNotFoundError: no tinygrad"
    ]


def test_every_script_that_a_bench_asks_for_ships_and_imports_nothing_of_ours():
    scripts = {path.stem: path.read_text(encoding="utf-8") for path in SCRIPTS.glob("*.py")}
    assert set(scripts) == {
        "bridge",
        "bringup",
        "fields",
        "firmware_folders",
        "generate",
        "graphs",
        "kfd",
        "memory",
        "nvidia_bringup",
        "nvidia_descriptor",
        "nvidia_queues",
        "queues",
        "registers",
        "shader",
        "virtual_libusb",
    }
    assert not [name for name, text in scripts.items() if "ringup." in text or "import ringup" in text]
