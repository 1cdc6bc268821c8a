"""The bench of a card behind a USB bridge: it runs alone, and the competitor's side gives its figures. These tests
check no measured time.
"""

import json

from ringup.errors import NotSupported
from ringup.silicon import card
from ringup.silicon.asm2464pd import Enclosure, VirtualUsbHost
from ringup.tools.bench.benches import usb
from ringup.tools.command_line import cli
from ringup.tools.competitor.usb_door import UsbDoor

KIB = 1 << 10


def plugged(**options):
    radeon = card("navi31", vram_bytes=1 << 30, enumerated=False)
    enclosure = Enclosure(radeon, **options)
    VirtualUsbHost().plug(enclosure)
    return enclosure


def test_alone_it_gives_counts_starts_copies_and_the_vendors_firmware(capsys, tmp_path, monkeypatch):
    # This cache holds no published firmware.
    monkeypatch.setenv("RINGUP_CACHE", str(tmp_path))
    html = tmp_path / "usb.html"
    assert cli.main(["bench", "usb", "--quick", "--no-peer", "--json", "--html", str(html)]) == 0
    rows = {row["name"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert all(row["ours"] > 0 and row["peer"] is None for row in rows.values())
    for what in ("cold boot", "first kernel", "warm kernel", "1 MiB in", "1 MiB out"):
        assert rows[f"{what}, waits"]["ours"] <= rows[f"{what}, transfers"]["ours"]
    assert rows["warm kernel, transfers"]["met"]
    shares = [row["ours"] for name, row in rows.items() if name.startswith("copy ")]
    # Ways times sizes times speeds.
    assert len(shares) == 2 * 3 * 3
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


def test_the_peers_side_boots_computes_and_copies_and_marks_each_piece(competitor, clang, made_firmware, tmp_path):
    enclosure = plugged(spoils_full_windows=False)
    with UsbDoor(enclosure.host) as door:
        variables = {**usb.REMOTE, "CACHEDB": str(tmp_path / "cache"), "CC": clang}
        job = {
            "variables": variables,
            "address": door.address,
            "firmware": [str(made_firmware)],
            "warm": 1,
            "sizes": [64 * KIB],
        }
        answer = competitor.call("bridge", job)
    assert answer == {"right": True, "same": True, "chip": "gfx1100"}
    assert list(door.costs) == ["cold boot", "first kernel", "warm kernel 0", f"in {64 * KIB}", f"out {64 * KIB}"]
    # On its own model of the bridge the competitor makes 4,285 transfers to boot. Here it waits longer for the secure
    # OS, and it polls all the time.
    assert 4_000 < door.costs["cold boot"].transfers < 9_000
    assert not enclosure.violations
    assert not enclosure.card.violations
