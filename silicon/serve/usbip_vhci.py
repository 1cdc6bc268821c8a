"""The virtual USB host controller of this machine's own kernel (Linux vhci_hcd): a device is plugged in by telling it a
socket.

Source: Linux drivers/usb/usbip/vhci_sysfs.c, status_show_vhci and attach_store.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from pathlib import Path

from ringup.errors import CardBusy, NotSupported, PermissionNeeded
from ringup.silicon.serve.usbip_wire import Record, Speed

CONTROLLER = Path("/sys/devices/platform/vhci_hcd.0")
FREE = 4  # VDEV_ST_NULL


class Vhci:
    """Its ports. Those of hub `hs` take devices up to high speed, those of `ss` the faster ones."""

    def __init__(self, controller: Path = CONTROLLER) -> None:
        """Raises `NotSupported` where the kernel has none."""
        if not (controller / "attach").exists():
            raise NotSupported(f"this kernel shows no {controller.name}; load it as root: modprobe vhci-hcd")
        self._controller = controller

    def free_ports(self, speed: Speed) -> Iterator[int]:
        """List the ports that have nothing plugged in and take devices of that speed."""
        hub = "ss" if speed >= Speed.SUPER else "hs"
        for path in sorted(self._controller.glob("status*")):
            for line in path.read_text().splitlines():
                words = line.split()
                if words[:1] == [hub] and int(words[2]) == FREE:
                    yield int(words[1])

    def attach(self, sock: socket.socket, record: Record) -> int:
        """Plug a device in: the kernel takes a reference of the socket, over which a server must answer. Returns the
        port.

        Raises `CardBusy` when all ports are taken, `PermissionNeeded`.
        """
        for port in self.free_ports(record.speed):
            try:
                self._write("attach", f"{port} {sock.fileno()} {record.devid} {int(record.speed)}")
            except OSError as error:
                if error.errno != errno.EBUSY:
                    raise
            else:
                return port
        raise CardBusy(
            f"plugging in {record.bus_id}: every port of {self._controller.name} is taken; `usbip port` lists them"
        )

    def detach(self, port: int) -> None:
        """Pull out what is plugged in there; nothing there is harmless."""
        try:
            self._write("detach", str(port))
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise

    def _write(self, name: str, text: str) -> None:
        try:
            (self._controller / name).write_text(text)
        except PermissionError as error:
            raise PermissionNeeded(
                f"writing {self._controller / name}: only root may plug in virtual devices"
            ) from error
