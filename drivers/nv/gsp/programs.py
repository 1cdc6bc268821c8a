"""Signed falcon programs, loaded and run: FWSEC of the VBIOS, and the booters.

From GA102 on the engine fetches them and its boot ROM checks a signature; before, a booter goes through the ports, and
FWSEC through a small loader that fetches it. Source: OGKM kernel_gsp_falcon_tu102.c, kgspExecuteHsFalcon_TU102;
kernel_gsp_falcon_ga102.c, kgspExecuteHsFalcon_GA102; kernel_gsp_ga100.c and kernel_sec2_ga100.c,
…ReadUcodeFuseVersion_GA100.
"""

from __future__ import annotations

from ringup.autogen.layout import Word
from ringup.autogen.nv.boot import (
    NV_FUSE_OPT_FPF_GSP_UCODE1_VERSION,
    NV_FUSE_OPT_FPF_NVDEC_UCODE1_VERSION,
    NV_FUSE_OPT_FPF_SEC2_UCODE1_VERSION,
)
from ringup.autogen.nv.falcon import NV_PFALCON_FALCON_HWCFG
from ringup.autogen.nv.gsp_boot import RM_FLCN_BL_DMEM_DESC
from ringup.autogen.structs import memory as bytes_of
from ringup.drivers.nv.bus.registers import Block
from ringup.drivers.nv.gsp.falcon import BLOCK_BYTES, LOADER_DMA_INDEX, Falcon, Segment
from ringup.drivers.nv.gsp.host_memory import HostMemory
from ringup.errors import FirmwareError
from ringup.firmware.nv.loader import Loader
from ringup.firmware.nv.ucode import FalconUcode, Part

# an engine's bit in a program's mask: the first of its 16 fuses. Source: Linux nouveau falcon/ga100.c, gsp/ga102.c
FUSES: dict[int, type[Word]] = {
    0x1: NV_FUSE_OPT_FPF_SEC2_UCODE1_VERSION,
    0x4: NV_FUSE_OPT_FPF_NVDEC_UCODE1_VERSION,
    0x400: NV_FUSE_OPT_FPF_GSP_UCODE1_VERSION,
}
MAX_UCODE_ID = 16
LOW = 0xFFFF_FFFF


def fuse_version(block: Block, ucode: FalconUcode) -> int:
    """Return the version that the card's fuses ask of a program's signature; 0 on chips without such fuses, and for a
    program that takes no signature, such as GA100's FWSEC.

    Raises `FirmwareError` for a program of an engine without them.
    """
    if ucode.signature_offset_bytes is None or not block.has(NV_FUSE_OPT_FPF_GSP_UCODE1_VERSION):
        return 0
    first = next((word for mask, word in FUSES.items() if ucode.engine_id_mask & mask), None)
    if first is None or not 1 <= ucode.ucode_id <= MAX_UCODE_ID:
        raise FirmwareError(
            f"{ucode.name}: engines {ucode.engine_id_mask:#x} and number {ucode.ucode_id} have no fuse for its version"
        )
    value = first(block.registers.read(block.address(first) + 4 * (ucode.ucode_id - 1)) & first.FIELDS["data"].mask)
    return int(value).bit_length()


def execute(
    falcon: Falcon,
    ucode: FalconUcode,
    memory: HostMemory,
    doing: str,
    mailboxes: tuple[int, int] | None = None,
    loader: Loader | None = None,
) -> tuple[int, int]:
    """Load a program that has its signature into a falcon that was reset, run it, and return the mailboxes.

    `loader` is needed for a program that says so. Raises `DeviceTimeout`, `FirmwareError`.
    """
    falcon.allow_physical()
    if not falcon.family.boot_rom and not ucode.needs_loader:
        return falcon.run(_through_ports(falcon, ucode), doing, mailboxes)
    image = memory.put(ucode.image, ucode.name)
    at = image.bus_addr()
    vector = _fetched(falcon, ucode, at) if falcon.family.boot_rom else _with_loader(falcon, ucode, at, loader)
    told = falcon.run(vector, doing, mailboxes)
    # ORDER: only when it has halted; one that has not may still fetch, so its image stays until the bus is taken away
    memory.release(image)
    return told


def _through_ports(falcon: Falcon, ucode: FalconUcode) -> int:
    if ucode.non_secure is not None:
        plain = ucode.non_secure
        falcon.load_imem(ucode.bytes_of(plain), plain.memory_bytes, plain.virtual_bytes)
    secure, data = ucode.secure, ucode.data
    falcon.load_imem(ucode.bytes_of(secure), secure.memory_bytes, secure.virtual_bytes, secure=True)
    falcon.load_dmem(ucode.bytes_of(data), data.memory_bytes)
    return ucode.boot_bytes


def _fetched(falcon: Falcon, ucode: FalconUcode, bus_addr: int) -> int:
    falcon.aim(0)
    falcon.fetch(bus_addr, _segment(ucode.secure, ucode.secure.virtual_bytes), code=True)
    falcon.fetch(bus_addr, _segment(ucode.data, 0), code=False)
    falcon.set_signature(ucode.pkc_data_offset_bytes, ucode.engine_id_mask, ucode.ucode_id)
    return ucode.boot_bytes


def _with_loader(falcon: Falcon, ucode: FalconUcode, bus_addr: int, loader: Loader | None) -> int:
    plain, secure, data = ucode.non_secure, ucode.secure, ucode.data
    if loader is None or plain is None:
        raise FirmwareError(
            f"{ucode.name}: the program needs a loader, and {'none is there' if plain else 'has no code for it'}"
        )
    # the loader adds these to the base, and uses them as addresses in IMEM too
    code = bus_addr + plain.offset_bytes - plain.memory_bytes
    told = RM_FLCN_BL_DMEM_DESC(
        ctxDma=LOADER_DMA_INDEX,
        nonSecureCodeOff=plain.memory_bytes,
        nonSecureCodeSize=plain.size_bytes,
        secureCodeOff=secure.memory_bytes,
        secureCodeSize=secure.size_bytes,
        codeEntryPoint=0,
        dataSize=data.size_bytes,
    )
    told.codeDmaBase.lo, told.codeDmaBase.hi = code & LOW, code >> 32
    at = bus_addr + data.offset_bytes
    told.dataDmaBase.lo, told.dataDmaBase.hi = at & LOW, at >> 32
    falcon.aim(LOADER_DMA_INDEX)
    falcon.load_dmem(bytes(bytes_of(told)), 0)
    blocks = falcon.block.read(NV_PFALCON_FALCON_HWCFG).imem_size
    top = blocks * BLOCK_BYTES - len(loader.code)
    if top < 0:
        raise FirmwareError(f"{loader.name}: {len(loader.code)} bytes do not fit into {blocks} blocks of IMEM")
    falcon.load_imem(loader.code, top, loader.boot_bytes)
    return loader.boot_bytes


def _segment(part: Part, tag: int) -> Segment:
    return Segment(part.offset_bytes, part.padded_bytes, part.memory_bytes, tag)
