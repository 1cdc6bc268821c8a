"""What the resource manager needs of the card, and what it does to the card: memory, effects, and channels described by
addresses.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import Protocol

from ringup.autogen.nv import ram, status
from ringup.silicon.nv.common.usage import Usage


class Aperture(enum.IntEnum):
    """Where physical memory is. Source: g_mem_desc_nvoc.h, ADDR_SYSMEM and ADDR_FBMEM."""

    SYSMEM = 1
    VRAM = 2


class PhysicalMemory(Protocol):
    """Memory by physical address: an offset in VRAM, or an address on the bus."""

    def read(self, aperture: Aperture, address: int, size_bytes: int) -> bytes:
        """Return bytes. Raises `ValueError` for an address that the card cannot reach."""
        ...

    def write(self, aperture: Aperture, address: int, data: bytes) -> None:
        """Store bytes. Raises `ValueError` for an address that the card cannot reach."""
        ...


class Chip(Protocol):
    """What the resource manager takes from the chip's row."""

    @property
    def name(self) -> str:
        """The chip, such as "ga102"."""
        ...

    @property
    def product(self) -> str:
        """The board's marketing name."""
        ...

    @property
    def device_id(self) -> int:
        """The PCI device ID; the vendor is NVIDIA's."""
        ...

    @property
    def subsystem_id(self) -> int:
        """The PCI subsystem ID of NVIDIA's own board."""
        ...

    @property
    def revision(self) -> int:
        """The PCI revision ID."""
        ...

    @property
    def vram_bytes(self) -> int:
        """Bytes of memory."""
        ...

    @property
    def bar1_bytes(self) -> int:
        """Bytes of BAR 1."""
        ...

    @property
    def mmu_version(self) -> int:
        """The version of the format of page tables."""
        ...

    @property
    def generation(self) -> int:
        """The generation of PCI Express that the card speaks."""
        ...


@dataclass(frozen=True, slots=True)
class Place:
    """Physical memory that a caller named by address."""

    aperture: Aperture
    address: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class PageDirectory:
    """The root of a GPU's address space. `entries`: 0 if the caller did not say."""

    aperture: Aperture
    address: int
    entries: int = 0


@dataclass(frozen=True, slots=True)
class MmuFault:
    """A page fault that stopped a channel. `kind`: NV_PFAULT_FAULT_TYPE_*."""

    gpu_va: int
    kind: int
    write: bool


@dataclass(eq=False, slots=True)
class Slice:
    """How long channels have their engine before the next ones: one value for all channels of a group.

    Source: kfifoChannelGroupGetDefaultTimeslice_GV100 of NVIDIA's open kernel modules.
    """

    length_us: float = float(ram.NV_RAMRL_ENTRY_TSG_TIMESLICE_TIMEOUT_128 << ram.NV_RAMRL_ENTRY_TSG_TIMESLICE_SCALE_3)


@dataclass(eq=False, slots=True)
class Channel:
    """A channel as the card sees it: addresses, and nothing of who allocated it.

    `instance` is its instance block, `ramfc` the part of it that holds the state of the host engine, `userd` its
    control block. `gpfifo_va` is a virtual address in its own address space. `engine_type`: NV2080_ENGINE_TYPE_*.
    `privileged`: it may use physical addresses. `page_directory` is None until the resource manager knows one; the
    driver may have written it into the instance block itself.
    """

    number: int
    runlist: int
    engine_type: int
    instance: Place
    ramfc: Place
    userd: Place
    method_buffer: Place | None
    error_notifier: Place | None
    gpfifo_va: int
    gpfifo_entries: int
    flags: int
    privileged: bool
    page_directory: PageDirectory | None = None
    subcontext: int = 0
    # the classes that were allocated on it, with the engine that each runs on
    objects: dict[int, int] = field(default_factory=dict)
    scheduled: bool = False
    stopped: bool = False
    # page faults in its address space may be handled and need not stop it
    replays: bool = False
    # those that did stop it, the oldest first
    mmu_faults: list[MmuFault] = field(default_factory=list)
    # GET_MMU_FAULT_INFO has told the fault
    fault_was_told: bool = False
    slice: Slice = field(default_factory=Slice)


class Effects(Protocol):
    """What the resource manager does to the card. All calls are made in virtual time, before the answer is sent."""

    def channel_allocated(self, channel: Channel) -> None:
        """A channel exists; it does not run yet."""
        ...

    def channel_bound(self, channel: Channel) -> None:
        """A channel was bound to the engine `channel.engine_type`."""
        ...

    def channel_scheduled(self, channel: Channel, enable: bool) -> None:
        """A channel entered its runlist, or left it."""
        ...

    def channel_stopped(self, channel: Channel) -> None:
        """A channel was preempted and runs no more."""
        ...

    def channel_saved(self, channel: Channel) -> None:
        """The machine goes to sleep: a stopped channel's state is kept until it is allocated again, or freed."""
        ...

    def channel_freed(self, channel: Channel) -> None:
        """A channel is gone."""
        ...

    def page_directory_set(self, channel: Channel) -> None:
        """`channel.page_directory` has changed; the resource manager wrote it to the instance block if it owns that."""
        ...

    def fault_buffer(self, replayable: bool, pages: tuple[int, ...] | None) -> None:
        """The buffer for page faults has these pages of system memory; None: it was taken away."""
        ...

    def fault_reported(self, channel: Channel) -> None:
        """The client that a channel's page fault was given to could not handle it."""
        ...

    def celsius(self) -> int:
        """Return what the sensor in the GPU shows."""
        ...

    def usage(self) -> tuple[Usage, ...]:
        """Return the samples of the last 10 s, oldest first."""
        ...


class RmError(Exception):
    """A request that the resource manager refuses with a status (`NV_ERR_…`)."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{status_name(code)}: {reason}")
        self.code = code


_NAMES = {value: name for name, value in vars(status).items() if name.startswith(("NV_ERR_", "NV_WARN_"))}


def status_name(code: int) -> str:
    """Return the name of a status."""
    return "NV_OK" if code == status.NV_OK else _NAMES.get(code, hex(code))
