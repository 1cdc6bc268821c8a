"""FWSEC, the first program of a GSP's boot on cards without an FSP: it comes from the card's ROM, runs on the GSP's
falcon, and sets up protected memory (FRTS) or the power unit's programs (SB).

A descriptor in front of the program says where code and data go. Version 2 (up to GA100) is loaded by the generic
loader; version 3 is checked by the falcon's boot ROM. An interface in the data takes the command.

Source: OGKM kernel_gsp_fwsec.c, s_vbiosFillFlcnUcodeFromDescV2 and …V3; kernel_gsp_frts_tu102.c,
s_vbiosPatchInterfaceData and s_executeFwsec_TU102; nouveau gsp/fwsec.c; nova-core firmware/fwsec.rs.
"""

from __future__ import annotations

from construct import Int8ul, Int16ul, Int32ul, Int64ul
from construct import Struct as Layout

from ringup.errors import FirmwareError
from ringup.firmware.layouts import Fields, build, integer, read, size_bytes
from ringup.firmware.nv.containers import Span, check_apart, check_inside, cut, rounded_up
from ringup.firmware.nv.ucode import RSA3K_BYTES, DmemMapper, FalconUcode, Part

# The descriptor's first number, FALCON_UCODE_DESC_HEADER: flag, version, size of the descriptor with its signatures.
VERSION_AVAILABLE, VERSION_SHIFT, SIZE_SHIFT = 1, 8, 16
# The limit for one of a falcon's memories; those that run FWSEC have 64 to 128 KB.
MAX_MEMORY_BYTES = 1 << 20
DESC_V2 = Layout(
    "Hdr" / Int32ul,
    "StoredSize" / Int32ul,
    "UncompressedSize" / Int32ul,
    "VirtualEntry" / Int32ul,
    "InterfaceOffset" / Int32ul,
    "IMEMPhysBase" / Int32ul,
    "IMEMLoadSize" / Int32ul,
    "IMEMVirtBase" / Int32ul,
    "IMEMSecBase" / Int32ul,
    "IMEMSecSize" / Int32ul,
    "DMEMOffset" / Int32ul,
    "DMEMPhysBase" / Int32ul,
    "DMEMLoadSize" / Int32ul,
    "altIMEMLoadSize" / Int32ul,
    "altDMEMLoadSize" / Int32ul,
)
DESC_V3 = Layout(
    "Hdr" / Int32ul,
    "StoredSize" / Int32ul,
    "PKCDataOffset" / Int32ul,
    "InterfaceOffset" / Int32ul,
    "IMEMPhysBase" / Int32ul,
    "IMEMLoadSize" / Int32ul,
    "IMEMVirtBase" / Int32ul,
    "DMEMPhysBase" / Int32ul,
    "DMEMLoadSize" / Int32ul,
    "EngineIdMask" / Int16ul,
    "UcodeId" / Int8ul,
    "SignatureCount" / Int8ul,
    "SignatureVersions" / Int16ul,
    "Reserved" / Int16ul,
)
DESCRIPTORS = {2: DESC_V2, 3: DESC_V3}
INTERFACE = Layout(
    "version" / Int8ul,
    "header_size" / Int8ul,
    "entry_size" / Int8ul,
    "entry_count" / Int8ul,
)
INTERFACE_FIELDS = ("version", "header_size", "entry_size", "entry_count")
INTERFACE_VERSION = 1
INTERFACE_ENTRY = Layout("id" / Int32ul, "dmem_offset" / Int32ul)
DMEMMAPPER = 4
MAPPER_V3 = Layout(  # FALCON_APPLICATION_INTERFACE_DMEM_MAPPER_V3
    "signature" / Int32ul,
    "version" / Int16ul,
    "size" / Int16ul,
    "cmd_in_buffer_offset" / Int32ul,
    "cmd_in_buffer_size" / Int32ul,
    "cmd_out_buffer_offset" / Int32ul,
    "cmd_out_buffer_size" / Int32ul,
    "nvf_img_data_buffer_offset" / Int32ul,
    "nvf_img_data_buffer_size" / Int32ul,
    "printf_buffer_hdr" / Int32ul,
    "ucode_build_time_stamp" / Int32ul,
    "ucode_signature" / Int32ul,
    "init_cmd" / Int32ul,
    "ucode_feature" / Int32ul,
    "ucode_cmd_mask0" / Int32ul,
    "ucode_cmd_mask1" / Int32ul,
    "multi_tgt_tbl" / Int32ul,
)
INIT_CMD_OFFSET = 0x2C  # of init_cmd in MAPPER_V3

