"""Channels: numbers, the instance block that the firmware fills, and how long a channel lives.

Words of the instance block: dev_ram.h of NVIDIA's open kernel modules, and nouveau 6.12 (ga100_chan_ramfc_write,
gp100_vmm_join, gv100_vmm_join), which fills it itself where no firmware does.

Inference: the firmware writes the whole block, the root of the page tables included. nouveau's golden channel
(r535_gr_oneinit) hands over a block of zeros, and the CPU's half of NVIDIA's driver writes none.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace

from ringup.autogen.nv import ram, status
from ringup.autogen.nv.rm_alloc import NVOS04_FLAGS
from ringup.silicon.nv.rm.boards.facts import Board
from ringup.silicon.nv.rm.objects import AddressSpace, Group
from ringup.silicon.nv.rm.parts import Aperture, Channel, PageDirectory, PhysicalMemory, Place, RmError

# dev_ram.h, NV_RAMFC_*; byte offsets
USERD, SIGNATURE, ACQUIRE, GP_BASE, PB_HEADER, SUBDEVICE, TARGET, CHANNEL_ID, CONFIG = (
    0x008,
    0x010,
    0x030,
    0x048,
    0x084,
    0x094,
    0x0E4,
    0x0E8,
    0x0F4,
)
PAGE_DIRECTORY, SUBCONTEXT_MASK, SUBCONTEXT_PAGE_DIRECTORY, SUBCONTEXT_STRIDE = 0x200, 0x298, 0x2A0, 0x10
SUBCONTEXTS = 64
SIGNATURE_VALUE, ACQUIRE_VALUE, PB_HEADER_VALUE = 0x0000FACE, 0x7FFFF902, 0x20400000
SUBDEVICE_ALL, TARGET_PRIVILEGED, CONFIG_VALUE, CONFIG_PRIVILEGED = 0x30000FFF, 0x20, 0x1000, 0x100
# NV_RAMIN_PAGE_DIR_BASE: format of version 2, big pages of 64 KiB, volatile if in system memory
VERSION_2, BIG_PAGES_64K, VOLATILE = 1 << 10, 1 << 11, 1 << 2
# FAULT_REPLAY_TEX and FAULT_REPLAY_GCC
FAULT_REPLAY = 1 << 4 | 1 << 5
TARGETS = {
    Aperture.VRAM: ram.NV_RAMIN_SC_PAGE_DIR_BASE_TARGET_VID_MEM,
    Aperture.SYSMEM: ram.NV_RAMIN_SC_PAGE_DIR_BASE_TARGET_SYS_MEM_COHERENT,
}
MAX_GPFIFO_LOG2 = 31  # GP_BASE_HI.LIMIT2 has five bits
USERD_INDEX_BITS = 3  # NVOS04_FLAGS_CHANNEL_USERD_INDEX_VALUE: eight control blocks in a page
USERD_BYTES = 512  # dev_ram.h, NV_RAMUSERD_ALIGN_SHIFT


def page_directory_words(directory: PageDirectory | None, *, replays: bool = False) -> tuple[int, int]:
    """Return the two words of a root in an instance block; without a root the invalid pair. `replays`: its page faults
    may be handled.
    """
    if directory is None:
        return 1, 1
    low = directory.address & 0xFFFFF000 | VERSION_2 | BIG_PAGES_64K | TARGETS[directory.aperture]
    if directory.aperture is Aperture.SYSMEM:
        low |= VOLATILE
    if replays:
        low |= FAULT_REPLAY
    return low, directory.address >> 32


def write_instance(memory: PhysicalMemory, channel: Channel) -> None:
    """Fill a channel's instance block: state of the host engine, then the roots of its address spaces."""
    words = {
        USERD: channel.userd.address & 0xFFFFFE00 | TARGETS[channel.userd.aperture],
        USERD + 4: channel.userd.address >> 32,
        SIGNATURE: SIGNATURE_VALUE,
        ACQUIRE: ACQUIRE_VALUE,
        GP_BASE: channel.gpfifo_va & 0xFFFFFFFF,
        GP_BASE + 4: channel.gpfifo_va >> 32 | (channel.gpfifo_entries.bit_length() - 1) << 16,
        PB_HEADER: PB_HEADER_VALUE,
        SUBDEVICE: SUBDEVICE_ALL,
        TARGET: TARGET_PRIVILEGED if channel.privileged else 0,
        CHANNEL_ID: channel.number,
        CONFIG: CONFIG_VALUE | (CONFIG_PRIVILEGED if channel.privileged else 0),
    }
    for offset, word in words.items():
        memory.write(channel.ramfc.aperture, channel.ramfc.address + offset, struct.pack("<I", word))
    write_page_directory(memory, channel)


