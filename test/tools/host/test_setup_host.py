"""`ringup setup` on a system that lies in a folder: it shows its plan, writes once, keeps existing files and undoes
everything.
"""

import argparse
import json
import os
import re

import pytest

from ringup.errors import PermissionNeeded
from ringup.tools.common.wrong_usage import WrongUsage
from ringup.tools.host import host_rules, setup_host

RULES, MODULES = "etc/udev/rules.d/70-ringup.rules", "etc/modprobe.d/ringup.conf"


@pytest.fixture
def system(tmp_path):
    """A Debian system with the user `ada` and no file of ringup's."""
    for name, text in {
        "etc/group": "root:x:0:\nplugdev:x:46:\nrender:x:105:bert\nvideo:x:44:\n",
        "etc/passwd": "root:x:0:0:root:/root:/bin/sh\nada:x:1000:1000::/home/ada:/bin/sh\nbert:x:1001:1001::/:/bin/sh\n",
        "etc/modprobe.d/other.conf": "options a b=c\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.fixture
def setup(system, capsys):
    """`setup(*words)` runs the command on that system. It returns status, output and the programs that were run."""

    def run(*words):
        parser = argparse.ArgumentParser()
        setup_host.add_parser(parser.add_subparsers())
        done = []
        status = setup_host.run(parser.parse_args(["setup", "--root", str(system), *words]), done.append)
        return status, capsys.readouterr().out, [list(command) for command in done]

    return run


def files(system):
    return {str(path.relative_to(system)): path.read_text() for path in system.rglob("*") if path.is_file()}


def test_showing_changes_nothing_and_shows_the_whole_rule(system, setup):
    before = files(system)
    status, out, done = setup()
    assert (status, done, files(system)) == (0, [], before)
    # docs/asm2464pd.md, "Identity"
    for ids in (
        "174c.*2463",
        "174c.*2464",
        "1e91.*de79",
        "add1.*0001",
        "3801.*0001",
        "add1.*b007",
    ):
        assert re.search(f'ATTR{{idVendor}}=="{ids.replace(".*", chr(34) + ", ATTR{idProduct}==" + chr(34))}"', out)
    assert out.rstrip().endswith(
        "nothing was changed: `sudo ringup setup --apply` writes it, `--undo` restores the earlier files"
    )


def test_applied_twice_is_applied_once(system, setup):
    assert setup("--apply", "--user", "ada")[2] == [
        ["usermod", "-aG", "plugdev", "ada"],
        ["usermod", "-aG", "render", "ada"],
        *map(list, setup_host.RELOAD),
    ]
    # usermod did this.
    (system / "etc/group").write_text("plugdev:x:46:ada\nrender:x:105:bert,ada\n")
    written = files(system)
    status, out, done = setup("--apply", "--user", "ada")
    assert (status, done, files(system)) == (0, [], written)
    assert "there is nothing to do" in out


def test_a_device_that_the_rule_was_not_applied_to_wants_its_cable_pulled(system, setup):
    folder = system / "sys/bus/usb/devices/2-1"
    values = {
        "idVendor": "add1",
        "idProduct": "0001",
        "speed": "10000",
        "busnum": "2",
        "devnum": "4",
        "power/control": "on",
    }
    for name, text in values.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text + "\n")
    setup("--user", "ada", "--apply")
    node = system / "dev/bus/usb/002/004"
    told = "usb:2-1 permission: the rule is installed and was not applied: pull the cable and plug it in again"
    (system / "etc/group").write_text("plugdev:x:46:ada\nrender:x:105:ada\n")
    assert setup("--user", "ada")[1].splitlines()[-2:] == ["nothing to write", told]
    assert json.loads(setup("--user", "ada", "--json")[1])["hints"][-1] == told
    node.parent.mkdir(parents=True)
    node.touch()
    assert setup("--user", "ada")[1].splitlines()[-1] == "there is nothing to do"


def test_undo_puts_back_what_was_there(system, setup):
    (system / MODULES).write_text("options mine yes=1\n")
    before = files(system)
    setup("--apply", "--user", "ada")
    assert files(system)[MODULES].startswith("# Written by")
    out, done = setup("--undo")[1:]
    assert files(system) == before
    assert f"/{RULES}: removed\n/{MODULES}: restored" in out
    assert ["gpasswd", "-d", "ada", "plugdev"] in done
    assert setup("--undo")[1] == "there was nothing of ringup to undo\n"


def test_undo_goes_back_to_before_the_first_time(system, setup):
    (system / MODULES).write_text("options mine yes=1\n")
    setup("--apply")
    (system / MODULES).write_text("changed by hand\n")
    setup("--apply")
    setup("--undo")
    assert (system / MODULES).read_text() == "options mine yes=1\n"


def test_what_differs_is_shown_as_a_difference(system, setup):
    setup("--apply")
    (system / RULES).write_text((system / RULES).read_text() + "# mine\n")
    rows = {row["path"]: row for row in json.loads(setup("--json")[1])["files"]}
    assert rows[f"/{RULES}"]["state"] == "differs"
    assert "-# mine" in rows[f"/{RULES}"]["diff"]
    assert rows[f"/{MODULES}"]["state"] == "same"


def test_a_part_alone_has_its_files_alone(system, setup):
    setup("--apply", "--only", "usb")
    assert (system / RULES).exists()
    assert "vfio" not in (system / RULES).read_text()
    assert not (system / "etc/modules-load.d/ringup.conf").exists()


def test_groups_that_a_system_lacks_are_not_named(system, setup):
    (system / "etc/group").write_text("root:x:0:\n")
    setup("--apply")
    text = (system / RULES).read_text()
    assert "GROUP=" not in text
    assert 'TAG+="uaccess"' in text
    assert not (system / "etc/security").exists()


def test_only_firmware_that_is_no_drive_is_kept_from_the_storage_driver():
    text = next(file.text for file in host_rules.files(("usb",), ()) if file.path == MODULES)
    assert text.splitlines()[1:] == ["options usb-storage quirks=add1:0001:i"]


def test_rules_come_before_seats_are_given():
    # 73-seat-late.rules acts on the tag.
    assert int(RULES.rpartition("/")[2][:2]) < 73


def test_nobody_but_root_writes_below_etc(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    parser = argparse.ArgumentParser()
    setup_host.add_parser(parser.add_subparsers())
    for word in ("--apply", "--undo"):
        with pytest.raises(PermissionNeeded, match="sudo ringup setup --apply"):
            setup_host.run(parser.parse_args(["setup", word]), lambda command: pytest.fail(f"{command} was run"))


def test_a_user_that_is_not_there_is_named(setup):
    with pytest.raises(WrongUsage, match="there is no user eve"):
        setup("--user", "eve")


def test_members_need_no_membership(setup):
    assert "usermod -aG render bert" not in setup("--user", "bert")[1]
    assert "usermod -aG plugdev bert" in setup("--user", "bert")[1]


def test_macos_has_no_rules_to_write(monkeypatch, setup):
    monkeypatch.setattr("platform.system", lambda: "Darwin")
    status, out, done = setup("--apply")
    assert (status, done) == (0, [])
    assert "macOS needs no rule" in out


@pytest.mark.parametrize("action", [[], ["--apply"], ["--undo"]])
def test_a_root_that_is_no_folder_is_wrong_usage_and_is_not_made(system, setup, action):
    for path in ("", "/nope", str(system / "etc/passwd"), str(system / "absent")):
        with pytest.raises(WrongUsage, match=f"--root '{path}' is not an existing folder"):
            setup("--root", path, *action)
    assert not (system / "absent").exists()
