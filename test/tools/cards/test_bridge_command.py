"""`ringup bridge` on virtual enclosures: what it shows, what it refuses, and what an interrupted run leaves behind."""

import argparse
import io
import json
import logging
import os
import random
import signal

import pytest

from ringup.drivers.transport.linux.kernel import Kernel
from ringup.errors import DeviceLost, DeviceTimeout, FirmwareError
from ringup.firmware.asm2464pd import STOCK_BODY_BYTES, build
from ringup.silicon.asm2464pd import Enclosure, VirtualUsbHost
from ringup.tools.cards import bridge
from ringup.tools.command_line import cli
from ringup.tools.common.wrong_usage import WrongUsage

STOCK = "virtual:navi31@asm2464pd-stock"
SIZE = 0x40000


@pytest.fixture
def ask(capsys):
    """Run the command; return status, output and errors."""

    def run(*words):
        status = cli.main(["bridge", *words])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.fixture
def image(tmp_path):
    """A file with an image for boards of the generic line."""
    body = bytearray(random.Random(1).randbytes(STOCK_BODY_BYTES))
    body[0x200:0x206] = bytes.fromhex("231204850000")
    path = tmp_path / "new.bin"
    path.write_bytes(build(bytes(body)))
    return path


def test_info_says_what_runs_and_what_both_sets_hold(ask):
    status, out, _ = ask("info", STOCK)
    lines = out.splitlines()
    assert status == 0
    assert lines[0].startswith(f"{STOCK}: 174c:2464 ASMedia, ASM2464, ")
    assert lines[0].endswith("10 Gb/s")
    assert lines[1] == "  runs stock firmware (ASMedia), 240417_85_00_00"
    assert lines[2].startswith("  set 0: image 240417_85_00_00, calls itself 174c:2464 ")
    assert "set 1: configuration block 0 is blank" in lines[3]


def test_info_is_one_object_with_the_policies(ask):
    document = json.loads(ask("info", "virtual:navi31@asm2464pd-patched", "--json")[1])
    assert (document["firmware"], document["version"], document["ids"]) == ("patched", "240417_85_00_00", "add1:0001")
    assert document["sets"][0]["config"]["vid"] == 0xADD1
    assert "pcie_aspm" in document["sets"][0]["config"]["policy"]


