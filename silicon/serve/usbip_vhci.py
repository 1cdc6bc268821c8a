"""The virtual USB host controller of this machine's kernel (Linux vhci_hcd). To plug a device in, a process passes it a
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
    """The controller and its ports. Ports of hub `hs` accept devices up to high speed, ports of hub `ss` the faster
    ones.
    """

    def __init__(self, controller: Path = CONTROLLER) -> None:
        """Raises `NotSupported` if the kernel has no such controller."""
        if not (controller / "attach").exists():
            raise NotSupported(f"this kernel has no {controller.name}; load it as root: modprobe vhci-hcd")
        self._controller = controller

    def free_ports(self, speed: Speed) -> Iterator[int]:
        """List the free ports for devices of a speed."""
        hub = "ss" if speed >= Speed.SUPER else "hs"
        for path in sorted(self._controller.glob("status*")):
            for line in path.read_text().splitlines():
                words = line.split()
                if words[:1] == [hub] and int(words[2]) == FREE:
                    yield int(words[1])

    def attach(self, sock: socket.socket, record: Record) -> int:
        """Plug a device in: the kernel takes a reference to the socket, on which a server must answer. Returns the
        port.

        Raises `CardBusy` if all ports are in use, `PermissionNeeded`.
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
            f"plugging in {record.bus_id}: every port of {self._controller.name} is in use; `usbip port` lists them"
        )

    def detach(self, port: int) -> None:
        """Unplug the device at a port; harmless for an empty port."""
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
