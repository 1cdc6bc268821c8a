"""The generic falcon loader: unsigned code that brings a signed program into a falcon by DMA.

Source: rmflcnbl.h (RM_FLCN_BL_DMEM_DESC) and s_prepareHsFalconWithLoader in kernel_gsp_falcon_tu102.c.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringup.autogen.nv.gsp_boot import RM_FLCN_BL_DMEM_DESC, NvU64_ALIGN32
from ringup.silicon.nv.board.falcon_memory import BLOCK_BYTES

if TYPE_CHECKING:
    from ringup.silicon.nv.board.falcon import Falcon, Target


def load(falcon: Falcon) -> bool:
    """Load code and data as the descriptor at DMEM 0 says; return whether it was possible."""
    descriptor = RM_FLCN_BL_DMEM_DESC.view(bytearray(falcon.dmem.read(0, RM_FLCN_BL_DMEM_DESC.SIZE)))
    target = falcon.context(descriptor.ctxDma & 7)
    if target is None:
        return False
    code = _address(descriptor.codeDmaBase)
    parts = (
        (descriptor.nonSecureCodeOff, descriptor.nonSecureCodeSize, False),
        (descriptor.secureCodeOff, descriptor.secureCodeSize, True),
    )
    for offset, size_bytes, secure in parts:
        if offset % BLOCK_BYTES or offset + size_bytes > falcon.imem.size_bytes:
            falcon.mistake("the loader is told to load {:#x} bytes of code at {:#x}", size_bytes, offset)
            return False
        _copy(falcon, target, code + offset, offset, size_bytes, secure=secure)
    data = falcon.fetch(target, _address(descriptor.dataDmaBase), descriptor.dataSize)
    if not falcon.dmem.write(0, data):
        falcon.mistake("the loader is told to load {:#x} bytes of data", descriptor.dataSize)
        return False
    return True


def _copy(falcon: Falcon, target: Target, source: int, offset: int, size_bytes: int, *, secure: bool) -> None:
    size_bytes = -(-size_bytes // BLOCK_BYTES) * BLOCK_BYTES
    data = falcon.fetch(target, source, size_bytes)
    for at in range(0, size_bytes, BLOCK_BYTES):
        block = (offset + at) // BLOCK_BYTES
        falcon.imem.tag(block, block, secure=secure)
        falcon.imem.write(offset + at, data[at : at + BLOCK_BYTES])


def _address(base: NvU64_ALIGN32) -> int:
    """Return a 64-bit address that a structure holds as two words."""
    return base.lo | base.hi << 32