# Commands for `FalconUcode.commanded`.
CMD_FRTS, CMD_SB = 0x15, 0x19
READ_VBIOS = Layout("version" / Int32ul, "size" / Int32ul, "address" / Int64ul, "length" / Int32ul, "flags" / Int32ul)
READ_VBIOS_FLAGS = 2  # FWSECLIC_READ_VBIOS_STRUCT_FLAGS
FRTS_REGION = Layout(
    "version" / Int32ul,
    "size" / Int32ul,
    "offset_4k" / Int32ul,
    "size_4k" / Int32ul,
    "media_type" / Int32ul,
)
FRTS_MEDIA_FB = 2
PAGE_BYTES = 4096


def sb_arguments() -> bytes:
    """Return the arguments of CMD_SB: which ROM to read. The program finds it itself."""
    return build(READ_VBIOS, {"version": 1, "size": size_bytes(READ_VBIOS), "flags": READ_VBIOS_FLAGS})


def frts_arguments(vram_pa: int, length_bytes: int) -> bytes:
    """Return the arguments of CMD_FRTS: the range of the card's memory to protect, in whole pages of 4 KiB."""
    if vram_pa % PAGE_BYTES or length_bytes % PAGE_BYTES or vram_pa < 0 or length_bytes <= 0:
        raise ValueError(f"FRTS takes whole pages of {PAGE_BYTES} bytes, not {length_bytes:#x} bytes at {vram_pa:#x}")
    region = {
        "version": 1,
        "size": size_bytes(FRTS_REGION),
        "offset_4k": vram_pa // PAGE_BYTES,
        "size_4k": length_bytes // PAGE_BYTES,
        "media_type": FRTS_MEDIA_FB,
    }
    return sb_arguments() + build(FRTS_REGION, region)


def parse(rom: bytes, offset_bytes: int, name: str) -> FalconUcode:
    """Read and check FWSEC, whose descriptor is at `offset_bytes` of a ROM's images.

    Raises `FirmwareError`, with the byte, for an unknown descriptor, for a part outside the ROM, outside the program or
    over another one, and for a program without an interface for commands.
    """
    what = "FWSEC's descriptor"
    head = int.from_bytes(cut(rom, offset_bytes, 4, name, what, "the ROM"), "little")
    version, size = head >> VERSION_SHIFT & 0xFF, head >> SIZE_SHIFT
    if not head & VERSION_AVAILABLE or version not in DESCRIPTORS:
        raise FirmwareError(
            f"{name}: {what} at byte {offset_bytes:#x} begins with {head:#010x}; known are versions"
            f" {', '.join(map(str, DESCRIPTORS))} (bits 15:8, with bit 0 set)"
        )
    if size < size_bytes(DESCRIPTORS[version]):
        raise FirmwareError(
            f"{name}: {what} of version {version} says that it has {size} bytes,"
            f" fewer than {size_bytes(DESCRIPTORS[version])}"
        )
    raw = cut(rom, offset_bytes, size, name, what, "the ROM")
    desc = read(DESCRIPTORS[version], raw, 0, name, what)
    for field_name in ("IMEMLoadSize", "DMEMLoadSize"):
        if not 0 < integer(desc, field_name) <= MAX_MEMORY_BYTES:
            raise FirmwareError(
                f"{name}: {what} states {field_name} as {integer(desc, field_name):#x}; valid are 1 to {MAX_MEMORY_BYTES:#x}"
            )
    return _PARSERS[version](rom, offset_bytes + size, raw, desc, f"{name} FWSEC")


def _parse_v2(rom: bytes, start: int, raw: bytes, desc: Fields, name: str) -> FalconUcode:
    """Read a program that the generic loader loads: unsigned code, then signed code, then data."""
    del raw
    load, secure_size = integer(desc, "IMEMLoadSize"), integer(desc, "IMEMSecSize")
    virtual, physical = integer(desc, "IMEMVirtBase"), integer(desc, "IMEMPhysBase")
    secure_at = integer(desc, "IMEMSecBase") - virtual
    if secure_at < 0 or not 0 < secure_size <= load or secure_at + secure_size > load:
        raise FirmwareError(
            f"{name}: signed code takes bytes {secure_at} to {secure_at + secure_size} of the code, which has {load}"
        )
    open_code = Span("the unsigned code", 0, load - secure_size)
    secure = Span("the signed code", secure_at, secure_size)
    data = Span("the data", integer(desc, "DMEMOffset"), integer(desc, "DMEMLoadSize"))
    check_apart((open_code, secure, data), name)
    length = max(load, data.end_bytes)
    if length > 2 * MAX_MEMORY_BYTES:
        raise FirmwareError(f"{name}: the data ends at byte {data.end_bytes} of the program")
    image = cut(rom, start, length, name, "the program", "the ROM")
    entry = integer(desc, "VirtualEntry")
    ucode = FalconUcode(
        name,
        image.ljust(rounded_up(len(image)), b"\0"),
        Part(0, open_code.size_bytes, physical, virtual),
        Part(secure_at, secure_size, physical + secure_at, virtual + secure_at),
        Part(data.offset_bytes, data.size_bytes, integer(desc, "DMEMPhysBase")),
        entry,
        needs_loader=True,
        mapper=_mapper(image[data.offset_bytes : data.end_bytes], integer(desc, "InterfaceOffset"), name),
    )
    _check_memories(ucode)
    return ucode


