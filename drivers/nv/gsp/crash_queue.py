"""Where GSP's processor leaves its crash reports: a ring of bytes that registers of its falcon point to ("wayfinders").

Nothing is written: the reports stay where they are, and each look finds all of them. Source: OGKM nv-crashcat.h;
crashcat_wayfinder_v1.c, crashcat_queue_v1.c; kernel_crashcat_engine_tu102.c (registers, DMEM), kernel_gsp_tu102.c,
kgspReadEmem_TU102.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ringup.autogen.layout import Field, Word
from ringup.autogen.nv import engines, falcon
from ringup.drivers.nv.bus.registers import Block, is_pri_error
from ringup.drivers.nv.gsp.crash_report import SIGNATURE, UNIT_BYTES, VERSION, WORD_BYTES, CrashReport, decode
from ringup.drivers.nv.gsp.falcon import Falcon
from ringup.errors import DeviceLost, FirmwareError, RingupError

# NV_CRASHCAT_SCRATCH_GROUP_ID: groups of four registers: two say where the queue is, then come its put and get
GROUPS = {
    2: falcon.NV_PFALCON_FALCON_COMMON_SCRATCH_GROUP_0,
    3: falcon.NV_PFALCON_FALCON_COMMON_SCRATCH_GROUP_1,
    4: falcon.NV_PFALCON_FALCON_COMMON_SCRATCH_GROUP_2,
    5: falcon.NV_PFALCON_FALCON_COMMON_SCRATCH_GROUP_3,
}
# NV_CRASHCAT_MEM_APERTURE
HOST, VRAM, DMEM, EMEM = range(4)
PORT, BLOCK_BYTES = 0, 256
# a limit of ours for one look: each dword is a read of a register
MAX_BYTES = 16 << 10


class WayfinderL0(Word):
    """NV_CRASHCAT_WAYFINDER_L0: whether there are reports, and which registers say where."""

    signature = Field(15, 0)
    version = Field(19, 16)
    wfl1_location = Field(22, 20)


class WayfinderL1(Word, width=64):
    """NV_CRASHCAT_WAYFINDER_L1_V1: the memory that the queue lies in, where, and how large it is."""

    queue_aperture = Field(2, 0)
    queue_unit_size = Field(4, 3)
    queue_size = Field(9, 6)
    queue_offset_1kb = Field(63, 10)


@dataclass(frozen=True, slots=True)
class Crashes:
    """The reports that were there, and what could not be read."""

    reports: tuple[CrashReport, ...] = ()
    unread: tuple[str, ...] = ()


NONE = Crashes()


def read(gsp: Falcon) -> Crashes:
    """Return the crash reports of GSP's processor. It raises no error of a card: what is in the way is said in the
    result; nothing is said of a card that is gone.
    """
    try:
        return _read(gsp)
    except DeviceLost:
        return NONE
    except RingupError as error:
        return Crashes(unread=(f"crash reports cannot be read: {error}",))


def _read(gsp: Falcon) -> Crashes:
    raw = int(gsp.block.read(falcon.NV_PFALCON_FALCON_DEBUGINFO))
    first = WayfinderL0(raw)
    if is_pri_error(raw) or first.signature != SIGNATURE:
        return NONE
    group = GROUPS.get(first.wfl1_location)
    if first.version != VERSION or group is None:
        return _unread(f"reports of version {first.version} at place {first.wfl1_location}, which ringup does not read")
    low, high, put, get = (int(gsp.block.read(group, index)) for index in range(4))
    second = WayfinderL1(high << 32 | low)
    size = int(second.queue_size + 1) * UNIT_BYTES[second.queue_unit_size]
    if not second.queue_unit_size or put >= size or get >= size or put % WORD_BYTES or get % WORD_BYTES:
        return _unread(f"a queue of {size} bytes with reports from byte {get:#x} to {put:#x}, which cannot be")
    reader = _reader(gsp, int(second.queue_aperture))
    at = int(second.queue_offset_1kb) << 10
    if reader is None:
        return _unread(f"reports at {at:#x} of memory {second.queue_aperture}, which the host does not read")
    parts = [(get, put)] if get <= put else [(get, size), (0, put)]
    if sum(end - start for start, end in parts) > MAX_BYTES:
        return _unread(f"more than {MAX_BYTES} bytes of reports, from byte {get:#x} to {put:#x} of {size}")
    reports, unread = decode(b"".join(reader(at + start, end - start) for start, end in parts if end > start))
    return Crashes(tuple(reports), tuple(unread))


def _unread(what: str) -> Crashes:
    return Crashes(unread=(f"GSP has {what}",))


def _reader(gsp: Falcon, aperture: int) -> Callable[[int, int], bytes] | None:
    """Return what reads whole dwords of a memory of GSP; None for another one. GSP is given no queue in the host's, and
    its part of the card's is protected.
    """
    if aperture == DMEM:
        return partial(_through_port, gsp.block, falcon.NV_PFALCON_FALCON_DMEMC, falcon.NV_PFALCON_FALCON_DMEMD)
    if aperture == EMEM:
        return partial(_through_port, Block(gsp.registers), engines.NV_PGSP_EMEMC, engines.NV_PGSP_EMEMD)
    return None


def _through_port(block: Block, control: type[Word], data: type[Word], offset: int, size_bytes: int) -> bytes:
    """Read dwords of a falcon's memory through a port whose place counts up.

    QUIRK: from GA102 on, the published header leaves the bit out that makes it count; OGKM takes Turing's.
    """
    typed = block.typed(control)
    blocks = 1 << typed.FIELDS["blk"].hi - typed.FIELDS["blk"].lo + 1
    if (offset + size_bytes - 1) // BLOCK_BYTES >= blocks:
        raise FirmwareError(f"byte {offset + size_bytes - 1:#x} lies beyond what {typed.__name__} reaches")
    place = typed(offs=offset % BLOCK_BYTES // 4, blk=offset // BLOCK_BYTES)
    block.set(control, int(place) | int(control(aincr=1)), PORT)
    return b"".join(int(block.read(data, PORT)).to_bytes(4, "little") for _ in range(0, size_bytes, 4))
