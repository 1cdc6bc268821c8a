"""The flash behind an ASM2464PD, reached by commands of its firmware or of the loader in its mask ROM: look, copy,
compare.

Both sets can be read; only the first is ever written. All goes over Bulk-Only Transport, the one that the ROM has.
Source: docs/asm2464pd.md, "Vendor commands" and "Flash"; cyrozap/usb-to-pcie-re, asm2x6x_tool.py (pauses).
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

# QUIRK: the tools that are known to work wait so long behind each command that reads or writes the flash
PAUSE_US = 1_000_000
SLOW_MBPS = 480
PROBE_BYTES = 4
PROBE_MS = 5_000  # TIMEOUT: of a question that the ROM may not know; a read of four bytes takes milliseconds
Say = Callable[[str], None]
OPEN_FLASHING = {
    Firmware.OPEN: "it runs the open firmware, whose flash is written by the program that this firmware comes with",
    Firmware.BOOT_STUB: "it waits in the open firmware's loader, which takes firmware from the program that this firmware comes with",
}
PART_AT = (IMAGE_AT, IMAGE_AT + PART_BYTES[0])  # in a set


class Flash:
    """The flash of one bridge, whose port the caller opened and closes."""

    def __init__(self, port: Port, row: Row) -> None:
        """Set up the transport and see what answers. Raises `NotSupported` for firmware that has no such commands, and
        for another chip.
        """
        if row.firmware in OPEN_FLASHING:
            raise NotSupported(f"{port.name}: {OPEN_FLASHING[row.firmware]}")
        self.port, self.firmware = port, row.firmware
        self._scsi = scsi.connect(port, bulk_only=True)
        # ORDER: a wrong chip must refuse something harmless before it is asked for anything else
        self.version_bytes = self._ask(scsi.xdata_read(VERSION, VERSION_BYTES))
        if self.firmware != Firmware.ROM and self.version_bytes is None:
            raise NotSupported(
                f"{port.name}: the bridge refuses to read its own memory the way an ASM246x does: an older chip, or another maker's"
            )
        self.readable = self._ask(_bounded(scsi.flash_read(0, PROBE_BYTES))) is not None
        self.slow = self._slow()

    @property
    def version(self) -> str:
        """The running firmware's version; empty in the ROM and where it says none."""
        return version_text(self.version_bytes or b"") if self.firmware != Firmware.ROM else ""

    def _ask(self, command: Command) -> bytes | None:
        """Ask something that the ROM may not know; None for that. Firmware must not fail in another way than by
        refusing.
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
        """Tell whether it runs at USB 2 speed: where the host does not say, endpoints without companions do."""
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
        """Write a configuration block of the first set, which is checked first."""
        (asm2464pd.parse_device_config, asm2464pd.parse_router_config)[block](data, "what is to be written")
        self._scsi.execute([scsi.config_write(block, data)])
        self.port.clock.sleep_us(PAUSE_US)

    def write_part(self, part: int, data: bytes) -> None:
        """Write a part of the first set's image, which the caller checked as a whole."""
        if not 0 < len(data) <= PART_BYTES[part]:
            raise ValueError(f"part {part} has 1 to {PART_BYTES[part]} bytes, not {len(data)}")
        self._scsi.execute([scsi.flash_write(part, data)])
        self.port.clock.sleep_us(PAUSE_US)

    def detach(self) -> None:
        """Take the bridge off the bus until its power goes: only as the last step of flashing."""
        self._scsi.execute([scsi.detach()])

    # --- all of it --------------------------------------------------------------------------------------------------
    def read_set(self, copy: int, say: Say) -> bytes:
        """Return one set as it lies in the flash. Raises `Refused` where the bridge does not give it."""
        pieces = []
        for block in range(asm2464pd.CONFIG_BLOCKS):
            say(f"reading configuration block {block} of set {copy}")
            pieces.append(self.read_config(block, copy))
        for part, count in enumerate(PART_BYTES):
            say(f"reading part {part} of set {copy}")
            pieces.append(self.read_part(part, count, copy))
        return b"".join(pieces)

    def read_all(self, say: Say) -> bytes:
        """Return a copy of the flash: both sets, or the first where the second is not given. Raises `NotSupported`
        where nothing can be read.
        """
        self.need_readable()
        copy = self.read_set(0, say)
        try:
            return copy + self.read_set(1, say)
        except Refused as error:
            say(f"the second set cannot be read: {error.sense}")
            return copy

    def need_readable(self) -> None:
        """Raise `NotSupported` in a ROM that reads no flash."""
        if not self.readable:
            raise NotSupported(
                f"{self.port.name}: the loader in the chip's ROM does not read the flash, it only writes it"
            )

    def differences(self, image: Image, say: Say) -> list[str]:
        """Compare the first set's image with one; a line for each part that differs."""
        self.need_readable()
        found = []
        for part, data in enumerate(image.parts):
            if data:
                say(f"comparing part {part}")
                found += difference(f"part {part}", PART_AT[part], data, self.read_part(part, len(data)))
        return found

    def image_version(self, copy: int) -> str:
        """Return the version of a set's image by its first bytes; empty where there is none to tell. Its sums are not
        looked at.
        """
        head = self.read_part(0, 4 + VERSION_AT + VERSION_BYTES, copy)
        size = int.from_bytes(head[:4], "little")
        return version_text(head[-VERSION_BYTES:]) if size == asm2464pd.STOCK_BODY_BYTES else ""


def _bounded(command: Command) -> Command:
    return Command(command.cdb, command.read_bytes, timeout_ms=PROBE_MS)


def difference(what: str, flash_at: int, wanted: bytes, found: bytes) -> list[str]:
    """Compare what was read with what should be there; one line where they differ, with the first place in the
    flash.
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
    """Tell a copy of a flash from an image, by its length."""
    return len(data) >= SET_BYTES and not len(data) & (len(data) - 1)


def image_of(data: bytes, name: str) -> Image:
    """Take an image, or the first sound one of a copy of a flash. Raises `FirmwareError`."""
    if not is_copy(data):
        return asm2464pd.parse(data, name)
    sets = parse_flash(data, name)
    image = next((one.image for one in sets if one.image), None)
    if image is None:
        raise FirmwareError("; ".join(one.problems["image"] for one in sets))
    return Image(name, image.blob)


def configs_of(copy: bytes) -> tuple[bytes, ...]:
    """Return both configuration blocks of the first set of a copy of a flash that has them sound; nothing where none
    has.
    """
    for at in range(0, min(len(copy), SETS * SET_BYTES), SET_BYTES):
        blocks = (copy[at : at + CONFIG_BYTES], copy[at + CONFIG_BYTES : at + IMAGE_AT])
        if sound_configs(blocks):
            return blocks
    return ()


def sound_configs(blocks: tuple[bytes, ...]) -> bool:
    """Tell whether both configuration blocks are sound."""
    try:
        asm2464pd.parse_device_config(blocks[0], "")
        asm2464pd.parse_router_config(blocks[1], "")
    except FirmwareError:
        return False
    return True


def good_sets(sets: tuple[FlashSet, ...]) -> list[int]:
    """Return the numbers of the sets whose image is sound."""
    return [number for number, one in enumerate(sets) if one.image]


def write_new(path: Path, data: bytes) -> None:
    """Write a file at once, or not at all. Raises `FirmwareError` for one that is there already or cannot be
    written.
    """
    if path.exists():
        raise FirmwareError(f"{path} is there already; name another file, nothing is written over")
    replace(path, data)


def replace(path: Path, data: bytes) -> None:
    """Write a file's new content at once: who looks sees the old one or the new one, also after a power cut."""
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
