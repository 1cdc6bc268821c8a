"""The GSP's bootloader, `bootloader-535.113.01.bin`: RISC-V code that checks GSP-RM and starts it.

Source: OGKM rmRiscvUcode.h, RM_RISCV_UCODE_DESC; nouveau r535/gsp.c, r535_gsp_rm_boot_ctor; nova-core riscv.rs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ringup.autogen.nv.gsp_boot import RM_RISCV_UCODE_DESC
from ringup.firmware.layouts import integer, read_within
from ringup.firmware.nv.containers import Span, check_apart, check_inside, cut, open_container

# The descriptor in front of bIsMonitorEnabled; no driver reads the rest. Published files have 76 bytes (Turing, GA100)
# or 84, and later releases more.
NEEDED_BYTES = 56
MAX_DESCRIPTOR_BYTES = 256


@dataclass(frozen=True, slots=True)
class Bootloader:
    """A checked bootloader. Offsets are bytes in `image`; they go into `GspFwWprMeta`.

    `app_version` goes into the falcon's OS register when GSP-RM runs. `version` is that of the descriptor.
    """

    name: str
    image: bytes = field(repr=False)
    version: int
    app_version: int
    code_offset_bytes: int
    code_size_bytes: int
    data_offset_bytes: int
    data_size_bytes: int
    manifest_offset_bytes: int
    manifest_size_bytes: int


def parse(blob: bytes, name: str) -> Bootloader:
    """Read and check a bootloader's file.

    Raises `FirmwareError`, with the byte, for a truncated file, another container, and a monitor or manifest outside
    the image.
    """
    box = open_container(blob, name)
    # The descriptor ends where the image begins; where it does not, it has the bytes that every release has.
    room = box.data_offset_bytes - box.header_offset_bytes
    size = room if NEEDED_BYTES <= room <= MAX_DESCRIPTOR_BYTES else NEEDED_BYTES
    raw = cut(blob, box.header_offset_bytes, size, name, "the RISC-V descriptor")
    check_apart((*box.spans, Span("the RISC-V descriptor", box.header_offset_bytes, size)), name)
    desc = read_within(RM_RISCV_UCODE_DESC, raw[: RM_RISCV_UCODE_DESC.SIZE], name, "the RISC-V descriptor")
    spans = {
        part: Span(f"the {what}", integer(desc, f"{part}Offset"), integer(desc, f"{part}Size"))
        for part, what in (
            ("monitorCode", "monitor's code"),
            ("monitorData", "monitor's data"),
            ("manifest", "manifest"),
        )
    }
    check_inside(spans.values(), len(box.data), name, "the image")
    code, data, manifest = spans.values()
    return Bootloader(
        name,
        box.data,
        integer(desc, "version"),
        integer(desc, "appVersion"),
        code.offset_bytes,
        code.size_bytes,
        data.offset_bytes,
        data.size_bytes,
        manifest.offset_bytes,
        manifest.size_bytes,
    )
