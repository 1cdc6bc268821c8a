"""`ringup serve`: lend virtual devices to kernels, this machine's or one in a virtual machine, which then see real hardware."""

from __future__ import annotations

import argparse
import signal
import socket
from collections.abc import Sequence
from typing import Any

from ringup.errors import NotSupported
from ringup.silicon import transport
from ringup.silicon.usb_loopback import LoopbackHost
from ringup.silicon.usbip import LOOPBACK, PORT, UsbipServer
from ringup.silicon.usbip_vhci import Vhci
from ringup.silicon.usbip_wire import Record
from ringup.tools.json_text import json_text
from ringup.tools.numbers import whole

VIRTUAL, TEST_DEVICE = "virtual:", "virtual:usb-loopback"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "serve",
        help="lend virtual devices to a kernel, here or in a virtual machine",
        description="Lend virtual devices to a kernel, which then sees them as hardware plugged in. Ends with ctrl-C.",
    )
    kinds = parser.add_subparsers(dest="kind", metavar="PROTOCOL", required=True)
    usbip = kinds.add_parser(
        "usbip",
        help="USB devices, over USB/IP",
        description="Serve virtual enclosures over USB/IP, which Linux's vhci-hcd attaches. No one is asked who they are: "
        "connections are taken from this machine only, unless --address says otherwise.",
    )
    usbip.add_argument(
        "device",
        nargs="+",
        help=f"a card in a virtual enclosure, virtual:navi31@asm2464pd, or {TEST_DEVICE}, a device to try a path with",
    )
    usbip.add_argument("--port", type=_port, metavar="N", help=f"TCP port (default {PORT}; 0: any that is free)")
    usbip.add_argument("--address", default=LOOPBACK, help=f"where connections are taken (default {LOOPBACK})")
    usbip.add_argument("--unix", metavar="PATH", help="take connections at this socket, instead of or besides a port")
    usbip.add_argument(
        "--attach", action="store_true", help="plug them into this machine's own kernel at once (as root)"
    )
    usbip.add_argument("--json", action="store_true", help="print one object when all is ready")


def run(args: argparse.Namespace) -> int:
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
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

        def stop(number: int, frame: object) -> None:
            """Let the virtual card finish its step; a second signal does not wait for that."""
            server.stop()
            signal.signal(number, before[signal.Signals(number)])

        for number in before:
            signal.signal(number, stop)
        try:
            if args.json:
                rows = [{"name": name, "busid": one.bus_id} for name, one in zip(args.device, records, strict=True)]
                print(json_text({"devices": rows, **where, "vhci_ports": ports}), flush=True)
            else:
                print("\n".join(_lines(args.device, records, where, ports)), flush=True)
            server.run()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            for port in ports:
                Vhci().detach(port)
    return 0


def _port(text: str) -> int:
    port = whole(text)
    if not 0 <= port < 1 << 16:
        raise argparse.ArgumentTypeError(f"a TCP port is a number from 0 to 65535, not {text}")
    return port


def _host(name: str) -> Any:
    """Return the USB host that a virtual device is plugged into. Raises `NotSupported` for a card without USB, `NoSuchCard`."""
    if name == TEST_DEVICE:
        return LoopbackHost()
    path = transport.open(name.removeprefix(VIRTUAL)) if name.startswith(VIRTUAL) else None
    options = getattr(path, "options", {})
    if "backend" not in options:
        raise NotSupported(
            f"{name} has no USB port to lend; a card in a virtual enclosure has: virtual:navi31@asm2464pd"
        )
    return options["backend"]


def _plug_in(server: UsbipServer, vhci: Vhci, record: Record) -> int:
    ours, kernels = socket.socketpair()
    with kernels:  # the kernel takes a reference of its own
        server.adopt(ours, record.bus_id)
        return vhci.attach(kernels, record)


def _lines(names: Sequence[str], records: Sequence[Record], where: dict[str, Any], ports: Sequence[int]) -> list[str]:
    """Say what is served and how a kernel gets it."""
    lines = [
        f"{record.bus_id:6} {record.vendor:04x}:{record.product:04x}  {name}"
        for name, record in zip(names, records, strict=True)
    ]
    if ports:
        lines.append(
            f"plugged into this machine's kernel, port {', '.join(map(str, ports))} of vhci_hcd; `lsusb -t` shows them"
        )
    if "port" in where:
        lines.append(f"connections are taken at {where['address']}:{where['port']}")
        option = "" if where["port"] == PORT else f"--tcp-port {where['port']} "
        lines += [
            "attach with, as root:  modprobe vhci-hcd",
            *(
                f"                       usbip {option}attach -r {where['address']} -b {record.bus_id}"
                for record in records
            ),
        ]
    if "unix" in where:
        lines.append(f"connections are taken at {where['unix']}")
    return [*lines, "ctrl-C ends it"]
