"""The flash of an ASM2464PD: read, write and compare it by commands of its firmware, or of the loader in its mask ROM.

The flash holds two sets. Both can be read; only the first is written. All commands use Bulk-Only Transport, the only
transport of the ROM. Source: docs/asm2464pd.md, "Vendor commands" and "Flash"; cyrozap/usb-to-pcie-re,
asm2x6x_tool.py (pauses).
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from ringup.drivers.usb4 import scsi
from ringup.drivers.usb4.identify import Firmware, Row
from ringup.drivers.usb4.port import Port
from ringup.drivers.usb4.scsi import COMPANION, Command, Refused
from ringup.drivers.usb4.stock import VERSION
from ringup.errors import DeviceTimeout, FirmwareError, NotSupported, TransportError
from ringup.firmware import asm2464pd
from ringup.firmware.asm2464pd import (
    CONFIG_BYTES,
    IMAGE_AT,
    PART_BYTES,
    SET_BYTES,
    SETS,
    VERSION_AT,
    VERSION_BYTES,
    FlashSet,
    Image,
    parse_flash,
    version_text,
)

# QUIRK: the tools that are known to work wait so long after each command that reads or writes the flash
PAUSE_US = 1_000_000
SLOW_MBPS = 480
PROBE_BYTES = 4
# TIMEOUT: for a command that the ROM may not know; a read of four bytes takes milliseconds
PROBE_MS = 5_000
Say = Callable[[str], None]
OPEN_FLASHING = {
    Firmware.OPEN: "it runs the open firmware, whose flash is written by the program that this firmware comes with",
    Firmware.BOOT_STUB: (
        "it waits in the open firmware's loader, which takes firmware from the program that this firmware comes with"
    ),
}
# the offsets of an image's parts in a set
PART_AT = (IMAGE_AT, IMAGE_AT + PART_BYTES[0])


class Flash:
    """The flash of one bridge. The caller opens and closes the port."""

    def __init__(self, port: Port, row: Row) -> None:
        """Set up the transport and find out which commands work. Raises `NotSupported` for firmware without these
        commands, and for another chip.
        """
        if row.firmware in OPEN_FLASHING:
            raise NotSupported(f"{port.name}: {OPEN_FLASHING[row.firmware]}")
        self.port, self.firmware = port, row.firmware
        self._scsi = scsi.connect(port, bulk_only=True)
        # ORDER: the first command is harmless, so that a wrong chip refuses it before anything else is sent
        self.version_bytes = self._ask(scsi.xdata_read(VERSION, VERSION_BYTES))
        if self.firmware != Firmware.ROM and self.version_bytes is None:
            raise NotSupported(
                f"{port.name}: the bridge refuses to read its own memory the way an ASM246x does:"
                " an older chip, or another maker's"
            )
        self.readable = self._ask(_bounded(scsi.flash_read(0, PROBE_BYTES))) is not None
        self.slow = self._slow()

    @property
    def version(self) -> str:
        """The version of the running firmware. Empty in the ROM, and where the firmware reports none."""
        return version_text(self.version_bytes or b"") if self.firmware != Firmware.ROM else ""

    def _ask(self, command: Command) -> bytes | None:
        """Send a command that the ROM may not know; return None if it does not. Other firmware may only refuse the
        command: every other failure is an error there.
        """
        try:
            return self._scsi.execute([command])[0]
        except Refused:
            return None
        except (DeviceTimeout, TransportError):
            if self.firmware != Firmware.ROM:
                raise
            return None

    def _slow(self) -> bool:
        """Return whether the bridge runs at USB 2 speed. If the host does not report the speed, endpoints without
        companion descriptors mean USB 2.
        """
        if self.port.speed_mbps:
            return self.port.speed_mbps <= SLOW_MBPS
        return not any(kind == COMPANION for kind, _ in scsi.descriptors(self.port.configuration()))

    # --- pieces -----------------------------------------------------------------------------------------------------
    def read_config(self, block: int, copy: int = 0) -> bytes:
        """Return configuration block 0 or 1 of a set."""
        return self._scsi.execute([scsi.config_read(block, copy)])[0]

    def read_part(self, part: int, count: int, copy: int = 0) -> bytes:
        """Return the first bytes of part 0 or 1 of a set's image."""
        if not 0 < count <= PART_BYTES[part]:
            raise ValueError(f"part {part} has 1 to {PART_BYTES[part]} bytes, not {count}")
        data = self._scsi.execute([scsi.flash_read(part, count, copy)])[0]
        self.port.clock.sleep_us(PAUSE_US)
        return data

    def write_config(self, block: int, data: bytes) -> None:
        """Check a configuration block, then write it to the first set."""
        (asm2464pd.parse_device_config, asm2464pd.parse_router_config)[block](data, "what is to be written")
        self._scsi.execute([scsi.config_write(block, data)])
        self.port.clock.sleep_us(PAUSE_US)

    def write_part(self, part: int, data: bytes) -> None:
        """Write a part of an image to the first set. The caller has checked the whole image."""
        if not 0 < len(data) <= PART_BYTES[part]:
            raise ValueError(f"part {part} has 1 to {PART_BYTES[part]} bytes, not {len(data)}")
        self._scsi.execute([scsi.flash_write(part, data)])
        self.port.clock.sleep_us(PAUSE_US)

    def detach(self) -> None:
        """Take the bridge off the bus until its power is switched off. Only for the last step of flashing."""
        self._scsi.execute([scsi.detach()])

    # --- sets -------------------------------------------------------------------------------------------------------
    def read_set(self, copy: int, say: Say) -> bytes:
        """Return the bytes of one set in the flash. Raises `Refused` if the bridge refuses the read."""
        pieces = []
        for block in range(asm2464pd.CONFIG_BLOCKS):
            say(f"reading configuration block {block} of set {copy}")
            pieces.append(self.read_config(block, copy))
        for part, count in enumerate(PART_BYTES):
            say(f"reading part {part} of set {copy}")
            pieces.append(self.read_part(part, count, copy))
        return b"".join(pieces)

    def read_all(self, say: Say) -> bytes:
        """Return a copy of the flash: both sets, or the first if the bridge refuses to read the second. Raises
        `NotSupported` if nothing can be read.
        """
        self.need_readable()
        copy = self.read_set(0, say)
        try:
            return copy + self.read_set(1, say)
        except Refused as error:
            say(f"the second set cannot be read: {error.sense}")
            return copy

    def need_readable(self) -> None:
        """Raise `NotSupported` if the loader in the ROM cannot read the flash."""
        if not self.readable:
            raise NotSupported(
                f"{self.port.name}: the loader in the chip's ROM does not read the flash, it only writes it"
            )

    def differences(self, image: Image, say: Say) -> list[str]:
        """Compare the first set's image with `image`. Return a line for each part that differs."""
        self.need_readable()
        found = []
        for part, data in enumerate(image.parts):
            if data:
                say(f"comparing part {part}")
                found += difference(f"part {part}", PART_AT[part], data, self.read_part(part, len(data)))
        return found

    def image_version(self, copy: int) -> str:
        """Return the version of a set's image from its first bytes. Empty if the bytes are not those of a stock image.
        Checksums are not checked.
        """
        head = self.read_part(0, 4 + VERSION_AT + VERSION_BYTES, copy)
        size = int.from_bytes(head[:4], "little")
        return version_text(head[-VERSION_BYTES:]) if size == asm2464pd.STOCK_BODY_BYTES else ""


