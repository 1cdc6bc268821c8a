"""Build an NVIDIA expansion ROM with FWSEC: for tests, and for synthetic cards.

As in `build`, the bytes inside are the caller's, and `fields` sets what no valid ROM has.
"""

from __future__ import annotations

from collections.abc import Mapping

from ringup.firmware.layouts import Fields, Value, build, size_bytes
from ringup.firmware.nv import fwsec, vbios
from ringup.firmware.nv.containers import rounded_up
from ringup.firmware.nv.ucode import RSA3K_BYTES

# Where `fwsec_data` puts the interface, the mapper and the command's buffers.
INTERFACE_AT, MAPPER_AT, IN_AT, OUT_AT, BUFFER_BYTES = 0x20, 0x40, 0x100, 0x180, 0x80
PCIR_AT, NPDE_AT, BIT_AT = 0x40, 0x60, 0x100
NPDE_BYTES = 12


def fwsec_data(size: int = 0x400, fields: Fields | None = None) -> bytes:
    """Return FWSEC's data: the list of interfaces, the DMEM mapper, buffers. `fields` are the mapper's."""
    made = bytearray(size)
    head = {"version": 1, "header_size": 4, "entry_size": 8, "entry_count": 2}
    rows = build(fwsec.INTERFACE, head)
    rows += build(fwsec.INTERFACE_ENTRY, {"id": 1, "dmem_offset": 0})
    rows += build(fwsec.INTERFACE_ENTRY, {"id": fwsec.DMEMMAPPER, "dmem_offset": MAPPER_AT})
    made[INTERFACE_AT : INTERFACE_AT + len(rows)] = rows
    mapper = {
        "version": 3,
        "size": size_bytes(fwsec.MAPPER_V3),
        "cmd_in_buffer_offset": IN_AT,
        "cmd_in_buffer_size": BUFFER_BYTES,
        "cmd_out_buffer_offset": OUT_AT,
        "cmd_out_buffer_size": BUFFER_BYTES,
    }
    block = build(fwsec.MAPPER_V3, mapper | dict(fields or {}))
    made[MAPPER_AT : MAPPER_AT + len(block)] = block
    return bytes(made)


def fwsec_v3(
    code: bytes,
    data: bytes,
    signatures: tuple[bytes, ...],
    versions: int,
    *,
    pkc: int = 0x200,
    fields: Fields | None = None,
) -> bytes:
    """Build FWSEC for a falcon with a boot ROM: descriptor, signatures, code, data. `fields` are the descriptor's."""
    size = size_bytes(fwsec.DESC_V3) + sum(map(len, signatures))
    head = {
        "Hdr": _header(3, size),
        "StoredSize": len(code) + len(data),
        "PKCDataOffset": pkc,
        "InterfaceOffset": INTERFACE_AT,
        "IMEMLoadSize": len(code),
        "DMEMLoadSize": len(data),
        "EngineIdMask": 0x400,
        "UcodeId": 9,
        "SignatureCount": len(signatures),
        "SignatureVersions": versions,
    }
    return build(fwsec.DESC_V3, head | dict(fields or {})) + b"".join(signatures) + code + data


def fwsec_v2(open_code: bytes, code: bytes, data: bytes, fields: Fields | None = None) -> bytes:
    """Build FWSEC for the generic loader: descriptor, unsigned code, signed code, data."""
    load = len(open_code) + len(code)
    head = {
        "Hdr": _header(2, size_bytes(fwsec.DESC_V2)),
        "StoredSize": load + len(data),
        "UncompressedSize": load + len(data),
        "InterfaceOffset": INTERFACE_AT,
        "IMEMLoadSize": load,
        "IMEMSecBase": len(open_code),
        "IMEMSecSize": len(code),
        "DMEMOffset": load,
        "DMEMLoadSize": len(data),
    }
    return build(fwsec.DESC_V2, head | dict(fields or {})) + open_code + code + data


def default_fwsec(signatures: int = 2) -> bytes:
    """Return a small FWSEC of version 3 with signatures for the fuse versions from 1 on."""
    made = tuple(bytes([number + 1]) * RSA3K_BYTES for number in range(signatures))
    return fwsec_v3(bytes(range(256)), fwsec_data(), made, ((1 << signatures) - 1) << 1)


def rom_image(
    code_type: int,
    body: bytes,
    *,
    last: bool = False,
    device: int = 0x2204,
    npde: bool = True,
    size: int | None = None,
    fields: Fields | None = None,
) -> bytes:
    """Build one image of a chain: headers, then `body` from byte 0x100 on. `fields` are the PCI data's.

    The image's bytes add up to 0. Its last byte is not the body's.
    """
    length = rounded_up(max(size or 0, BIT_AT + len(body) + 1), vbios.BLOCK_BYTES)
    made = bytearray(length)
    made[: size_bytes(vbios.ROM_HEADER)] = build(vbios.ROM_HEADER, {"signature": 0xAA55, "pcir": PCIR_AT})
    pcir: dict[str, Value] = {
        "signature": b"PCIR",
        "vendor": 0x10DE,
        "device": device,
        "length": 0x18,
        "class_code": b"\0\0\3",
        "image_blocks": length // vbios.BLOCK_BYTES,
        "code_type": code_type,
        "last_image": vbios.LAST_IMAGE if last else 0,
    }
    made[PCIR_AT : PCIR_AT + size_bytes(vbios.PCIR)] = build(vbios.PCIR, pcir | dict(fields or {}))
    if npde:
        extension: dict[str, Value] = {
            "signature": vbios.NPDE,
            "revision": 0x101,
            "length": NPDE_BYTES,
            "subimage_blocks": length // vbios.BLOCK_BYTES,
        }
        made[NPDE_AT : NPDE_AT + size_bytes(vbios.NPDE_HEAD)] = build(vbios.NPDE_HEAD, extension)
        made[NPDE_AT + vbios.NPDE_LAST_OFFSET] = vbios.LAST_IMAGE if last else 0
    made[BIT_AT : BIT_AT + len(body)] = body
    made[-1] = -sum(made) & 0xFF
    return bytes(made)


