"""The bench of a card behind a USB bridge: that it runs alone, what the peer's side gives and its door counts. No clock
decides.
"""

import json
import shutil
from multiprocessing.connection import Client

import pytest

from ringup.errors import NotSupported, RingupError
from ringup.silicon import card
from ringup.silicon.amd.board import images
from ringup.silicon.amd.board.chips import CHIPS
from ringup.silicon.asm2464pd import Enclosure, VirtualUsbHost
from ringup.tools.bench.benches import usb
from ringup.tools.bench.environment import FOLDER, find_or_make
from ringup.tools.bench.usb_door import KEY, UsbDoor
from ringup.tools.command_line import cli
from ringup.tools.common.paths import cache_folder

KIB = 1 << 10
LTSSM, L0 = 0xB450, 0x78  # FW registers.h; docs/asm2464pd.md, "Link and power"


def plugged(**options):
    radeon = card("navi31", vram_bytes=1 << 30, enumerated=False)
    enclosure = Enclosure(radeon, **options)
    VirtualUsbHost().plug(enclosure)
    return enclosure


@pytest.fixture
def door():
    with UsbDoor(plugged().host) as made:
        yield made


@pytest.fixture
def ask(door):
    """`ask(name, …)` is what the peer's libusb asks; the device is open and its interface claimed."""
    host, port = door.address.split(":")
    with Client((host, int(port)), authkey=KEY) as line:

        def asked(name, *arguments):
            line.send((name, arguments))
            return line.recv()

        (row,) = asked("list")
        for step in (("open", row["address"]), ("configure", 1), ("claim", 0), ("alternate", 0, 0)):
            assert asked(*step) == (0, b"")
        yield asked


def test_alone_it_gives_counts_starts_copies_and_the_vendors_firmware(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("RINGUP_CACHE", str(tmp_path))  # no published firmware there
    html = tmp_path / "usb.html"
    assert cli.main(["bench", "usb", "--quick", "--no-peer", "--json", "--html", str(html)]) == 0
    rows = {row["name"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert all(row["ours"] > 0 and row["peer"] is None for row in rows.values())
    for what in ("cold boot", "first kernel", "warm kernel", "1 MiB in", "1 MiB out"):
        assert rows[f"{what}, waits"]["ours"] <= rows[f"{what}, transfers"]["ours"]
    assert rows["warm kernel, transfers"]["met"]
    shares = [row["ours"] for name, row in rows.items() if name.startswith("copy ")]
    assert len(shares) == 2 * 3 * 3  # ways, sizes, speeds
    assert max(shares) <= 100
    assert {name.partition(" firmware")[0] for name in rows if "firmware, opening" in name} == {"patched", "stock"}
    assert not any("published" in name for name in rows)
    assert html.read_text(encoding="utf-8").count("<svg") == 2


def test_a_card_that_is_not_behind_a_bridge_has_no_figure_and_the_reason_is_said(capsys, monkeypatch):
    words = ["--quick", "--no-peer", "--card", "pci:0000:03:00.0"]
    told = "measures cards behind a USB bridge, such as usb:2-1, and virtual ones; pci:0000:03:00.0 is none\n"
    assert cli.main(["bench", "usb", *words]) == NotSupported.exit_code
    assert capsys.readouterr() == ("", f"ringup bench: NotSupported: bench usb {told}")
    monkeypatch.setattr("ringup.tools.bench.benches.imports.measure", lambda bench: [])
    assert cli.main(["bench", "import", "usb", *words]) == 0
    assert f"no figure of usb: it {told}" in capsys.readouterr().err


def test_the_peers_side_boots_computes_and_copies_and_marks_each_piece(tmp_path):
    peer = find_or_make(cache_folder() / FOLDER)
    clang = next(filter(None, map(shutil.which, usb.CLANGS)), None)
    assert peer.python is not None, "the peer cannot be installed"
    assert clang is not None, "the peer needs clang"
    for name, data in images.build(CHIPS["navi31"]).items():
        (tmp_path / name).write_bytes(data)
    enclosure = plugged(spoils_full_windows=False)
    with UsbDoor(enclosure.host) as door:
        variables = {**usb.REMOTE, "CACHEDB": str(tmp_path / "cache"), "CC": clang}
        job = {
            "variables": variables,
            "address": door.address,
            "firmware": [str(tmp_path)],
            "warm": 1,
            "sizes": [64 * KIB],
        }
        answer = peer.call("bridge", job)
    assert answer == {"right": True, "same": True, "chip": "gfx1100"}
    assert list(door.costs) == ["cold boot", "first kernel", "warm kernel 0", f"in {64 * KIB}", f"out {64 * KIB}"]
    # on its own model of the bridge it makes 4,285 transfers to boot; here it waits longer for the secure OS, which it
    # asks all the time
    assert 4_000 < door.costs["cold boot"].transfers < 9_000
    assert not enclosure.violations
    assert not enclosure.card.violations


def test_every_call_that_stands_still_is_a_wait_and_transfers_side_by_side_are_one(door, ask):
    ask("mark", "")
    assert ask("control", 0xC0, 0xE4, LTSSM, 0, 1, 1_000) == (1, bytes([L0]))
    ask("mark", "one read")
    setup = bytes((0xC0, 0xE4)) + LTSSM.to_bytes(2, "little") + bytes(2) + (1).to_bytes(2, "little")
    for tag in (1, 2, 3):
        assert ask("submit", tag, 0, setup, 1, 1_000) == (0, b"")
    ask("sleep", 0.001)
    ended = [row for _ in range(3) for row in ask("events")]
    ask("mark", "three at once")
    assert (door.costs["one read"].transfers, door.costs["one read"].waits) == (1, 1)
    assert ended == [(tag, 0, 1, bytes([L0])) for tag in (1, 2, 3)]
    assert door.costs["three at once"].transfers == 3
    assert door.costs["three at once"].waits == 1
    assert door.costs["three at once"].time_us >= 1_000


def test_what_fails_on_the_bus_is_a_code_of_libusb(door, ask):
    assert ask("control", 0xC0, 0x99, 0, 0, 4, 10) == (
        -7,
        b"",
    )  # nothing answers an unknown request: LIBUSB_ERROR_TIMEOUT
    assert ask("alternate", 0, 7) == (-5, b"")  # LIBUSB_ERROR_NOT_FOUND


def test_a_door_that_broke_is_told_and_one_that_nobody_came_to_closes():
    UsbDoor(plugged().host).close()
    door = UsbDoor(plugged().host)
    host, port = door.address.split(":")
    with Client((host, int(port)), authkey=KEY) as line:
        line.send(("no such call", ()))
        with pytest.raises(EOFError):
            line.recv()
    with pytest.raises(RingupError, match="the server of the virtual host broke"):
        door.close()