def _parse_v3(rom: bytes, start: int, raw: bytes, desc: Fields, name: str) -> FalconUcode:
    """Read a program that the falcon's boot ROM checks: signed code, then data; signatures are in the descriptor."""
    load, dmem = integer(desc, "IMEMLoadSize"), integer(desc, "DMEMLoadSize")
    stored = integer(desc, "StoredSize")
    if load + dmem > stored:
        raise FirmwareError(f"{name}: code and data have {load + dmem} bytes, the stored program {stored}")
    image = cut(rom, start, load + dmem, name, "the program", "the ROM")
    count, first = integer(desc, "SignatureCount"), size_bytes(DESC_V3)
    listed = cut(raw, first, count * RSA3K_BYTES, name, f"the list of {count} signatures", "the descriptor")
    pkc = integer(desc, "PKCDataOffset")
    check_inside((Span("the place of the signature", pkc, RSA3K_BYTES),), dmem, name, "the data")
    ucode = FalconUcode(
        name,
        image.ljust(rounded_up(len(image)), b"\0"),
        None,
        Part(0, load, integer(desc, "IMEMPhysBase"), integer(desc, "IMEMVirtBase")),
        Part(load, dmem, integer(desc, "DMEMPhysBase")),
        integer(desc, "IMEMVirtBase"),
        tuple(listed[at : at + RSA3K_BYTES] for at in range(0, len(listed), RSA3K_BYTES)),
        load + pkc if count else None,
        pkc,
        integer(desc, "EngineIdMask"),
        integer(desc, "UcodeId"),
        integer(desc, "SignatureVersions"),
        mapper=_mapper(image[load:], integer(desc, "InterfaceOffset"), name),
    )
    _check_memories(ucode)
    return ucode


_PARSERS = {2: _parse_v2, 3: _parse_v3}


def _check_memories(ucode: FalconUcode) -> None:
    """Check that the parts' places in IMEM and DMEM are places that a falcon can have."""
    for what, part in (("code", ucode.secure), ("data", ucode.data)):
        if part.memory_bytes + part.size_bytes > MAX_MEMORY_BYTES or part.virtual_bytes > MAX_MEMORY_BYTES:
            raise FirmwareError(
                f"{ucode.name}: {part.size_bytes} bytes of {what} go to {part.memory_bytes:#x} (virtual"
                f" {part.virtual_bytes:#x}); no falcon has more than {MAX_MEMORY_BYTES:#x} bytes"
            )


def _mapper(dmem: bytes, offset_bytes: int, name: str) -> DmemMapper:
    """Find the interface for commands in the program's data."""
    head = read(INTERFACE, dmem, offset_bytes, name, "the list of interfaces in the data")
    version, first, step, count = (integer(head, one) for one in INTERFACE_FIELDS)
    if version != INTERFACE_VERSION:
        raise FirmwareError(f"{name}: the list of interfaces has version {version}; known: {INTERFACE_VERSION}")
    if first < size_bytes(INTERFACE) or step < size_bytes(INTERFACE_ENTRY):
        raise FirmwareError(f"{name}: the list of interfaces has a header of {first} and entries of {step} bytes")
    at = None
    for index in range(count):
        row = read(INTERFACE_ENTRY, dmem, offset_bytes + first + index * step, name, f"interface {index} in the data")
        # the last one counts, as with OGKM
        at = integer(row, "dmem_offset") if integer(row, "id") == DMEMMAPPER else at
    if at is None:
        raise FirmwareError(f"{name}: none of the {count} interfaces in the data is the DMEM mapper ({DMEMMAPPER})")
    found = read(MAPPER_V3, dmem, at, name, "the DMEM mapper in the data")
    # Only the arguments' place must be there: public drivers take any stated sizes. `commanded` checks the rest
    start = Span("the mapper's cmd_in_buffer", integer(found, "cmd_in_buffer_offset"), 0)
    check_inside((start,), len(dmem), name, "the data")
    return DmemMapper(
        at,
        at + INIT_CMD_OFFSET,
        start.offset_bytes,
        integer(found, "cmd_in_buffer_size"),
        integer(found, "cmd_out_buffer_offset"),
        integer(found, "cmd_out_buffer_size"),
        integer(found, "ucode_build_time_stamp"),
        integer(found, "ucode_feature"),
        integer(found, "ucode_cmd_mask0"),
        integer(found, "ucode_cmd_mask1"),
    )
