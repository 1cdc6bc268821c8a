"""A VBIOS of our own: a PC-compatible image with the BIOS information table, and two extensions, the second of which
has FWSEC.

Sources: the layouts in NVIDIA's open-gpu-doc (BIOS-Information-Table) and in kernel_gsp_vbios_tu102.c and
kernel_gsp_fwsec.c of its open kernel modules; the ROM headers are those of the PCI Firmware Specification. That there
are two extensions, and what is in which: Linux, Documentation/gpu/nova/core/vbios.rst; nova-core takes no other ROM.
"""

from __future__ import annotations

import struct
from functools import cache

from ringup.silicon.nv.chips.row import NVIDIA, ChipRow
from ringup.silicon.nv.common.signed import STAMP_BYTES, Part, stamp

BLOCK = 512
# the first extension has nothing that a driver reads
BASE_BYTES, FIRST_BYTES, EXTENSION_BYTES = 0x4000, 0x800, 0x8000
# the BIT is where boards in shops have it: tinygrad looks nowhere else (nv/ip.py, prep_ucode)
PCIR_AT, NPDE_AT, BIT_AT = 0x40, 0x60, 0x1B0
LAST = 0x80
# code types: PC-AT compatible, and NVIDIA's extension
PC_AT, EXTENSION = 0x00, 0xE0
ROM_HEAD = b"\x55\xaa"
PCIR = struct.Struct("<4sHHHHB3sHHBBHH")
NPDE = struct.Struct("<4sHHHBB")
BIT_HEAD = struct.Struct("<H4sHBBB")
TOKEN = struct.Struct("<BBHH")
TABLE_HEAD = struct.Struct("<6B")
TABLE_ENTRY = struct.Struct("<BBI")
DESC_V2 = struct.Struct("<15I")
DESC_V3 = struct.Struct("<9IHBBHH")
# falcon ucode table: application ids of FWSEC for production and for debug boards, target GSP
FWSEC_PROD, FWSEC_DEBUG, TARGET_GSP = 0x85, 0x45, 0x07
UCODE_ID, SIGNATURE_BYTES = 9, 384
# where FWSEC's data has what
INTERFACE_AT, MAPPER_AT, COMMAND_AT, ANSWER_AT, SIGNATURE_AT = 0x0, 0x40, 0x100, 0x180, 0x400
COMMAND_BYTES, DMEM_BYTES, IMEM_BYTES = 0x80, 0x1000, 0x1000
# the part of Turing's code that starts the signed part
NON_SECURE_BYTES = 0x100
MAPPER = struct.Struct("<4sHH14I")
MAPPER_MAGIC, MAPPER_VERSION = b"DMAP", 3
DMEM_MAPPER = 4
COMMANDS = (0x15, 0x19)
RELEASE = "vbios"
# BIOS version by chip: major, chip, minor, micro, OEM
VERSIONS = {
    "tu102": (0x90, 0x02, 0x01, 0x00, 0x01),
    "ga100": (0x92, 0x00, 0x01, 0x00, 0x01),
    "ga102": (0x94, 0x02, 0x01, 0x00, 0x01),
    "ad102": (0x95, 0x02, 0x01, 0x00, 0x01),
    "gh100": (0x96, 0x00, 0x01, 0x00, 0x01),
    "gb202": (0x98, 0x02, 0x01, 0x00, 0x01),
}


@cache
def build(chip: ChipRow) -> bytes:
    """Return the ROM's bytes: all images."""
    before = _base_image(chip) + bytes(_head(chip, FIRST_BYTES, EXTENSION, last=False))
    return before + _extension(chip, len(before))


def _head(chip: ChipRow, size_bytes: int, code_type: int, *, last: bool) -> bytearray:
    image = bytearray(size_bytes)
    image[0:2] = ROM_HEAD
    image[2] = size_bytes // BLOCK & 0xFF
    struct.pack_into("<H", image, 0x18, PCIR_AT)
    blocks, flag = size_bytes // BLOCK, LAST if last else 0
    class_code = chip.function.class_code.to_bytes(3, "little")
    PCIR.pack_into(
        image,
        PCIR_AT,
        b"PCIR",
        NVIDIA,
        chip.device_id,
        0,
        PCIR.size,
        3,
        class_code,
        blocks,
        1,
        code_type,
        flag,
        blocks,
        0,
    )
    NPDE.pack_into(image, NPDE_AT, b"NPDE", 0x0101, NPDE.size, blocks, flag, 0)
    return image


