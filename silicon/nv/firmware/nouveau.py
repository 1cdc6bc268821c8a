"""Made-up GSP firmware as the files that Linux's nouveau asks for. A kernel finds them below `firmware_class.path`.

Layouts: nouveau of Linux 6.12, the same in 7.3: nvfw_bin_hdr and nvfw_bl_desc in include/nvfw/fw.h, nvfw_hs_header_v2
and nvfw_hs_load_header_v2 in include/nvfw/hs.h; who reads what: nvkm/subdev/gsp/r535.c, tu102.c, ga102.c, fwsec.c.
"""

from __future__ import annotations

import struct

from ringup.autogen.nv.gsp_boot import RM_RISCV_UCODE_DESC
from ringup.autogen.structs import memory
from ringup.silicon.nv.chips.row import ChipRow
from ringup.silicon.nv.firmware import elf, images

MAGIC, VERSION = 0x10DE, 1
HEADER_BYTES = 24
BLOCK_BYTES = 256
# code of a booter that is not signed; the signed code follows
PLAIN_BYTES = BLOCK_BYTES
# where a generic loader says that it runs, in blocks: behind any signed code. GUESS: what the published one says
LOADER_TAG = 0xFD
# by chip: the family that names the signature of GSP-RM
FAMILIES = {"tu102": "tu10x", "ga100": "ga100", "ga102": "ga10x", "ad102": "ad10x", "gh100": "gh100", "gb202": "gb20x"}


def files(chip: ChipRow, *releases: str) -> dict[str, bytes]:
    """Return the files of these releases, by default of all that nouveau knows, by their names below the folder of
    firmware. It knows one release for chips with an FSP.
    """
    known = (images.LATER,) if chip.fsp else (images.RELEASE, images.LATER)
    named = {
        f"nvidia/{chip.name}/gsp/{name}-{release}.bin": content
        for release in releases or known
        for name, content in _gsp(chip, release).items()
    }
    if not chip.boots_from_hs:
        named[f"nvidia/{chip.name}/acr/bl.bin"] = _loader(images.loader(chip))
    return named


def _gsp(chip: ChipRow, release: str) -> dict[str, bytes]:
    """Return what starts GSP-RM, and GSP-RM itself."""
    made, fmc = images.build(chip, release), images.fmc(chip, release)
    if fmc is None:
        first = {
            "booter_load": _booter(chip, made.booter_load),
            "booter_unload": _booter(chip, made.booter_unload),
        }
    else:
        parts = {"hash": fmc.digest, "signature": fmc.signature, "publickey": fmc.public_key, "image": fmc.image}
        first = {"fmc": elf.build_parts(parts)}
    return first | {
        "bootloader": _bootloader(made.bootloader),
        "gsp": elf.build({".fwimage": made.gsp, f".fwsignature_{FAMILIES[chip.name]}": made.signature}),
    }


def _packed(header: bytes, data: bytes) -> bytes:
    """Return a file: the common header, the header of what it is, and data at a multiple of 256 bytes."""
    at = -(-(HEADER_BYTES + len(header)) // BLOCK_BYTES) * BLOCK_BYTES
    size_bytes = at + len(data)
    first = struct.pack("<6I", MAGIC, VERSION, size_bytes, HEADER_BYTES, at, len(data))
    return (first + header).ljust(at, b"\0") + data


def _booter(chip: ChipRow, program: images.SignedProgram) -> bytes:
    """Return a booter: plain code, signed code, data; its signature, and where the driver puts that."""
    code, data = program.code, program.data
    data_at = PLAIN_BYTES + len(code)
    signature = data[images.SIGNATURE_AT : images.SIGNATURE_AT + images.SIGNATURE_BYTES]
    # offsets in the file, in this order: nine words, the words that three of them point at, fuses, sizes, signature
    words = HEADER_BYTES + 9 * 4
    meta, sizes = words + 12, words + 24
    signature_at = sizes + 7 * 4
    header = struct.pack("<9I", signature_at, len(signature), words, words + 4, meta, 12, words + 8, sizes, 7 * 4)
    header += struct.pack("<3I", data_at + images.SIGNATURE_AT, 0, 1)
    # one signature, for chips whose fuse of this program has version 1
    header += struct.pack("<3I", 1, chip.falcon("sec2").engine_id, images.BOOTER_UCODE_ID)
    header += struct.pack("<7I", 0, PLAIN_BYTES, data_at, len(data), 1, PLAIN_BYTES, len(code))
    return _packed(header + signature, bytes(PLAIN_BYTES) + code + data)


def _bootloader(image: bytes) -> bytes:
    """Return the RISC-V core's bootloader, whose three parts are only named."""
    parts = RM_RISCV_UCODE_DESC(
        version=4, monitorCodeOffset=0, monitorDataOffset=BLOCK_BYTES, manifestOffset=2 * BLOCK_BYTES, appVersion=1
    )
    return _packed(bytes(memory(parts)), image)


def _loader(image: bytes) -> bytes:
    """Return Turing's generic loader of falcon programs."""
    return _packed(struct.pack("<6I", LOADER_TAG, 0, 0, len(image), len(image), 0), image)