def _bounded(command: Command) -> Command:
    return Command(command.cdb, command.read_bytes, timeout_ms=PROBE_MS)


def difference(what: str, flash_at: int, wanted: bytes, found: bytes) -> list[str]:
    """Compare the bytes that were read with those that should be there. If they differ, return one line with the first
    place in the flash.
    """
    places = [at for at, (one, other) in enumerate(zip(wanted, found, strict=True)) if one != other]
    if not places:
        return []
    first = places[0]
    return [
        f"{what} differs in {len(places)} of {len(wanted)} bytes, first at {flash_at + first:#07x} of the flash: "
        f"{found[first]:#04x} in place of {wanted[first]:#04x}"
    ]


# --- files ----------------------------------------------------------------------------------------------------------
def is_copy(data: bytes) -> bool:
    """Return whether `data` is a copy of a flash and not an image. The length decides."""
    return len(data) >= SET_BYTES and not len(data) & (len(data) - 1)


def image_of(data: bytes, name: str) -> Image:
    """Return the image that `data` is, or the first valid image in a copy of a flash. Raises `FirmwareError`."""
    if not is_copy(data):
        return asm2464pd.parse(data, name)
    sets = parse_flash(data, name)
    image = next((one.image for one in sets if one.image), None)
    if image is None:
        raise FirmwareError("; ".join(one.problems["image"] for one in sets))
    return Image(name, image.blob)


def configs_of(copy: bytes) -> tuple[bytes, ...]:
    """Return both configuration blocks of the first set in a copy of a flash where both are valid. Empty if there is no
    such set.
    """
    for at in range(0, min(len(copy), SETS * SET_BYTES), SET_BYTES):
        blocks = (copy[at : at + CONFIG_BYTES], copy[at + CONFIG_BYTES : at + IMAGE_AT])
        if sound_configs(blocks):
            return blocks
    return ()


def sound_configs(blocks: tuple[bytes, ...]) -> bool:
    """Return whether both configuration blocks are valid."""
    try:
        asm2464pd.parse_device_config(blocks[0], "")
        asm2464pd.parse_router_config(blocks[1], "")
    except FirmwareError:
        return False
    return True


def good_sets(sets: tuple[FlashSet, ...]) -> list[int]:
    """Return the numbers of the sets with a valid image."""
    return [number for number, one in enumerate(sets) if one.image]


def write_new(path: Path, data: bytes) -> None:
    """Write a new file atomically. Raises `FirmwareError` if the file exists already or cannot be written."""
    if path.exists():
        raise FirmwareError(f"{path} exists already; name another file, nothing is overwritten")
    replace(path, data)


def replace(path: Path, data: bytes) -> None:
    """Replace a file's contents atomically: a reader sees the old or the new contents, also after a power cut."""
    try:
        node, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with open(node, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise FirmwareError(f"{path} cannot be written: {error.strerror}") from error
