"""`ringup serve`: serve virtual devices to the kernel of this machine or of a virtual machine, which sees them as
hardware.
"""

from __future__ import annotations

import argparse
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ringup.cards import Via
from ringup.errors import NotSupported
from ringup.silicon import nvidia_cards, nvidia_firmware, transport
from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.pci.slot import SlotCard
from ringup.silicon.serve.usb_loopback import LoopbackHost
from ringup.silicon.serve.usbip import LOOPBACK, PORT, UsbipServer
from ringup.silicon.serve.usbip_vhci import Vhci
from ringup.silicon.serve.usbip_wire import Record
from ringup.silicon.serve.vfio_user import VfioUserServer
from ringup.silicon.shader.host.beside import Beside
from ringup.tools.cards import access_log
from ringup.tools.common import files
from ringup.tools.common.json_text import json_text
from ringup.tools.common.numbers import size, whole
from ringup.tools.common.wrong_usage import WrongUsage

VIRTUAL, TEST_DEVICE = "virtual:", "virtual:usb-loopback"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "serve",
        help="serve virtual devices to a kernel, here or in a virtual machine",
        description="Serve virtual devices to a kernel, which sees them as connected hardware. Ends with ctrl-C.",
    )
    kinds = parser.add_subparsers(dest="kind", metavar="PROTOCOL", required=True)
    usbip = kinds.add_parser(
        "usbip",
        help="USB devices, over USB/IP",
        description="Serve virtual enclosures over USB/IP, which Linux's vhci-hcd attaches. Clients are "
        "not authenticated: "
        "only connections from this machine are accepted, unless --address says otherwise.",
    )
    usbip.add_argument(
        "device",
        nargs="+",
        help=f"a card in a virtual enclosure, virtual:navi31@asm2464pd, or {TEST_DEVICE}, a simple "
        "device to test a path with",
    )
    usbip.add_argument("--port", type=_port, metavar="N", help=f"TCP port (default {PORT}; 0: any that is free)")
    usbip.add_argument("--address", default=LOOPBACK, help=f"address to listen on (default {LOOPBACK})")
    usbip.add_argument("--unix", metavar="PATH", help="listen on this socket, instead of or in addition to a port")
    usbip.add_argument(
        "--attach", action="store_true", help="plug them into this machine's own kernel at once (as root)"
    )
    usbip.add_argument("--json", action="store_true", help="print one object when all is ready")
    _add_vfio_user(kinds)


def run(args: argparse.Namespace) -> int:
    return {"usbip": _run_usbip, "vfio-user": _run_vfio_user}[args.kind](args)


def _run_usbip(args: argparse.Namespace) -> int:
    with UsbipServer([_host(name) for name in args.device]) as server:
        records = server.records
        where: dict[str, Any] = {}
        if args.port is not None or (args.unix is None and not args.attach):
            where["address"] = args.address
            where["port"] = server.listen(PORT if args.port is None else args.port, args.address)
        if args.unix is not None:
            server.listen_unix(args.unix)
            where["unix"] = args.unix
        vhci = Vhci() if args.attach else None
        ports = [_plug_in(server, vhci, record) for record in records] if vhci else []
        try:
            with ended_by_signals(server):
                if args.json:
                    rows = [{"name": name, "busid": one.bus_id} for name, one in zip(args.device, records, strict=True)]
                    print(json_text({"devices": rows, **where, "vhci_ports": ports}), flush=True)
                else:
                    print("\n".join(_lines(args.device, records, where, ports)), flush=True)
                server.run()
        finally:
            for port in ports:
                Vhci().detach(port)
    return 0