def test_the_open_firmware_is_shown_and_its_flash_is_not(ask):
    status, out, _ = ask("info", "virtual:navi31@asm2464pd")
    assert status == 0
    assert "runs open firmware" in out
    assert "written by the program that this firmware comes with" in out
    status, _, err = ask("backup", "virtual:navi31@asm2464pd", "never.bin")
    assert (status, "it runs the open firmware" in err) == (11, True)


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (("info", "virtual:navi31"), 11, "is not behind a USB bridge"),
        (("info", "pci:0000:03:00.0"), 11, "is not behind a USB bridge"),
        (("info", "nonsense"), 10, "names no card"),
        (("backup", STOCK, "/"), 30, "/ is a folder; name a file in it"),
        (("verify", STOCK, "/no/such/file"), 30, "cannot be opened"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(ask, words, status, text):
    seen, out, err = ask(*words)
    assert (seen, out) == (status, "")
    assert text in err
    assert err.count("\n") == 1


def test_a_file_without_a_name_is_wrong_usage(ask, capsys):
    with pytest.raises(SystemExit) as end:
        ask("backup", STOCK, "")
    assert end.value.code == 2
    assert "the file name is empty" in capsys.readouterr().err


def test_a_backup_and_none_contradict_each_other(ask, image):
    status, out, err = ask("flash", STOCK, str(image), "--backup", "never.bin", "--no-backup")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "or --no-backup" in err


def test_a_copy_of_another_bridge_is_no_backup(ask, image, tmp_path):
    backup = tmp_path / "patched.bin"
    assert ask("backup", "virtual:navi31@asm2464pd-patched", str(backup))[0] == 0
    status, out, err = ask("flash", STOCK, str(backup), "--backup", str(backup))
    assert (status, "is the image itself" in err) == (11, True)
    status, out, err = ask("flash", STOCK, str(image), "--backup", str(backup))
    assert (status, "is no copy of what the flash holds now" in err) == (11, True)
    status, out, _ = ask("flash", STOCK, str(image), "--backup", str(backup), "--dry-run")
    assert (status, "problem: backup: " in out) == (1, True)


def test_a_copy_is_written_at_once_and_never_over_another(ask, tmp_path):
    file = tmp_path / "copy.bin"
    status, out, _ = ask("backup", STOCK, str(file))
    assert status == 0
    assert out.startswith(f"{file}: {SIZE} bytes, 2 of 2 sets\n")
    assert file.stat().st_size == SIZE
    assert list(tmp_path.iterdir()) == [file]
    assert ask("backup", STOCK, str(file))[0] == 30
    status, out, _ = ask("verify", STOCK, str(file))
    assert (status, "byte for byte" in out) == (0, True)


def test_a_difference_ends_in_its_own_status(ask, image):
    status, out, err = ask("verify", STOCK, str(image), "--json")
    assert status == 30
    assert json.loads(out)["same"] is False
    assert "part 0 differs in " in err


def test_a_dry_run_shows_the_plan_and_makes_no_file(ask, image, tmp_path):
    status, out, _ = ask("flash", STOCK, str(image), "--backup", str(tmp_path / "b.bin"), "--dry-run")
    assert status == 0
    *plan, head = out.splitlines()[:7]
    assert plan == [
        f"{STOCK} (174c:2464, runs 240417_85_00_00): new.bin, 231204_85_00_00",
        f"  copy of the flash: {tmp_path / 'b.bin'}",
        "  1. configuration block 0: 128 bytes at 0x00000",
        "  2. configuration block 1: 128 bytes at 0x00080",
        "  3. part 0 of the image: 65280 bytes at 0x00100",
        "  4. part 1 of the image: 32736 bytes at 0x10000",
    ]
    assert head == "  if writing does not finish:"
    assert [line[:7] for line in out.splitlines()[7:]] == [f"    {number}. " for number in range(1, 6)]
    assert f"the same command with {tmp_path / 'b.bin'} as the image" in out
    assert list(tmp_path.iterdir()) == [image]


def test_a_dry_run_with_objections_says_all_of_them(ask, image):
    data = bytearray(image.read_bytes()[4:-6])
    data[0x203] = 0x86
    image.write_bytes(build(bytes(data)))
    status, out, _ = ask("flash", STOCK, str(image), "--dry-run", "--json")
    assert status == 1
    assert [one["what"] for one in json.loads(out)["objections"]] == ["version", "backup"]
    status, _, err = ask("flash", STOCK, str(image))
    assert (status, "made for another maker's boards" in err) == (11, True)
    # The command had not started to write.
    assert "What to do" not in err


def test_flashing_writes_reads_back_and_says_what_comes_next(ask, image, tmp_path):
    status, out, _ = ask("flash", STOCK, str(image), "--backup", str(tmp_path / "b.bin"), "--yes")
    assert status == 0
    assert out.splitlines()[-2:] == [
        "done: 4 blocks written, all read back",
        f"switch the enclosure off and on, then `ringup bridge verify {STOCK} {image}`",
    ]


def test_a_damaged_image_is_refused_before_the_bridge_is_asked_anything(ask, image):
    image.write_bytes(image.read_bytes()[:-1])
    status, out, err = ask("flash", STOCK, str(image), "--backup", "never.bin")
    assert (status, out) == (30, "")
    assert "an image of 98016 bytes, the file has 98015" in err


@pytest.fixture
def bench(tmp_path):
    """A stock enclosure that persists from one command to the next. `bench(words)` runs one command."""
    root = tmp_path / "machine"
    (root / "run/lock").mkdir(parents=True)
    enclosure = Enclosure(None, "stock")
    host = VirtualUsbHost(enclosure.machine)
    host.plug(enclosure)
    host.clock.sleep_us(6_000_000)

    def run(*words):
        parser = argparse.ArgumentParser()
        bridge.add_parser(parser.add_subparsers())
        args = parser.parse_args(["bridge", *words])
        return bridge.run(args, {"backend": host, "clock": host.clock, "kernel": Kernel(root)})

    def replug():
        host.unplug()
        host.plug(enclosure)
        host.clock.sleep_us(6_000_000)

    run.enclosure, run.replug = enclosure, replug
    return run


@pytest.fixture
def interrupt():
    """`interrupt(text)` presses Ctrl-C when the step of that name begins."""
    log = logging.getLogger("ringup.tools.common.progress")

    class Key(logging.Handler):
        text = ""

        def emit(self, record):
            if self.text and record.getMessage() == self.text:
                os.kill(os.getpid(), signal.SIGINT)

    key = Key()
    log.addHandler(key)
    level = log.level
    log.setLevel(logging.INFO)
    yield lambda text: setattr(key, "text", text)
    log.removeHandler(key)
    log.setLevel(level)


class Terminal(io.StringIO):
    def isatty(self):
        return True


def flash_words(image, tmp_path):
    return "flash", "usb:1-1", str(image), "--backup", str(tmp_path / "b.bin")


@pytest.mark.parametrize(
    ("stdin", "more"),
    [
        (io.StringIO("yes\n"), ()),
        (None, ()),
        (Terminal("yes\n"), ("--json",)),
        (Terminal("no\n"), ()),
        (Terminal("y\n"), ()),
        (Terminal(""), ()),
    ],
)
def test_without_a_yes_nothing_is_written(bench, image, tmp_path, monkeypatch, stdin, more):
    before = bytes(bench.enclosure.flash.cells)
    monkeypatch.setattr("sys.stdin", stdin)
    with pytest.raises(WrongUsage, match="nothing was written to usb:1-1: "):
        bench(*flash_words(image, tmp_path), *more)
    assert bytes(bench.enclosure.flash.cells) == before
    assert list(tmp_path.glob("b.bin*")) == []


@pytest.mark.parametrize(("stdin", "more"), [(Terminal("Yes\n"), ()), (None, ("--yes",)), (None, ("--yes", "--json"))])
def test_after_a_yes_the_image_is_in_the_flash_and_the_way_back_was_told_first(
    bench, image, tmp_path, monkeypatch, capsys, stdin, more
):
    monkeypatch.setattr("sys.stdin", stdin)
    told = []
    write = bridge._write
    monkeypatch.setattr(bridge, "_write", lambda *rest: told.append(capsys.readouterr().out) or write(*rest))
    assert bench(*flash_words(image, tmp_path), *more) == 0
    blob = image.read_bytes()
    assert bench.enclosure.flash.cells[0x100 : 0x100 + len(blob)] == blob
    if "--json" in more:
        assert json.loads(capsys.readouterr().out)["recovery"][1].startswith("run the same command again")
    else:
        assert "if writing does not finish:\n    1. leave the enclosure on" in told[0]


@pytest.mark.parametrize(
    "text", ["reading part 0 of set 0", "writing configuration block 0", "writing part 0 of the image"]
)
def test_ctrl_c_ends_a_block_and_stops_and_the_same_command_goes_on(bench, interrupt, image, tmp_path, capsys, text):
    words = ("flash", "usb:1-1", str(image), "--backup", str(tmp_path / "b.bin"), "--yes")
    interrupt(text)
    assert bench(*words) == 130
    captured = capsys.readouterr()
    assert "run the same command again to continue" in captured.err
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    interrupt("")
    assert bench(*words) == 0
    assert "an earlier run did not finish" in capsys.readouterr().out
    blob = image.read_bytes()
    assert bench.enclosure.flash.cells[0x100 : 0x100 + len(blob)] == blob
    assert not bench.enclosure.violations


def test_the_rom_which_reads_nothing_writes_all_blocks_again(bench, image, tmp_path, capsys):
    words = ("flash", "usb:1-1", str(image), "--backup", str(tmp_path / "b.bin"), "--yes")
    bench.enclosure.faults.inject("flash_power_lost", 300)
    with pytest.raises((DeviceLost, DeviceTimeout)):
        bench(*words)
    bench.enclosure.faults.clear("flash_power_lost")
    bench.replug()
    capsys.readouterr()
    assert bench(*words) == 0
    assert "did not finish; all blocks are written, because the ROM cannot read them" in capsys.readouterr().out


def test_a_failure_half_way_says_what_to_do(bench, image, tmp_path, capsys):
    bench.enclosure.faults.inject("flash_bad_page", 0x4000)
    with pytest.raises(FirmwareError):
        bench("flash", "usb:1-1", str(image), "--backup", str(tmp_path / "b.bin"), "--yes")
    err = capsys.readouterr().err
    assert "its flash may be half written. What to do:" in err
    assert f"to go back to the old contents: the same command with {tmp_path / 'b.bin'} as the image" in err
