"""Build NVIDIA's firmware files: for tests, and for synthetic cards that need files of the right format.

This module writes what the parsers read, from the same descriptions. The bytes inside are the caller's; nothing here
can sign them. `fields` sets header fields to what no valid file has.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from ringup.autogen.nv.gsp_boot import RM_FLCN_BL_DESC, RM_RISCV_UCODE_DESC
from ringup.firmware.layouts import Fields, Value, build, size_bytes
from ringup.firmware.nv import booter, containers, elf, fmc, gsp
from ringup.firmware.nv.containers import HEADER_BYTES, rounded_up

# nouveau gh100.c, FMC_SHF_FLAGS
FMC_SECTION_FLAGS = 0xFFF0_0102
SHT_PROGBITS = 1


def container(header: bytes, image: bytes, fields: Fields | None = None) -> bytes:
    """Build a container from the header of a kind and the image."""
    data_offset = HEADER_BYTES + len(header)
    head = {
        "bin_magic": containers.MAGIC,
        "bin_ver": 1,
        "bin_size": rounded_up(data_offset + len(image)),
        "header_offset": HEADER_BYTES,
        "data_offset": data_offset,
        "data_size": len(image),
    }
    return build(containers.BIN_HDR, head | dict(fields or {})) + header + image


def sections(
    data: Mapping[str, bytes],
    elf_class: int,
    *,
    machine: int = elf.EM_NONE,
    flags: int = 0,
    crc: bool = False,
    fields: Fields | None = None,
) -> bytes:
    """Build an ELF file of sections; the last one holds the names. `crc` stores each section's CRC in `sh_info`."""
    shape = elf.SHAPES[elf_class]
    names, places = b"\0", {}
    for title in (*data, ".shstrtab"):
        places[title] = len(names)
        names += title.encode() + b"\0"
    at = size_bytes(shape.header) + (len(data) + 2) * size_bytes(shape.section)
    rows, body = bytearray(size_bytes(shape.section)), bytearray()
    for title, content in (*data.items(), (".shstrtab", names)):
        listing = title == ".shstrtab"
        row = {
            "sh_name": places[title],
            "sh_type": elf.SHT_STRTAB if listing else SHT_PROGBITS,
            "sh_flags": 0 if listing else flags,
            "sh_offset": at + len(body),
            "sh_size": len(content),
            "sh_info": zlib.crc32(content) if crc and not listing else 0,
            "sh_addralign": 4,
        }
        rows += build(shape.section, row)
        body += content + bytes(-len(content) % 8)
    head: dict[str, int | bytes] = {
        "e_ident": elf.MAGIC + bytes((elf_class, elf.LITTLE_ENDIAN, 1)) + bytes(9),
        "e_machine": machine,
        "e_version": 1,
        "e_shoff": size_bytes(shape.header),
        "e_ehsize": size_bytes(shape.header),
        "e_shentsize": size_bytes(shape.section),
        "e_shnum": len(data) + 2,
        "e_shstrndx": len(data) + 1,
    }
    return build(shape.header, head | dict(fields or {})) + bytes(rows) + bytes(body)


def gsp_image(
    release: str | None, image: bytes, signatures: Mapping[str, bytes], fields: Fields | None = None
) -> bytes:
    """Build a GSP-RM file; `signatures` are by family, such as `ga10x`."""
    data = {gsp.IMAGE: image}
    if release is not None:
        data[gsp.VERSION] = release.encode() + b"\0"
    data |= {gsp.SIGNATURE + family: signature for family, signature in signatures.items()}
    return sections(data, elf.CLASS_64, machine=elf.EM_RISCV, fields=fields)


def bootloader_image(
    image: bytes, fields: Fields | None = None, descriptor_bytes: int = RM_RISCV_UCODE_DESC.SIZE
) -> bytes:
    """Build a bootloader's file. `fields` are the descriptor's, and the container's with `container.` in front."""
    head = {"version": 4, **_own(fields)}
    return container(build(RM_RISCV_UCODE_DESC, head)[:descriptor_bytes], image, _outer(fields))