def _add_vfio_user(kinds: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = kinds.add_parser(
        "vfio-user",
        help="PCI devices, over vfio-user",
        description="Serve virtual cards over vfio-user, which QEMU (10.1 and later) attaches to a "
        "virtual machine: the "
        "guest's own driver "
        "finds the card on its PCI bus. Each card has its own socket, which only you may connect to.",
    )
    parser.add_argument(
        "pair",
        nargs="+",
        metavar="SOCKET CARD",
        help="a path for the socket and a card, such as virtual:navi31; more pairs serve more cards",
    )
    parser.add_argument("--vram", type=size, metavar="SIZE", help="video memory of each card (default: the chip's)")
    parser.add_argument(
        "--bar0",
        type=size,
        default=256 << 20,
        metavar="SIZE",
        help="how much of it the CPU sees; QEMU does not resize BARs, so give the full size to a driver that needs it "
        "(default 256M)",
    )
    parser.add_argument(
        "--log",
        type=Path,
        metavar="FILE",
        help="write the events of the cards as text, including every register access",
    )
    parser.add_argument(
        "--firmware",
        type=Path,
        metavar="FOLDER",
        help="write the made-up firmware that Linux's nouveau loads for NVIDIA cards; the guest needs it in /lib/firmware",
    )
    parser.add_argument(
        "--slow-clock",
        metavar="QMP-SOCKET",
        help="while a card translates or computes for long, stop the virtual machine for spells by this QMP socket of "
        "QEMU's, so that drivers do not give up; it then runs for a thirtieth or a sixth of the time",
    )
    parser.add_argument("--json", action="store_true", help="print one object when all is ready")


def _run_vfio_user(args: argparse.Namespace) -> int:
    paths, names = args.pair[::2], args.pair[1::2]
    if len(paths) != len(names):
        raise WrongUsage(
            f"serving {' '.join(args.pair)}: sockets and cards alternate; add "
            f"{'a card' if len(paths) > len(names) else 'a socket'}"
        )
    if len(set(paths)) < len(paths):
        raise WrongUsage("serving two cards at one socket: name a socket for each")
    clock = VirtualClock()
    files.check_outputs(args.log)
    if args.firmware is not None:
        _write_firmware(args.firmware, names)
    with access_log.writing(args.log) as log, Beside() as beside, VfioUserServer(clock, beside) as server:
        for path, name in zip(paths, names, strict=True):
            options: dict[str, Any] = {"vram_bytes": args.vram, "clock": clock, "beside": beside}
            # these have no window of a size to choose, and nothing to bear
            if name.removeprefix(VIRTUAL) not in nvidia_cards():
                options |= {"bar0_bytes": args.bar0, "for_other_drivers": True}
            card = _slot_card(name, **options)
            try:
                server.serve(path, card)
            except BaseException:
                card.close()
                raise
            if log is not None:
                log.follow(card)
        if args.slow_clock is not None:
            server.slow(args.slow_clock)
        with ended_by_signals(server):
            if args.json:
                rows = [{"name": name, "socket": path} for path, name in zip(paths, names, strict=True)]
                print(json_text({"devices": rows}), flush=True)
            else:
                for path, name in zip(paths, names, strict=True):
                    print(f"{name} at {path}")
                print("attach with these options of QEMU; guest memory must be shared:")
                print("  -object memory-backend-memfd,id=ram,size=2G,share=on -machine q35,memory-backend=ram -m 2G")
                for path in paths:
                    print(f"""  -device '{{"driver":"vfio-user-pci","socket":{{"type":"unix","path":"{path}"}}}}'""")
                print("ctrl-C ends it", flush=True)
            server.run()
    return 0


def _write_firmware(folder: Path, names: Sequence[str]) -> None:
    """Write the firmware of NVIDIA's cards; others take the distribution's."""
    chips = {name.removeprefix(VIRTUAL) for name in names} & set(nvidia_cards())
    if not chips:
        raise WrongUsage(f"--firmware: there is none to be written for {' '.join(names)}; distributions have it")
    for chip in sorted(chips):
        for name, content in nvidia_firmware(chip).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            files.write(path, content)


def _slot_card(name: str, **options: Any) -> SlotCard:
    """Return a new card in a slot. Raises `NotSupported` for anything else."""
    rest = name.removeprefix(VIRTUAL)
    if rest == name or "@" in rest:
        raise NotSupported(f"{name} is not a virtual card in a slot; use virtual:navi31")
    try:
        card = transport.open(rest, **options)
    except ValueError as error:
        raise WrongUsage(f"making {name}: {error}") from error
    assert not isinstance(card, Via)
    return card


@contextmanager
def ended_by_signals(server: UsbipServer | VfioUserServer) -> Iterator[None]:
    """Let ctrl-C and SIGTERM stop a server when its card has finished a step; a second signal does not wait."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def stop(number: int, frame: object) -> None:
        server.stop()
        signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _port(text: str) -> int:
    port = whole(text)
    if not 0 <= port < 1 << 16:
        raise argparse.ArgumentTypeError(f"a TCP port is a number from 0 to 65535, not {text}")
    return port


def _host(name: str) -> Any:
    """Return the USB host of a virtual device. Raises `NotSupported` for a card without USB, and `NoSuchCard`."""
    if name == TEST_DEVICE:
        return LoopbackHost()
    path = transport.open(name.removeprefix(VIRTUAL)) if name.startswith(VIRTUAL) else None
    options = getattr(path, "options", {})
    if "backend" not in options:
        raise NotSupported(f"{name} has no USB port; a card in a virtual enclosure has one: virtual:navi31@asm2464pd")
    return options["backend"]


def _plug_in(server: UsbipServer, vhci: Vhci, record: Record) -> int:
    ours, kernels = socket.socketpair()
    # the kernel takes its own reference
    with kernels:
        server.adopt(ours, record.bus_id)
        return vhci.attach(kernels, record)


def _lines(names: Sequence[str], records: Sequence[Record], where: dict[str, Any], ports: Sequence[int]) -> list[str]:
    """Print what is served and how a kernel attaches it."""
    lines = [
        f"{record.bus_id:6} {record.vendor:04x}:{record.product:04x}  {name}"
        for name, record in zip(names, records, strict=True)
    ]
    if ports:
        lines.append(
            f"plugged into this machine's kernel, port {', '.join(map(str, ports))} of vhci_hcd; `lsusb -t` shows them"
        )
    if "port" in where:
        lines.append(f"listening on {where['address']}:{where['port']}")
        option = "" if where["port"] == PORT else f"--tcp-port {where['port']} "
        lines += [
            "attach with, as root:  modprobe vhci-hcd",
            *(
                f"                       usbip {option}attach -r {where['address']} -b {record.bus_id}"
                for record in records
            ),
        ]
    if "unix" in where:
        lines.append(f"listening on {where['unix']}")
    return [*lines, "ctrl-C ends it"]