def _base_image(chip: ChipRow) -> bytes:
    image = _head(chip, BASE_BYTES, PC_AT, last=False)
    major, revision, minor, micro, oem = VERSIONS[chip.name]
    version = bytes([micro, minor, revision, major, oem])
    # ORDER: BIOS data, information, falcon data: a pointer from the start of the base image into the second extension
    data = (
        (0x42, 2, version + bytes(27)),
        (0x69, 2, version + bytes(59)),
        (0x70, 2, struct.pack("<I", BASE_BYTES + FIRST_BYTES + 0x100)),
    )
    place = BIT_AT + 0x40
    tokens = b""
    for token, revision, content in data:
        tokens += TOKEN.pack(token, revision, len(content), place)
        image[place : place + len(content)] = content
        place += -(-len(content) // 16) * 16
    size = BIT_HEAD.size + 1
    head = BIT_HEAD.pack(0xB8FF, b"BIT\0", 0x0100, size, TOKEN.size, len(data))
    head += bytes([-sum(head) & 0xFF])
    image[BIT_AT : BIT_AT + len(head) + len(tokens)] = head + tokens
    # the bytes of a PC-compatible image add up to zero
    image[-1] = -sum(image) & 0xFF
    return bytes(image)


def _extension(chip: ChipRow, at: int) -> bytes:
    image = _head(chip, EXTENSION_BYTES, EXTENSION, last=True)
    entries = ((FWSEC_PROD, 0x200),)
    descriptor = _descriptor(chip)
    table = TABLE_HEAD.pack(1, TABLE_HEAD.size, TABLE_ENTRY.size, len(entries), 3 if chip.boots_from_hs else 2, 0)
    table += b"".join(TABLE_ENTRY.pack(kind, TARGET_GSP, at + where) for kind, where in entries)
    image[0x100 : 0x100 + len(table)] = table
    content = descriptor + code(chip) + data()
    image[0x200 : 0x200 + len(content)] = content
    return bytes(image)


def _descriptor(chip: ChipRow) -> bytes:
    """Return the descriptor of FWSEC: version 3 has signatures for a boot ROM, version 2 needs a loader."""
    if chip.boots_from_hs:
        size = DESC_V3.size + SIGNATURE_BYTES
        head = 1 | 3 << 8 | size << 16
        engine = chip.falcon("gsp").engine_id
        # one signature, for fuse version 0
        fields = DESC_V3.pack(
            head,
            IMEM_BYTES + DMEM_BYTES,
            SIGNATURE_AT,
            INTERFACE_AT,
            0,
            IMEM_BYTES,
            0,
            0,
            DMEM_BYTES,
            engine,
            UCODE_ID,
            1,
            1,
            0,
        )
        return fields + signature(chip)
    secure = IMEM_BYTES - NON_SECURE_BYTES
    head = 1 | 2 << 8 | DESC_V2.size << 16
    stored = IMEM_BYTES + DMEM_BYTES
    return DESC_V2.pack(
        head,
        stored,
        stored,
        0,
        INTERFACE_AT,
        0,
        IMEM_BYTES,
        0,
        NON_SECURE_BYTES,
        secure,
        IMEM_BYTES,
        0,
        DMEM_BYTES,
        0,
        0,
    )


def signature(chip: ChipRow) -> bytes:
    """Return a made-up signature, which fills the space of an RSA-3072 signature."""
    return stamp(Part.SIGNATURE, chip.name, RELEASE, b"FWSEC").ljust(SIGNATURE_BYTES, b"\x5a")


def code(chip: ChipRow) -> bytes:
    """Return what stands for FWSEC's code: a stamped image. On Turing an unsigned block starts it."""
    start = b"" if chip.boots_from_hs else b"\x00RINGUP".ljust(NON_SECURE_BYTES, b"\0")
    room = IMEM_BYTES - len(start)
    return start + stamp(Part.FWSEC, chip.name, RELEASE, bytes(room - STAMP_BYTES))


def data() -> bytes:
    """Return FWSEC's data: the interface table, and the mapper that says where commands go."""
    image = bytearray(DMEM_BYTES)
    # a second entry, since NVIDIA's driver expects two; GUESS: its id
    struct.pack_into("<4B4I", image, INTERFACE_AT, 1, 4, 8, 2, DMEM_MAPPER, MAPPER_AT, 1, ANSWER_AT)
    mask = sum(1 << command for command in COMMANDS)
    MAPPER.pack_into(
        image, MAPPER_AT, MAPPER_MAGIC, MAPPER_VERSION, MAPPER.size, COMMAND_AT, COMMAND_BYTES, ANSWER_AT, COMMAND_BYTES,
        0, 0, 0, 0, 0, 0, 0, mask, 0, 0,
    )  # fmt: skip
    return bytes(image)
