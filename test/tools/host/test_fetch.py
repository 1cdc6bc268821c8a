"""Fetching header packages: each problem with the cache folder is one error. These tests do not use the network."""

import logging
import zipfile

import pytest

from ringup.autogen.generate.manifest import load
from ringup.autogen.generate.sources import STAMP
from ringup.errors import HeaderError
from ringup.tools.command_line import cli
from ringup.tools.host import fetch


@pytest.fixture
def package():
    return load().packages["linux"]


@pytest.fixture
def tools(monkeypatch):
    """All programs that a fetch needs seem to be installed. None of them runs."""
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
    with caplog.at_level(logging.INFO, "ringup.tools.host.fetch"):
        assert fetch.fetch(package, tmp_path, quiet) == tmp_path / "linux"
    assert caplog.messages == [f"linux is in place already: {tmp_path / 'linux'}"]


def test_a_program_in_a_python_package_can_be_run_when_it_has_been_taken(monkeypatch, tmp_path):
    package = load().packages["nvdisasm"]

    def pip(_, folder):
        with zipfile.ZipFile(folder / "nvidia_cuda_nvdisasm-13.5.37-py3-none-any.whl", "w") as wheel:
            program = zipfile.ZipInfo("nvidia/cu13/bin/nvdisasm")
            program.external_attr = 0o755 << 16
            wheel.writestr(program, "#!/bin/sh")
        return ""

    monkeypatch.setattr(fetch, "_try", pip)
    program = fetch.fetch(package, tmp_path, quiet) / "nvidia/cu13/bin/nvdisasm"
    assert program.stat().st_mode & 0o777 == 0o755


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
    # The pin differs from the current one.
    (found / STAMP).write_text("0.50.1\n")
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


@pytest.fixture
def llvm():
    return load().packages["llvm-22"]


@pytest.fixture
def unpacked(llvm, tmp_path):
    """`unpacked(lines, status)` makes a root folder. Its loader lists the libraries in `lines`, and its programs exit
    with `status`.
    """

    def make(lines="", status=0, names=llvm.programs):
        for path in [*(f"{llvm.folder}/{name}" for name in names), "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"]:
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(
                f'#!/bin/sh\n[ "$3" = --list ] && echo "{lines}" && exit 0\necho "no start" >&2\nexit {status}\n'
            )
            (tmp_path / path).chmod(0o755)
        return tmp_path

    return make


def test_a_program_that_was_fetched_has_to_run(llvm, unpacked):
    assert fetch._broken_program(llvm, unpacked()) == ""
    assert fetch._broken_program(llvm, unpacked(status=127)) == "llvm-mc does not run: no start"


def test_a_program_of_the_package_that_is_missing_is_named(llvm, unpacked):
    assert fetch._broken_program(llvm, unpacked(names=["llvm-mc"])) == "there is no usr/lib/llvm-22/bin/llvm-objdump"


def test_a_library_of_the_computer_or_of_nobody_is_no_part_of_the_package(llvm, unpacked):
    own = "libc.so.6 => $(dirname $0)/../x86_64-linux-gnu/libc.so.6 (0x0)"
    assert fetch._broken_program(llvm, unpacked(own)) == ""
    host = "libcurl.so.4 => /lib/x86_64-linux-gnu/libcurl.so.4 (0x0)"
    said = "llvm-mc needs libcurl.so.4, which the packages do not contain"
    assert fetch._broken_program(llvm, unpacked(host)) == said
    assert fetch._broken_program(llvm, unpacked("libcurl.so.4 => not found")) == said


def test_a_root_with_a_broken_program_is_fetched_again_and_never_kept(llvm, tools, monkeypatch, tmp_path):
    (tmp_path / "llvm-22").mkdir()
    (tmp_path / "llvm-22" / STAMP).write_text("1:22\n")
    said = []
    monkeypatch.setattr(fetch, "_download_and_unpack", lambda package, work, out, say: "1:22.2")
    with pytest.raises(HeaderError, match=r"llvm-22: there is no usr/lib/llvm-22/bin/llvm-mc; it was not put into"):
        fetch.fetch(llvm, tmp_path, said.append)
    assert said[0] == "llvm-22: fetching it again: there is no usr/lib/llvm-22/bin/llvm-mc"


