"""Firmware of the ASM2464PD: the image container, the two configuration blocks before it, and the flash with two
copies.

The flash has two sets, 128 KiB apart. A set is configuration block 0 (USB identification and policies), block 1
(identification of the USB4 router) and an image: length, body, marker, byte sum, CRC-32. The body is 32 KiB of 8051
code that is always mapped, then two banks. Nothing in an image is signed; the sums only detect damage. Source:
cyrozap/usb-to-pcie-re, asm2464_fw.ksy and asm236x_fw.ksy (fields of block 0); machine code of stock image 240417
(places in the flash).
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

from construct import BitsInteger, BitStruct, Bytes, ConstructError, Int8ul, Int16ul, Int32ul
from construct import Struct as Layout

from ringup.errors import FirmwareError

CONFIG_BYTES = 0x80
CONFIG_BLOCKS = 2
SET_BYTES = 0x2_0000  # of one set in the flash; the second follows directly
SETS = 2
IMAGE_AT = 0x100  # in a set; the configuration blocks precede it
# An image is read and written in two parts: up to the set's first 64 KiB, and the rest.
PART_BYTES = (0xFF00, 0x1_0000)
MAX_IMAGE_BYTES = sum(PART_BYTES)
MAX_FLASH_BYTES = 16 << 20  # the range of three address bytes
HEAD, TAIL = Layout("body_bytes" / Int32ul), Layout("marker" / Int8ul, "sum8" / Int8ul, "crc32" / Int32ul)
FRAME_BYTES = HEAD.sizeof() + TAIL.sizeof()
MARKER = 0xA5  # of the chip: ASM2464
VERSION_AT, VERSION_BYTES = 0x200, 6  # of the body: date and line in binary-coded decimal
STOCK_BODY_BYTES = 0x8000 + 2 * 0x7F6B  # common code and two banks; every stock image seen has this length
BLANK_BYTES = 64  # the first bytes, by which erased flash is distinguished from an image
BLANK = 0xFF  # erased flash, and the padding after a string
ASM236X_MARKERS = {0x5A: "ASM2362", 0x4B: "ASM2364"}  # asm236x_fw.ksy, firmware_tool.py
# In body 240417: what the WRITE routine returns to the SCSI state machine.
WRITE_EXIT_AT = 0x2A0E
WRITE_EXITS = {0x0A: "stock", 0x05: "patched"}  # wait for the NVMe drive; finish at once
PATCHED_VERSION = "240417"

# In a configuration block. Its last byte is the sum of the bytes between these two, marker included.
SUMMED_FROM, MARKER_AT = 4, 0x7E
CONFIG_MARKERS = (0x5A, MARKER)
# Bytes 0x7a to 0x7d of block 0, named as for the older chips. UNKNOWN: whether this chip obeys each of them.
POLICY = {
    "link": (("lp_if_u3", 2), ("lp_if_idle", 2), ("idle_timer", 4)),
    "pcie": (("unknown_7b", 2), ("pcie_lane", 2), ("pcie_speed", 2), ("pcie_aspm", 2)),
    "byte": (("unknown_7c", 8),),
    "switches": tuple(
        (f"disable_{name}", 1)
        for name in ("slow_enumeration", "2tb", "low_power_mode", "u1u2", "wtg", "two_leds", "eup", "usb_removable")
    ),
}
STRINGS_0 = {"serial": 20, "usb_manufacturer": 36, "scsi_vendor": 8, "usb_product": 32, "scsi_product": 16}
STRINGS_1 = {"router_vendor": 40, "router_product": 40}
CONFIG_0 = Layout(
    "unknown" / Bytes(SUMMED_FROM),
    *(name / Bytes(size) for name, size in STRINGS_0.items()),
    "vid" / Int16ul,
    "pid" / Int16ul,
    "bcd_device" / Int16ul,
    *(group / BitStruct(*(name / BitsInteger(width) for name, width in bits)) for group, bits in POLICY.items()),
    "marker" / Int8ul,
    "sum8" / Int8ul,
)
CONFIG_1 = Layout(
    "unknown" / Bytes(SUMMED_FROM),
    *(name / Bytes(size) for name, size in STRINGS_1.items()),
    "rest" / Bytes(MARKER_AT - SUMMED_FROM - sum(STRINGS_1.values())),
    "marker" / Int8ul,
    "sum8" / Int8ul,
)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Image:
    """A checked image. `blob` is what is written to the flash: frame and body."""

    name: str
    blob: bytes = field(repr=False)

    @property
    def body(self) -> bytes:
        return self.blob[HEAD.sizeof() : -TAIL.sizeof()]

    @property
    def version_bytes(self) -> bytes:
        """Six bytes: binary-coded decimal in a stock image, anything in third-party images."""
        return self.body[VERSION_AT : VERSION_AT + VERSION_BYTES]

    @property
    def version(self) -> str:
        """The version, such as `240417_85_00_00`; empty if the image has none, as the open firmware."""
        return version_text(self.version_bytes) if len(self.body) == STOCK_BODY_BYTES else ""

    @property
    def flavour(self) -> str:
        """`stock`, `patched` (stock 240417 whose WRITE ends without a drive), `modified` or `other`."""
        if not self.version:
            return "other"
        if not self.version.startswith(PATCHED_VERSION):
            return "stock"
        return WRITE_EXITS.get(self.body[WRITE_EXIT_AT], "modified")

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.blob).hexdigest()

    @property
    def parts(self) -> tuple[bytes, bytes]:
        """The two pieces in which it is written; the second may be empty."""
        return self.blob[: PART_BYTES[0]], self.blob[PART_BYTES[0] :]


@dataclass(frozen=True, slots=True)
class DeviceConfig:
    """Configuration block 0. `policy` is by the names of `POLICY`; `blob` is its 128 bytes."""

    serial: str
    usb_manufacturer: str
    scsi_vendor: str
    usb_product: str
    scsi_product: str
    vid: int
    pid: int
    bcd_device: int
    policy: Mapping[str, int]
    blob: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class RouterConfig:
    """Configuration block 1: two strings of the USB4 router. UNKNOWN: its other 42 bytes."""

    router_vendor: str
    router_product: str
    rest: bytes = field(repr=False)
    blob: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class FlashSet:
    """One of the two sets, with the parts that are valid.

    `problems` says why another part is not, by `config_0`, `config_1`, `image`.
    """

    config_0: DeviceConfig | None
    config_1: RouterConfig | None
    image: Image | None
    problems: Mapping[str, str]


def version_text(version: bytes) -> str:
    """Format six version bytes as in file names, `240417_85_00_00`; empty if they are not a binary-coded decimal
    date.
    """
    digits = version.hex()
    if len(version) != VERSION_BYTES or not digits.isdecimal() or not ("01" <= digits[2:4] <= "12"):
        return ""
    return f"{digits[:6]}_{digits[6:8]}_{digits[8:10]}_{digits[10:]}"


def parse(blob: bytes, name: str, *, in_flash: bool = False) -> Image:
    """Check an image: length, marker of the chip, sum and CRC.

    `in_flash` says that other bytes may follow the image, as in flash. Raises `FirmwareError` for an image that is
    truncated, too long, damaged, blank or another chip's.
    """
    _refuse_foreign(blob, name)
    body_bytes = HEAD.parse(blob).body_bytes
    whole = body_bytes + FRAME_BYTES
    if not VERSION_AT + VERSION_BYTES <= body_bytes <= MAX_IMAGE_BYTES - FRAME_BYTES:
        limits = f"{VERSION_AT + VERSION_BYTES} to {MAX_IMAGE_BYTES - FRAME_BYTES}"
        raise FirmwareError(
            f"{name}: bytes 0 to 3 give a body of {body_bytes} bytes; a body has {limits} bytes: not an ASM2464PD image"
        )
    if len(blob) < whole or (len(blob) > whole and not in_flash):
        raise FirmwareError(f"{name}: bytes 0 to 3 give an image of {whole} bytes, the file has {len(blob)}")
    image = Image(name, bytes(blob[:whole]))
    tail = TAIL.parse(image.blob[-TAIL.sizeof() :])
    for what, at, seen, right in (
        ("marker of the chip", body_bytes + 4, tail.marker, MARKER),
        ("sum of the body", body_bytes + 5, tail.sum8, sum(image.body) & 0xFF),
        ("CRC-32 of the body", body_bytes + 6, tail.crc32, zlib.crc32(image.body)),
    ):
        if seen != right:
            raise FirmwareError(
                f"{name}: byte {at} has {seen:#x} for the {what}, which is {right:#x}: damaged, or not an ASM2464PD image"
            )
    return image


def _refuse_foreign(blob: bytes, name: str) -> None:
    if len(blob) < HEAD.sizeof():
        raise FirmwareError(f"{name}: {len(blob)} bytes are not an image")
    if len(blob) > MAX_FLASH_BYTES:
        raise FirmwareError(f"{name}: {len(blob)} bytes are more than any flash of this chip holds ({MAX_FLASH_BYTES})")
    if blob[:BLANK_BYTES].count(BLANK) == len(blob[:BLANK_BYTES]):
        raise FirmwareError(f"{name}: blank, its first bytes are 0xff")
    if len(blob) > CONFIG_BYTES + 2 and blob[MARKER_AT] == CONFIG_MARKERS[0] and _sound(blob[:CONFIG_BYTES]):
        code_bytes = int.from_bytes(blob[CONFIG_BYTES : CONFIG_BYTES + 2], "little")
        at = CONFIG_BYTES + 2 + code_bytes
        chip = ASM236X_MARKERS.get(blob[at]) if at < len(blob) else None
        if chip:
            raise FirmwareError(
                f"{name}: an image for the {chip}, by the marker at byte {at}; an ASM2464PD cannot run it"
            )
        raise FirmwareError(
            f"{name}: begins with a configuration block: a copy of a flash or another chip's image, not an ASM2464PD image"
        )


def build(body: bytes) -> bytes:
    """Frame a body for the flash. Raises `ValueError` if it does not fit, or is too short for the version."""
    if not VERSION_AT + VERSION_BYTES <= len(body) <= MAX_IMAGE_BYTES - FRAME_BYTES:
        raise ValueError(
            f"a body has {VERSION_AT + VERSION_BYTES} to {MAX_IMAGE_BYTES - FRAME_BYTES} bytes, not {len(body)}"
        )
    tail = TAIL.build({"marker": MARKER, "sum8": sum(body) & 0xFF, "crc32": zlib.crc32(body)})
    return bytes(HEAD.build({"body_bytes": len(body)}) + bytes(body) + tail)


def parse_device_config(block: bytes, name: str) -> DeviceConfig:
    """Check configuration block 0, 128 bytes. Raises `FirmwareError` for a wrong length, marker or sum, or a blank
    block.
    """
    values = _config(CONFIG_0, block, name, 0)
    fields: dict[str, Any] = {key: _text(values[key]) for key in STRINGS_0}
    fields |= {key: int(values[key]) for key in ("vid", "pid", "bcd_device")}
    policy = {bit: int(values[group][bit]) for group, bits in POLICY.items() for bit, _ in bits}
    return DeviceConfig(**fields, policy=MappingProxyType(policy), blob=bytes(block))


def parse_router_config(block: bytes, name: str) -> RouterConfig:
    """Check configuration block 1, 128 bytes. Raises the same errors as `parse_device_config`."""
    values = _config(CONFIG_1, block, name, 1)
    return RouterConfig(**{key: _text(values[key]) for key in STRINGS_1}, rest=bytes(values["rest"]), blob=bytes(block))


def _config(layout: Any, block: bytes, name: str, number: int) -> Any:
    what = f"{name}: configuration block {number}"
    if len(block) != CONFIG_BYTES:
        raise FirmwareError(f"{what} has {CONFIG_BYTES} bytes, not {len(block)}")
    if block.count(BLANK) == CONFIG_BYTES:
        raise FirmwareError(f"{what} is blank, all bytes are 0xff")
    if block[MARKER_AT] != CONFIG_MARKERS[number]:
        raise FirmwareError(
            f"{what}: byte {MARKER_AT:#x} has marker {block[MARKER_AT]:#x}, not {CONFIG_MARKERS[number]:#x}"
        )
    if not _sound(block):
        raise FirmwareError(f"{what}: byte 0x7f has sum {block[-1]:#x}, which is {_sum(block):#x}: damaged")
    try:
        return layout.parse(block)
    except ConstructError as error:
        raise FirmwareError(f"{what}: {error}") from error


def _sum(block: bytes) -> int:
    return sum(block[SUMMED_FROM : CONFIG_BYTES - 1]) & 0xFF


def _sound(block: bytes) -> bool:
    return block[CONFIG_BYTES - 1] == _sum(block)


def _text(padded: bytes) -> str:
    return padded.partition(bytes([BLANK]))[0].decode("ascii", errors="backslashreplace")


def build_device_config(
    vid: int, pid: int, *, bcd_device: int = 0x0100, policy: Mapping[str, int] | None = None, **strings: str
) -> bytes:
    """Build configuration block 0.

    `strings` have the names of `STRINGS_0`, missing ones are blank. `policy` has the names of `POLICY`, missing bits
    are set. Raises `ValueError` for an unknown name, and for a value or text that does not fit.
    """
    given = dict(policy or {})
    bits = {group: {bit: given.pop(bit, (1 << width) - 1) for bit, width in row} for group, row in POLICY.items()}
    if given:
        raise ValueError(f"no policy is called {', '.join(given)}")
    return _build_config(CONFIG_0, STRINGS_0, strings, 0, vid=vid, pid=pid, bcd_device=bcd_device, **bits)


def build_router_config(rest: bytes, **strings: str) -> bytes:
    """Build configuration block 1 from its 42 unexplained bytes, such as those of a block that was read, and `strings`.

    `strings` have the names of `STRINGS_1`.
    """
    return _build_config(CONFIG_1, STRINGS_1, strings, 1, rest=rest)


def _build_config(
    layout: Any, places: Mapping[str, int], strings: Mapping[str, str], number: int, **values: Any
) -> bytes:
    unknown = [name for name in strings if name not in places]
    if unknown:
        raise ValueError(f"configuration block {number} has no {', '.join(unknown)}; it has {', '.join(places)}")
    for name, size in places.items():
        text = strings.get(name, "")
        if len(text) > size or not text.isascii():
            raise ValueError(f"{name} holds {size} ASCII characters, not {text!r}")
        values[name] = text.encode("ascii").ljust(size, bytes([BLANK]))
    head = {"unknown": bytes([BLANK]) * SUMMED_FROM, "marker": CONFIG_MARKERS[number], "sum8": 0}
    try:
        block = bytes(layout.build(head | values))
    except ConstructError as error:
        raise ValueError(f"configuration block {number}: a value does not fit: {error}") from error
    return block[:-1] + bytes([_sum(block)])


def parse_flash(blob: bytes, name: str) -> tuple[FlashSet, ...]:
    """Parse a copy of the flash, and return its one or two sets.

    A copy has 128 KiB (the first set alone), or 256 KiB and more as a flash programmer reads it. Raises `FirmwareError`
    if the bytes are not a copy of a flash. A damaged set is returned with its problems.
    """
    if not SET_BYTES <= len(blob) <= MAX_FLASH_BYTES or len(blob) & (len(blob) - 1):
        raise FirmwareError(
            f"{name}: {len(blob)} bytes are not a copy of a flash; one has 128 KiB, 256 KiB or a larger power of two"
        )
    return tuple(
        _flash_set(blob[at : at + SET_BYTES], f"{name}, set {at // SET_BYTES}")
        for at in range(0, min(len(blob), SETS * SET_BYTES), SET_BYTES)
    )


def _flash_set(blob: bytes, name: str) -> FlashSet:
    problems: dict[str, str] = {}

    def read(key: str, what: Callable[[], T]) -> T | None:
        try:
            return what()
        except FirmwareError as error:
            problems[key] = str(error)
            return None

    return FlashSet(
        read("config_0", lambda: parse_device_config(blob[:CONFIG_BYTES], name)),
        read("config_1", lambda: parse_router_config(blob[CONFIG_BYTES:IMAGE_AT], name)),
        read("image", lambda: parse(blob[IMAGE_AT:], name, in_flash=True)),
        MappingProxyType(problems),
    )


def build_flash_set(config_0: bytes, config_1: bytes, image: bytes) -> bytes:
    """Lay out one set, 128 KiB, as in the flash; the rest is blank. Raises `ValueError` if something does not fit."""
    if len(config_0) != CONFIG_BYTES or len(config_1) != CONFIG_BYTES or len(image) > MAX_IMAGE_BYTES:
        raise ValueError(f"a set has two blocks of {CONFIG_BYTES} bytes and an image of up to {MAX_IMAGE_BYTES}")
    return (bytes(config_0) + bytes(config_1) + bytes(image)).ljust(SET_BYTES, bytes([BLANK]))
