"""The generic falcon loader: unsigned code that loads a program with secure code into the falcon that runs it.

Cards up to GA100 start FWSEC with it. The host writes the loader to the top of IMEM and a descriptor
(`RM_FLCN_BL_DMEM_DESC`, which says where the program is) to DMEM. Source: nouveau include/nvfw/fw.h, nvfw_bl_desc;
gsp/fwsec.c, nvkm_gsp_fwsec_v2 (file `acr/bl.bin`); nova-core fwsec/bootloader.rs (file `gen_bootloader-570.144.bin`);
OGKM rmflcnbl.h, RM_FLCN_BL_DESC; kernel_gsp_falcon_tu102.c, s_prepareHsFalconWithLoader.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ringup.autogen.nv.gsp_boot import RM_FLCN_BL_DESC
from ringup.errors import FirmwareError
from ringup.firmware.layouts import integer, read
from ringup.firmware.nv.containers import Span, check_apart, cut, open_container, rounded_up

# Virtual addresses of IMEM blocks have 16 bits of block number: NV_PFALCON_FALCON_IMEMT_TAG.
MAX_START_TAG = 0xFFFF
MAX_CODE_BYTES = 64 << 10  # IMEM of the falcons that need the loader


@dataclass(frozen=True, slots=True)
class Loader:
    """A checked loader.

    `code` is filled with zeros to whole blocks of 256 bytes. `start_tag` is the number of its first block in virtual
    IMEM. `dmem_load_bytes` is where the file says the descriptor goes.
    """

    name: str
    code: bytes = field(repr=False)
    code_size_bytes: int
    start_tag: int
    # UNKNOWN: nova-core calls this field wrong in published files; all drivers write the descriptor to byte 0.
    dmem_load_bytes: int

    @property
    def boot_bytes(self) -> int:
        """The virtual address for BOOTVEC and for the tags of the code's blocks."""
        return self.start_tag << 8


def parse(blob: bytes, name: str) -> Loader:
    """Read and check a loader's file.

    Raises `FirmwareError`, with the byte, for a truncated file, another container, and code that is outside the image
    or too large for IMEM.
    """
    box = open_container(blob, name)
    desc = read(RM_FLCN_BL_DESC, blob, box.header_offset_bytes, name, "the loader's descriptor")
    check_apart((*box.spans, Span("the loader's descriptor", box.header_offset_bytes, RM_FLCN_BL_DESC.SIZE)), name)
    size, tag = integer(desc, "blImgHeader.blCodeSize"), integer(desc, "blStartTag")
    code = cut(box.data, integer(desc, "blImgHeader.blCodeOffset"), size, name, "the loader's code", "the image")
    if not 0 < size <= MAX_CODE_BYTES:
        raise FirmwareError(f"{name}: the loader's code has {size} bytes; valid are 1 to {MAX_CODE_BYTES}")
    if tag > MAX_START_TAG:
        raise FirmwareError(f"{name}: the loader starts in block {tag:#x}; valid are 0 to {MAX_START_TAG:#x}")
    return Loader(name, code.ljust(rounded_up(size), b"\0"), size, tag, integer(desc, "blDmemDescLoadOff"))