def test_all_that_a_package_depends_on_comes_with_it(llvm, monkeypatch, tmp_path):
    listed = (
        "'http://mirror/a' llvm-22_1%3a22.1_amd64.deb 19 SHA256:0\n'http://mirror/b' libcurl4t64_8.14_amd64.deb 3 \n"
    )
    asked = []

    def output(command, folder):
        asked.append(command)
        return listed, ""

    monkeypatch.setattr(fetch, "_output", output)
    assert fetch._closure(llvm, [], tmp_path) == ["libcurl4t64", "llvm-22"]
    assert (tmp_path / "status").read_bytes() == b""
    assert f"Dir::State::status={tmp_path / 'status'}" in asked[0]


def test_the_fetched_programs_need_nothing_of_this_computer(llvm, headers):
    assert fetch._broken_program(llvm, headers("llvm-22")) == ""


OTHERS = """Types: deb
URIs: https://vendor.example/debian
Suites: bookworm
Components: stable
"""
OURS = """# made by an installer
Types: deb
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /keys

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
"""


@pytest.mark.parametrize(
    ("name", "text", "keys"),
    [
        ("sources.list.d/debian.sources", OURS, "/keys"),
        ("sources.list.d/0000debian.sources", OURS, "/keys"),
        (
            "sources.list.d/any.list",
            "deb [signed-by=/keys] http://mirror.example/debian bookworm main contrib\n"
            "deb http://mirror.example/debian-security bookworm-security main\n",
            "/keys",
        ),
        (
            "sources.list",
            "deb http://mirror.example/debian stable main\ndeb http://mirror.example/debian-security stable-security main\n",
            "",
        ),
    ],
)
def test_the_debian_archive_is_found_in_whatever_file_names_it(name, text, keys, monkeypatch, tmp_path):
    monkeypatch.setattr(fetch, "APT", tmp_path)
    monkeypatch.setattr(fetch, "OS_RELEASE", tmp_path / "os-release")
    (tmp_path / "os-release").write_text("ID=debian\nVERSION_CODENAME=bookworm\n")
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d" / "00vendor.sources").write_text(OTHERS)
    (tmp_path / "sources.list.d" / "cloud.list").write_text("deb https://vendor.example/apt cloud-sdk-bookworm main\n")
    (tmp_path / name).write_text(text)
    assert list(fetch._archives()) == [
        ("http://mirror.example/debian", keys, False),
        ("http://mirror.example/debian-security", "", True),
    ]


def test_without_a_debian_archive_the_files_that_may_name_one_are_reported(monkeypatch, tmp_path):
    monkeypatch.setattr(fetch, "APT", tmp_path)
    with pytest.raises(HeaderError, match=f"no Debian archive is named in {tmp_path}/sources.list or the files of "):
        list(fetch._stanzas(["trixie"]))


def test_of_a_package_without_a_tar_the_wanted_files_are_taken(tmp_path):
    raw, out = tmp_path / "raw", tmp_path / "out"
    (raw / "usr/include/hsa").mkdir(parents=True)
    (raw / "usr/include/hsa/hsa.h").write_text("wanted")
    (raw / "usr/include/other.h").write_text("not wanted")
    (raw / "usr/include/hsa/link.h").symlink_to(raw / "usr/include/other.h")
    fetch._copy(raw, out, ("usr/include/hsa/*",))
    assert [path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()] == ["usr/include/hsa/hsa.h"]
    assert (out / "usr/include/hsa/hsa.h").read_text() == "wanted"
    with pytest.raises(HeaderError, match=r"the package holds no usr/lib/\*"):
        fetch._copy(raw, out, ("usr/lib/*",))
