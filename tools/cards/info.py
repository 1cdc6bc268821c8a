"""`ringup info`: what a card is and its state. It is woken if it sleeps; nothing is started."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from typing import Any

from ringup.drivers.amd.lifecycle.inspect import Bare
from ringup.drivers.amd.lifecycle.shutdown import doubts
from ringup.drivers.amd.psp.firmware import check_named
from ringup.drivers.device_store import DeviceStore
from ringup.drivers.left import LeftCard
from ringup.drivers.nv.channels.facts import row_of_chip
from ringup.drivers.nv.left import NOT_UP, LeftNvidia
from ringup.drivers.nv.memory.window import bar_of
from ringup.drivers.transport import bars
from ringup.drivers.transport.seam import Device
from ringup.errors import FirmwareError, NotSupported
from ringup.firmware.amd.needs import Need, needs
from ringup.firmware.nv import needs as nvidia_needs
from ringup.firmware.store import Store
from ringup.tools.cards import nvidia
from ringup.tools.cards.attach import attached
from ringup.tools.command_line.card_argument import add_card_arguments, card_name
from ringup.tools.common.json_text import json_text
from ringup.tools.common.usb_side import bridge_of

MIB = 20  # bits


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "info",
        help="show what a card is and its state, without starting it",
        description="Show what a card is: ids, link, memory, blocks, firmware files, and its state. It "
        "is woken if it sleeps; "
        "nothing is started. A card that another process drives is only read. Of a card that stays with NVIDIA's "
        "driver: what that driver tells.",
    )
    add_card_arguments(parser, firmware=True)


def run(args: argparse.Namespace) -> int:
    name = card_name(args)
    if nvidia.through_driver(name):
        with nvidia.look(name) as watch:
            shown = nvidia.describe(watch)
        lines = nvidia.info_lines(shown)
    else:
        with attached(name) as found:
            shown = describe(found.card, found.holder, Store(explicit=args.firmware))
        lines = _lines(shown)
    print(json_text(shown) if args.json else "\n".join(lines))
    return 0


def describe(card: LeftCard, holder: str, store: Store) -> dict[str, Any]:
    """Return what is known as plain values; `unknown` lists what could not be read."""
    vendor, device, revision, subvendor, subdevice = card.pci_ids
    now, able = card.links
    sizes = {number: bar.size_bytes for number, bar in card.device.bars.items()}
    shown: dict[str, Any] = {
        "name": card.device.name,
        "chip": None,
        "target": None,
        "state": "",
        "holder": holder,
        "found_asleep": card.found_asleep,
        "pci_id": f"{vendor:04x}:{device:04x}",
        "revision": f"{revision:02x}",
        "subsystem": f"{subvendor:04x}:{subdevice:04x}",
        "link": now._asdict(),
        "link_at_best": able._asdict(),
        "vram_bytes": None,
        "window_bytes": None,
        "bars": {str(number): size for number, size in sizes.items()},
        "resets": list(card.offered()) if not holder else [],
        "bridge": bridge_of(card.device),
        "blocks": {},
        "core": None,
        "firmware": [],
        "doubts": [],
        "unknown": [],
    }
    if wrong := bars.trouble(vendor, sizes):
        shown["unknown"].append(f"whether it can run: {wrong}; {bars.REMEDY}")
    try:
        if isinstance(card, Bare):
            _take_radeon(card, store, shown)
        elif isinstance(card, LeftNvidia):
            _take_nvidia(card, store, shown)
    except (NotSupported, FirmwareError) as error:
        shown["unknown"].append(str(error))
    return shown


def _take_radeon(bare: Bare, store: Store, shown: dict[str, Any]) -> None:
    shown |= {"vram_bytes": bare.window.size_bytes, "window_bytes": bare.window.visible_bytes}
    _, device, revision, _, _ = bare.pci_ids
    gc, mp0, mp1, sdma = (bare.ips.version(name) for name in ("gc", "mp0", "mp1", "sdma0"))
    wanted = needs(gc, mp0, mp1, sdma, device, revision)
    shown |= {"state": bare.state(), "blocks": bare.versions(), "firmware": _firmware(bare.device, store, wanted)}
    shown["doubts"] += doubts(bare)
    chip, shape = bare.ips.chip, bare.ips.shape
    shown |= {
        "chip": chip.name,
        "target": chip.target,
        # of one die; there are `dies` of them
        "core": {
            "dies": len(bare.ips.cores),
            "shader_engines": shape.shader_engines,
            "compute_units_by_design": shape.shader_engines * shape.arrays_per_engine * shape.cus_per_array,
            "wave_size": shape.wave_size,
            "lds_bytes": shape.lds_bytes_per_cu,
            "l2_bytes": shape.l2_bytes,
            "copy_engines": len(bare.ips.sdma_versions),
        },
    }
    check_named(store, wanted)


def _take_nvidia(card: LeftNvidia, store: Store, shown: dict[str, Any]) -> None:
    chip = card.registers.chip
    shown |= {"chip": chip.name, "target": row_of_chip(chip).target, "state": card.state()}
    shown["unknown"].append(NOT_UP)
    # the newest release of which all files are there, else the one whose missing files are named
    releases = nvidia_needs.chip(chip.name).boot.releases
    rows = [_firmware(card.device, store, nvidia_needs.needs(chip.name, release)) for release in releases]
    shown["firmware"] = next((one for one in rows if all(row["path"] for row in one)), rows[0])
    shown |= {"vram_bytes": card.vram_bytes, "window_bytes": bar_of(card.device).size_bytes}


def _firmware(device: Device, store: Store, wanted: Iterable[Need | nvidia_needs.Need]) -> list[dict[str, Any]]:
    """Return for every file that the card needs whether it is installed, and where."""
    files, rows = DeviceStore(device, store), []
    for need in wanted:
        found = files.find_any(*need.names)
        rows.append(
            {
                "kind": need.kind,
                "name": found.name if found else need.name,
                "optional": getattr(need, "optional", False),
                "path": str(found.path) if found else None,
            }
        )
    return rows


def _lines(shown: dict[str, Any]) -> Iterator[str]:
    now, able = shown["link"], shown["link_at_best"]
    held = f" ({shown['holder']})" if shown["holder"] else ""
    yield f"{shown['name']}: {shown['chip'] or 'an unknown chip'}" + (f", {shown['target']}" if shown["target"] else "")
    yield f"  state     {shown['state'] or 'not known'}{held}" + (", asleep" if shown["found_asleep"] else "")
    yield f"  PCI       {shown['pci_id']} revision {shown['revision']}, subsystem {shown['subsystem']}"
    if bridge := shown["bridge"]:
        firmware = f"{bridge['firmware']} firmware {bridge['version']}"
        yield f"  bridge    {bridge['ids']} {bridge['product']!r}, {firmware}, {bridge['speed_mbps']} Mb/s"
        yield f"  slot      link {bridge['link']}"
    best = f"{able['generation']} x{able['lanes']}"
    yield f"  link      generation {now['generation']} x{now['lanes']}, at best {best}"
    if shown["vram_bytes"] is not None:
        window = min(shown["window_bytes"], shown["vram_bytes"])
        yield f"  memory    {shown['vram_bytes'] >> MIB} MiB, {window >> MIB} MiB of it in the window"
    sizes = (f"{number}: {size >> 10} KiB" for number, size in shown["bars"].items())
    yield f"  BARs      {', '.join(sizes)}"
    if shown["core"]:
        core = shown["core"]
        dies = f"{core['dies']} dies, each of " if core["dies"] > 1 else ""
        yield (
            f"  core      {dies}{core['shader_engines']} shader engines, "
            f"{core['compute_units_by_design']} compute units by design, "
            f"waves of {core['wave_size']}, {core['lds_bytes'] >> 10} KiB of LDS; {core['copy_engines']} copy engines"
        )
    if shown["blocks"]:
        yield f"  blocks    {', '.join(f'{name} {version}' for name, version in shown['blocks'].items())}"
    if shown["resets"]:
        yield f"  resets    {', '.join(shown['resets'])}"
    for row in shown["firmware"]:
        where = row["path"] or (
            "missing, optional" if row["optional"] else "missing: `ringup firmware check` shows more"
        )
        yield f"  firmware  {row['kind']:8} {row['name']:32} {where}"
    for text in shown["doubts"]:
        yield f"  uncertain {text}"
    for text in shown["unknown"]:
        yield f"  not known: {text}"
