"""The container of NVIDIA's falcon and RISC-V images in linux-firmware: a header that says where the kind's own header
and the image begin.

Source: nouveau include/nvfw/fw.h, struct nvfw_bin_hdr; nova-core firmware.rs, BinHdr. Files of 535.113.01 and 570.144.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise

from construct import Int32ul
from construct import Struct as Layout

from ringup.errors import FirmwareError
from ringup.firmware.layouts import integer, read, size_bytes

MAGIC = 0x10DE  # NVIDIA's PCI vendor id
# The limit for images that a falcon or the GSP's boot core runs; published ones have up to 200 KB.
MAX_BYTES = 16 << 20
# The unit in which falcons load memory, and to which published images are filled.
BLOCK_BYTES = 256

# QUIRK: bin_size is rounded up to 256 bytes in published files, which end before that. Nobody checks it.
BIN_HDR = Layout(
    "bin_magic" / Int32ul,
    "bin_ver" / Int32ul,
    "bin_size" / Int32ul,
    "header_offset" / Int32ul,
    "data_offset" / Int32ul,
    "data_size" / Int32ul,
)
HEADER_BYTES = size_bytes(BIN_HDR)


@dataclass(frozen=True, slots=True)
class Span:
    """A named range of bytes of a file or an image."""

    name: str
    offset_bytes: int
    size_bytes: int

    @property
    def end_bytes(self) -> int:
        return self.offset_bytes + self.size_bytes


@dataclass(frozen=True, slots=True)
class Container:
    """A file with a checked outer header. `data` is the image that the header describes."""

    name: str
    blob: bytes = field(repr=False)
    header_offset_bytes: int
    data_offset_bytes: int
    data: bytes = field(repr=False)

    @property
    def spans(self) -> tuple[Span, Span]:
        """The outer header and the image, for `check_apart`."""
        return (
            Span("the container's header", 0, HEADER_BYTES),
            Span("the image", self.data_offset_bytes, len(self.data)),
        )


def open_container(blob: bytes, name: str) -> Container:
    """Read and check the outer header of a file.

    Raises `FirmwareError`, with the file's name and the byte, for another magic number, for a truncated file and for an
    image that is empty, outside the file or over the header.
    """
    if len(blob) > MAX_BYTES:
        raise FirmwareError(f"{name}: {len(blob)} bytes are more than any such image has ({MAX_BYTES})")
    head = read(BIN_HDR, blob, 0, name, "the container's header")
    magic, data_offset = integer(head, "bin_magic"), integer(head, "data_offset")
    if magic != MAGIC:
        raise FirmwareError(f"{name}: byte 0 holds {magic:#x}, a container of NVIDIA's has {MAGIC:#x} there")
    header_offset = integer(head, "header_offset")
    if not HEADER_BYTES <= header_offset < len(blob):
        raise FirmwareError(f"{name}: byte 12 puts the image's header at byte {header_offset} of {len(blob)}")
    if data_offset < HEADER_BYTES:
        raise FirmwareError(
            f"{name}: the image begins at byte {data_offset}, inside the container's header of {HEADER_BYTES} bytes"
        )
    data = cut(blob, data_offset, integer(head, "data_size"), name, "the image")
    if not data:
        raise FirmwareError(f"{name}: byte 20 says that the image has no bytes")
    return Container(name, blob, header_offset, data_offset, data)


def cut(blob: bytes, offset_bytes: int, size_bytes: int, name: str, what: str, of: str = "the file") -> bytes:
    """Return a range of bytes. Raises `FirmwareError` if it is not inside `blob`."""
    end = offset_bytes + size_bytes
    if offset_bytes < 0 or size_bytes < 0 or end > len(blob):
        raise FirmwareError(f"{name}: {what} takes bytes {offset_bytes} to {end}, {of} ends at byte {len(blob)}")
    return blob[offset_bytes:end]


def check_inside(spans: Iterable[Span], size_bytes: int, name: str, of: str) -> None:
    """Check that ranges lie inside `of`, which has `size_bytes` bytes."""
    for span in spans:
        if span.end_bytes > size_bytes:
            raise FirmwareError(
                f"{name}: {span.name} takes bytes {span.offset_bytes} to {span.end_bytes}, {of} ends at byte {size_bytes}"
            )


def check_apart(spans: Iterable[Span], name: str) -> None:
    """Check that no range begins inside another one. Empty ranges are ignored."""
    ordered = sorted((span for span in spans if span.size_bytes), key=lambda one: one.offset_bytes)
    for first, second in pairwise(ordered):
        if second.offset_bytes < first.end_bytes:
            raise FirmwareError(
                f"{name}: {second.name} begins at byte {second.offset_bytes},"
                f" inside {first.name}, which ends at {first.end_bytes}"
            )


def rounded_up(size_bytes: int, to_bytes: int = BLOCK_BYTES) -> int:
    """Return a size rounded up to whole blocks."""
    return -(-size_bytes // to_bytes) * to_bytes