def bit_table(tokens: Mapping[str, tuple[int, bytes]], fields: Fields | None = None, at: int = BIT_AT) -> bytes:
    """Build a BIOS information table with its tokens' data behind it: letter to version and data."""
    head: dict[str, Value] = {
        "magic": vbios.BIT_MAGIC,
        "bcd_version": 0x100,
        "header_size": size_bytes(vbios.BIT),
        "token_size": size_bytes(vbios.TOKEN),
        "token_entries": len(tokens),
        **(fields or {}),
    }
    head["checksum"] = -sum(build(vbios.BIT, head)) & 0xFF
    place = at + size_bytes(vbios.BIT) + len(tokens) * size_bytes(vbios.TOKEN)
    rows, data = b"", b""
    for letter, (version, content) in tokens.items():
        row: dict[str, Value] = {
            "id": letter.encode("latin-1"),
            "data_version": version,
            "data_size": len(content),
            "data_offset": place,
        }
        rows += build(vbios.TOKEN, row)
        data += content
        place += len(content)
    return build(vbios.BIT, head) + rows + data


def ucode_table(entries: tuple[tuple[int, int], ...], fields: Fields | None = None) -> bytes:
    """Build the list of falcon programs: application id and pointer of each."""
    head = {
        "version": vbios.UCODE_TABLE_VERSION,
        "header_size": size_bytes(vbios.UCODE_TABLE),
        "entry_size": size_bytes(vbios.UCODE_ENTRY),
        "entry_count": len(entries),
    }
    rows = [build(vbios.UCODE_ENTRY, {"application_id": one, "descriptor": place}) for one, place in entries]
    return build(vbios.UCODE_TABLE, head | dict(fields or {})) + b"".join(rows)


def expansion_rom(
    programs: Mapping[int, bytes] | None = None,
    *,
    version: tuple[int, int] = (0x9402_4200, 0xA1),
    efi: bool = True,
    device: int = 0x2204,
    tokens: Mapping[str, tuple[int, bytes]] | None = None,
) -> bytes:
    """Build a ROM: base image with the BIT, an EFI image, an extension with the list of falcon programs, a second one
    with the programs by application id.

    Pointers count as in NVIDIA's ROMs, without the EFI image between.
    """
    if programs is None:
        programs = {vbios.FWSEC_PROD: default_fwsec()}
    base_size = 4 * vbios.BLOCK_BYTES
    listing_size = rounded_up(BIT_AT + len(ucode_table(())) + 6 * len(programs) + 1, vbios.BLOCK_BYTES)
    at, entries, body = base_size + listing_size + BIT_AT, [], b""
    for application, program in programs.items():
        entries.append((application, at + len(body)))
        body += program
    found = {
        "B": (2, build(vbios.VERSION, {"version": version[0], "oem_version": version[1]}) + bytes(3)),
        "i": (2, build(vbios.VERSION, {"version": version[0], "oem_version": version[1]})),
        vbios.FALCON_TOKEN: (vbios.FALCON_TOKEN_VERSION, build(vbios.NUMBER, {"value": base_size + BIT_AT})),
        **(tokens or {}),
    }
    images = [rom_image(vbios.BASE, bit_table(found), size=base_size, device=device)]
    if efi:
        images.append(rom_image(vbios.EFI, b"MZ", device=device))
    images.append(rom_image(vbios.EXTENSION, ucode_table(tuple(entries)), size=listing_size, device=device))
    images.append(rom_image(vbios.EXTENSION, body, last=True, device=device))
    return b"".join(images)


def with_ifr(rom: bytes, ifr_version: int = 3) -> bytes:
    """Put initialisation data in front of a ROM, as the register window shows it."""
    words = {"fixed0": 0x4947_564E, "fixed1": ifr_version << 8 | 0x40 << 16, "fixed2": 0x80}
    head = bytearray(0x3000)
    for index, word in enumerate(words.values()):
        head[4 * index : 4 * index + 4] = word.to_bytes(4, "little")
    if ifr_version == 3:
        # The flash status is at 0x1000, the directory 4096 bytes behind it.
        head[0x80:0x84] = (0x1000).to_bytes(4, "little")
        head[0x2000:0x200C] = vbios.ROM_DIRECTORY + bytes(4) + len(head).to_bytes(4, "little")
    else:
        head[0x44:0x48] = len(head).to_bytes(4, "little")
    return bytes(head) + rom


def _header(version: int, size: int) -> int:
    return fwsec.VERSION_AVAILABLE | version << fwsec.VERSION_SHIFT | size << fwsec.SIZE_SHIFT