def write_page_directory(memory: PhysicalMemory, channel: Channel) -> None:
    """Write the roots into the instance block: the channel's, and the same for its subcontext."""
    if channel.page_directory is None:
        return
    low, high = page_directory_words(channel.page_directory, replays=channel.replays)
    place, aperture = channel.instance.address, channel.instance.aperture
    memory.write(aperture, place + PAGE_DIRECTORY, struct.pack("<II", low, high))
    none = page_directory_words(None)
    table = b"".join(
        struct.pack("<IIII", *((low, high) if number == channel.subcontext else none), 0, 0)
        for number in range(SUBCONTEXTS)
    )
    memory.write(aperture, place + SUBCONTEXT_MASK, struct.pack("<Q", 1 << channel.subcontext))
    memory.write(aperture, place + SUBCONTEXT_PAGE_DIRECTORY, table)


def place_of(described: object, what: str, *, optional: bool = False) -> Place | None:
    """Return memory that NV_MEMORY_DESC_PARAMS describes."""
    address, size_bytes, space = (int(getattr(described, name)) for name in ("base", "size", "addressSpace"))
    if not size_bytes and not address and optional:
        return None
    try:
        aperture = Aperture(space)
    except ValueError:
        if optional:
            return None
        raise RmError(
            status.NV_ERR_INVALID_ARGUMENT, f"the {what} is in address space {space}, which is no memory"
        ) from None
    return Place(aperture, address, size_bytes)


def needed(described: object, what: str) -> Place:
    """Return memory that must be described."""
    place = place_of(described, what)
    if place is None or place.address % 0x200:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"the {what} is not at a multiple of 512")
    return place


def control_block(described: object) -> Place:
    """Return a channel's control block, where the host engine looks for it: at a multiple of 512.

    Inference from tinygrad, whose golden channel has its block at an odd multiple of 256 and never runs: firmware
    570.144 accepts the address, and RAMFC has no room for its low nine bits.
    """
    place = place_of(described, "control block")
    assert place is not None
    return replace(place, address=place.address & ~(USERD_BYTES - 1))


class ChannelNumbers:
    """Which channel numbers are taken, and how many objects keep each channel alive."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self._taken: dict[tuple[int, int], Channel] = {}
        self._holders: dict[Channel, int] = {}

    def __iter__(self) -> Iterator[Channel]:
        return iter(tuple(self._taken.values()))

    def _key(self, runlist: int, number: int) -> tuple[int, int]:
        return (runlist if self._board.per_runlist_channels else 0), number

    def find(self, runlist: int, number: int) -> Channel | None:
        """Return the channel with a number on a runlist."""
        return self._taken.get(self._key(runlist, number))

    def choose(self, runlist: int, flags: NVOS04_FLAGS) -> int:
        """Return the number that a new channel gets. The caller's half of the driver fixes it by the place of the
        control block: eight in a page. GUESS: a number that is taken is INSUFFICIENT_RESOURCES.
        """
        if flags.channel_userd_index_page_fixed or flags.channel_userd_index_fixed:
            number: int = flags.channel_userd_index_page_value << USERD_INDEX_BITS | flags.channel_userd_index_value
            if number >= self._board.channels:
                raise RmError(
                    status.NV_ERR_INVALID_ARGUMENT, f"channel {number} of {self._board.channels} was asked for"
                )
            if self._key(runlist, number) in self._taken:
                raise RmError(status.NV_ERR_INSUFFICIENT_RESOURCES, f"channel {number} of runlist {runlist} is in use")
            return number
        for number in range(self._board.channels):
            if self._key(runlist, number) not in self._taken:
                return number
        raise RmError(status.NV_ERR_INSUFFICIENT_RESOURCES, f"runlist {runlist} has no free channel")

    def take(self, channel: Channel) -> None:
        """Add a new channel, which one object holds."""
        self._taken[self._key(channel.runlist, channel.number)] = channel
        self._holders[channel] = 1

    def hold(self, channel: Channel) -> None:
        """Let one more object keep a channel alive."""
        self._holders[channel] += 1

    def release(self, channel: Channel) -> bool:
        """Let an object go; return whether it was the last and the channel ends."""
        self._holders[channel] -= 1
        if self._holders[channel]:
            return False
        del self._holders[channel]
        del self._taken[self._key(channel.runlist, channel.number)]
        return True


def space_of(group: Group | None, default: AddressSpace, given: AddressSpace | None) -> AddressSpace:
    """Return the address space of a channel: the one that was named, its group's, or the device's."""
    if given is not None:
        return given
    return group.space if group is not None and group.space is not None else default