def loader_image(code: bytes, start_tag: int, fields: Fields | None = None) -> bytes:
    """Build a generic loader's file; see `bootloader_image` for `fields`."""
    head = {"blStartTag": start_tag, "blImgHeader.blCodeSize": len(code), **_own(fields)}
    return container(build(RM_FLCN_BL_DESC, head), code, _outer(fields))


def booter_image(
    os_code: bytes,
    app_code: bytes,
    data: bytes,
    signatures: tuple[bytes, ...],
    *,
    patch_in_data_bytes: int = 0,
    fuse_ver: int | None = None,
    engine_id: int = 1,
    ucode_id: int = 3,
    fields: Fields | None = None,
) -> bytes:
    """Build a booter's file: unsigned code, signed code, data and the list of signatures.

    The signature goes to `patch_in_data_bytes` of the data. `fields` are those of the signed program's header
    (`hs.`), of the load header (`load.`), of the container (`container.`), and `patch_loc`, `patch_sig` and `num_sig`.
    """
    given = dict(fields or {})
    image = os_code + app_code + data
    listed = b"".join(signatures)
    at = HEADER_BYTES + size_bytes(booter.HS_HEADER)
    numbers = at + len(listed)
    load_at = numbers + 8 + size_bytes(booter.META) + 4
    head: dict[str, Value] = {
        "sig_prod_offset": at,
        "sig_prod_size": len(listed),
        "patch_loc": numbers,
        "patch_sig": numbers + 4,
        "meta_data_offset": numbers + 8,
        "meta_data_size": size_bytes(booter.META),
        "num_sig": load_at - 4,
        "header_offset": load_at,
        # One application has code and data: 36 bytes.
        "header_size": size_bytes(booter.LOAD_HEADER) + 8,
    }
    load: dict[str, int] = {
        "os_code_size": len(os_code),
        "os_data_offset": len(os_code) + len(app_code),
        "os_data_size": len(data),
        "num_apps": 1,
        "app_code_offset": len(os_code),
        "app_code_size": len(app_code),
    }
    meta = {
        "fuse_ver": len(signatures) - 1 if fuse_ver is None else fuse_ver,
        "engine_id": engine_id,
        "ucode_id": ucode_id,
    }
    patch = {"patch_loc": load["os_data_offset"] + patch_in_data_bytes, "patch_sig": 0, "num_sig": len(signatures)}

    def number(name: str) -> bytes:
        return build(booter.NUMBER, {"value": given.get(name, patch[name])})

    header = b"".join(
        (
            build(booter.HS_HEADER, head | _below("hs.", given)),
            listed,
            number("patch_loc"),
            number("patch_sig"),
            build(booter.META, meta),
            number("num_sig"),
            build(booter.LOAD_HEADER, {**load, **_below("load.", given)}),
            bytes(8),
        )
    )
    return container(header, image, _outer(given))


def fmc_image(
    image: bytes, hash384: bytes, public_key: bytes, signature: bytes, *, crc: bool = True, fields: Fields | None = None
) -> bytes:
    """Build the file of the GSP's first code for an FSP; `fields` are the ELF header's."""
    data = {"hash": hash384, "publickey": public_key, "signature": signature, "image": image}
    return sections(data, elf.CLASS_32, flags=FMC_SECTION_FLAGS, crc=crc, fields=fields)


def fmc_for(chip: str, image: bytes) -> bytes:
    """Build such a file with key and signature of the sizes that a chip takes; they are made up."""
    key, signature = fmc.KEYS[chip]
    return fmc_image(image, bytes(fmc.HASH_BYTES), bytes(key), bytes(signature))


def _below(prefix: str, fields: Fields) -> dict[str, Value]:
    return {name.removeprefix(prefix): value for name, value in fields.items() if name.startswith(prefix)}


def _outer(fields: Fields | None) -> Fields:
    return _below("container.", fields or {})


def _own(fields: Fields | None) -> Fields:
    return {name: value for name, value in (fields or {}).items() if not name.startswith("container.")}
