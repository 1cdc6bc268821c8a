"""Fetching header packages: what goes wrong in the cache folder is one error. Nothing here uses the network."""

import logging
import zipfile

import pytest

from ringup.autogen.generate.manifest import load
from ringup.autogen.generate.sources import STAMP
from ringup.errors import HeaderError
from ringup.tools import cli, fetch


@pytest.fixture
def package():
    return load().packages["linux"]


@pytest.fixture
def tools(monkeypatch):
    """All programs that fetching needs seem to be installed; none of them runs."""
    monkeypatch.setattr(fetch.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(fetch, "_try", lambda command, folder: "no program is run here")


def quiet(text):
    pass


def test_a_cache_below_a_file_is_one_error(package, tools, tmp_path):
    (tmp_path / "file").touch()
    for cache in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(HeaderError, match=f"fetching linux into {cache}: .*; name another folder with --cache"):
            fetch.fetch(package, cache, quiet)


def test_a_cache_that_cannot_be_made_ends_the_command_with_one_line(tools, monkeypatch, capsys):
    monkeypatch.setenv("RINGUP_CACHE", "/proc/nope")
    assert cli.main(["headers", "fetch", "linux"]) == HeaderError.exit_code
    assert capsys.readouterr().err.startswith("ringup headers: HeaderError: fetching linux into /proc/nope: [Errno 2]")


def test_a_package_whose_place_is_taken_by_a_file_is_one_error(package, tools, monkeypatch, tmp_path):
    (tmp_path / "linux").touch()
    monkeypatch.setattr(fetch, "_download_and_unpack", lambda package, work, out, say: "6.12")
    with pytest.raises(HeaderError, match=f"fetching linux into {tmp_path}: "):
        fetch.fetch(package, tmp_path, quiet)


def test_a_package_that_is_there_is_left_alone_and_the_log_says_so(package, tools, tmp_path, caplog):
    (tmp_path / "linux").mkdir()
    (tmp_path / "linux" / STAMP).write_text("6.12\n")
    with caplog.at_level(logging.INFO, "ringup.tools.fetch"):
        assert fetch.fetch(package, tmp_path, quiet) == tmp_path / "linux"
    assert caplog.messages == [f"linux is in place already: {tmp_path / 'linux'}"]


def test_of_a_python_package_only_what_is_wanted_is_taken(monkeypatch, tmp_path):
    package = load().packages["bitsandbytes"]
    asked = []

    def pip(command, folder):
        asked.append(command)
        with zipfile.ZipFile(folder / "bitsandbytes-0.50.2-py3-none-any.whl", "w") as wheel:
            for name in names:
                wheel.writestr(name, name)
        return ""

    monkeypatch.setattr(fetch, "_try", pip)
    names = [
        "bitsandbytes/libbitsandbytes_rocm64.so",
        "bitsandbytes/__init__.py",
        "bitsandbytes/libbitsandbytes_cpu.so",
    ]
    found = fetch.fetch(package, tmp_path, quiet)
    assert [path.name for path in sorted(found.rglob("*")) if path.is_file()] == [STAMP, "libbitsandbytes_rocm64.so"]
    assert "bitsandbytes==0.50.2" in asked[0]
    fetch.fetch(package, tmp_path, quiet)
    assert len(asked) == 1
    (found / STAMP).write_text("0.50.1\n")  # another pin than today's
    fetch.fetch(package, tmp_path, quiet)
    assert (len(asked), (found / STAMP).read_text()) == (2, "0.50.2\n")
    names = names[1:]
    (found / STAMP).unlink()
    with pytest.raises(HeaderError, match=r"0.50.2-py3-none-any.whl holds no bitsandbytes/libbitsandbytes_rocm\*.so"):
        fetch.fetch(package, tmp_path, quiet)


def test_a_package_that_pip_does_not_give_is_one_error(tmp_path, monkeypatch):
    monkeypatch.setattr(fetch, "_try", lambda command, folder: "ERROR: No matching distribution")
    with pytest.raises(HeaderError, match=r"downloading bitsandbytes 0\.50\.2: ERROR: No matching distribution"):
        fetch.fetch(load().packages["bitsandbytes"], tmp_path, quiet)


def test_what_a_program_complains_of_may_be_any_bytes(tmp_path):
    said = fetch._try(["sh", "-c", r"printf 'E: \377 odd\n' >&2; exit 1"], tmp_path)
    assert said == "E: \ufffd odd"
