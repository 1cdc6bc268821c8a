"""A Radeon in hand: memory, programs, queues, what it does and did. The blocks below are wired by `wiring`, started by `bringup`."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from ringup.autogen.linux import pci
from ringup.drivers.amd import bringup
from ringup.drivers.amd.bringup import Bringup
from ringup.drivers.amd.gmc_faults import GFXHUB, MMHUB
from ringup.drivers.amd.ih_decode import FATAL, Interrupt
from ringup.drivers.amd.queue_set import ComputeQueue, CopyQueue, QueueSet
from ringup.drivers.amd.spaces import USER_VMID
from ringup.drivers.buffer import Buffer, Where
from ringup.drivers.poll import Poller
from ringup.drivers.stages import Stages, Watcher
from ringup.drivers.transport.seam import Device
from ringup.errors import DeviceFault, DeviceHung, DeviceLost, DeviceTimeout, RingupError
from ringup.firmware.store import Store
from ringup.queues import code_object
from ringup.queues.code_object import CodeObject
from ringup.queues.program import Program
from ringup.queues.queue import Owner

LOG = logging.getLogger(__name__)
INTERRUPTS_KEPT = 256
SELF_TEST_US = 200_000
LINK_CHECK_EVERY = 8  # naps of a wait between two looks at the link


@dataclass(frozen=True, slots=True)
class CardInfo:
    """What a card is. Sizes in bytes."""

    name: str
    chip: str
    target: str
    pci_id: str
    vram_bytes: int
    window_bytes: int
    compute_units: int
    shader_engines: int
    wave_size: int
    lds_bytes: int
    l2_bytes: int
    versions: dict[str, str]
    firmware: dict[str, str]
    found: str
    resets: tuple[str, ...]


class Radeon:
    """One card, up. Belongs to the thread that opened it. Use it as a context manager, or `close` it."""

    def __init__(self, device: Device, *, firmware: Iterable[Path | str] = (), watch: Watcher | None = None) -> None:
        """Bring the card up. `firmware`: files or folders that come before the system's. `watch` is told of every stage.

        Raises an error of ringup's tree that names the failing stage; the card is torn down then.
        """
        self.device, self.owner = device, Owner(device.name)
        self._explicit, self._watch = tuple(firmware), watch
        self.interrupts: deque[Interrupt] = deque(maxlen=INTERRUPTS_KEPT)
        self.fault: RingupError | None = None
        self._programs: list[Buffer] = []
        self._closed = False
        self._looks = 0
        self._start()

    def _start(self) -> None:
        stages = Stages(self.device.name, self.device.clock, self._watch)
        self.stages = stages.done
        self._bringup = start = Bringup(self.device, stages, Store(explicit=self._explicit))
        try:
            start.run()
            with stages.stage("testing the queues", 2_000_000):
                self._make_queues()
        except BaseException:
            self._abandon()
            raise
        self.blocks, self.spaces, self.ih = start.blocks, start.spaces, start.ih

    def _make_queues(self) -> None:
        start = self._bringup
        self.blocks, self.spaces, self.ih = start.blocks, start.spaces, start.ih
        self._queues = QueueSet(start.blocks, start.spaces, Poller(self.device, self._examine), self.owner)
        self.compute = self._queues.compute()
        self._copies: dict[int, CopyQueue] = {0: self._queues.copy(0)}
        for queue in (self.compute, self.copy):
            queue.submit(queue.stream()).wait(SELF_TEST_US / 1e6)

    def _abandon(self) -> None:
        """Stop what was started, as far as it goes; the first error is on its way already."""
        start = self._bringup
        if not hasattr(start, "blocks"):
            return
        try:
            try:
                bringup.stop(start.blocks, getattr(start, "ih", None), clean=False)
            finally:
                if hasattr(start, "spaces"):  # the card sends nothing any more: its memory may go
                    start.spaces.close()
        except RingupError as error:
            LOG.info("%s: stopping what was started: %s", self.device.name, error)

    # --- what it is -------------------------------------------------------------------------------------------------
    @property
    def name(self) -> str:
        """The card's name."""
        return self.device.name

    def __repr__(self) -> str:
        return f"<{self.blocks.ips.chip.name} {self.name}>"

    @property
    def info(self) -> CardInfo:
        """What the card is and how it was found."""
        ips, config, blocks = self.blocks.ips, self.device.config, self.blocks
        shape, core = ips.shape, blocks.gfx.shape
        assert core is not None  # the core is up
        versions = ("gc", "sdma0", "mmhub", "nbio", "mp0", "mp1", "osssys", "hdp", "smuio", "thm")
        return CardInfo(
            name=self.name,
            chip=ips.chip.name,
            target=ips.chip.target,
            pci_id=f"{config.read(pci.PCI_VENDOR_ID, 2):04x}:{config.read(pci.PCI_DEVICE_ID, 2):04x}",
            vram_bytes=blocks.window.size_bytes,
            window_bytes=blocks.window.visible_bytes,
            compute_units=core.cu_total,
            shader_engines=shape.shader_engines,
            wave_size=shape.wave_size,
            lds_bytes=shape.lds_bytes_per_cu,
            l2_bytes=shape.l2_bytes,
            versions={name: ".".join(map(str, ips.version(name))) for name in versions},
            firmware={kind: f"{version:#x}" for kind, version in blocks.firmware.versions.items()},
            found=self._bringup.found.value,
            resets=tuple(map(str, self._bringup.ladder.rungs)) if self._bringup.ladder else (),
        )

    # --- queues -----------------------------------------------------------------------------------------------------
    @property
    def copy(self) -> CopyQueue:
        """The first copy engine's queue."""
        return self._copies[0]

    @property
    def copies(self) -> tuple[CopyQueue, ...]:
        """A queue of every copy engine; the others' are made when first asked for."""
        self._check()
        for engine in range(len(self.blocks.sdma)):
            if engine not in self._copies:
                self._copies[engine] = self._queues.copy(engine)
        return tuple(self._copies[engine] for engine in sorted(self._copies))

    def new_compute_queue(self) -> ComputeQueue:
        """Return another compute queue, on hardware of its own. Raises `NotSupported` when all are in use."""
        self._check()
        return self._queues.compute()

    def new_copy_queue(self, engine: int = 0) -> CopyQueue:
        """Return another queue of a copy engine. Raises `NotSupported` when all are in use."""
        self._check()
        return self._queues.copy(engine)

    # --- memory and programs ----------------------------------------------------------------------------------------
    def alloc(self, size_bytes: int, where: Where = "vram", *, visible: bool = False, name: str = "") -> Buffer:
        """Return memory that the card's queues reach; `visible`: the CPU must see it too, which host memory always is.

        VRAM holds what was there before, host memory is zero. Raises `OutOfMemory`.
        """
        self._check()
        return self.spaces.user.alloc(size_bytes, where, visible=visible, name=name)

    def pin(self, buffer: Any, name: str = "") -> Buffer:
        """Let the card reach memory of yours, without a copy: a writable buffer of whole pages. Free it before the memory goes.

        Raises `NotSupported` where the path to the card cannot do it.
        """
        self._check()
        return self.spaces.user.import_host(self.device.pin(memoryview(buffer).cast("B")), name)

    def load(self, code: bytes | CodeObject, name: str = "program") -> Program:
        """Put a code object (an ELF for the amdgcn target, or one that was parsed) into the card's memory.

        Raises `WrongTarget` for another chip's, `CompileError` for a damaged one, `OutOfMemory`.
        """
        self._check()
        target = self.blocks.ips.chip.target
        parsed = code if isinstance(code, CodeObject) else code_object.parse(bytes(code), name, target)
        parsed.check_runs_on(target)
        align = max(parsed.image_align, PROGRAM_ALIGN)
        size_bytes = parsed.image_bytes + PREFETCH_BYTES
        buffer = self.spaces.user.alloc(size_bytes, "vram", visible=False, name=name, align=align)
        try:
            image = parsed.relocate(buffer.gpu_va)
            self.copy.upload(buffer, image).wait()
            program = Program(parsed, buffer.gpu_va, buffer.free)
        except BaseException:
            buffer.free()
            raise
        return program

    # --- health -----------------------------------------------------------------------------------------------------
    def _check(self) -> None:
        self.owner.check()
        if self._closed:
            raise ValueError(f"{self.name} was closed")

    def _examine(self) -> None:
        """Take in interrupts; raise what befell the card."""
        for interrupt in self.ih.drain():
            self.interrupts.append(interrupt)
            if interrupt.kind in FATAL and self.fault is None:
                self.fault = self._fault_of(interrupt)
        if self.fault is not None:
            raise type(self.fault)(str(self.fault))
        self._looks += 1
        if self._looks % LINK_CHECK_EVERY == 0:
            self.blocks.registers.check("waiting for work")

    def _fault_of(self, interrupt: Interrupt) -> RingupError:
        if interrupt.kind not in ("page fault", "SDMA page fault"):
            return DeviceHung(f"{self.name}: {interrupt.text}")
        gpu_va = interrupt.fault_va
        where = self.spaces.user.faulted(gpu_va) if interrupt.vmid == USER_VMID else f"vmid {interrupt.vmid}"
        fault = self.blocks.gmc.read_fault(interrupt.hub if interrupt.hub in (GFXHUB, MMHUB) else GFXHUB)
        detail = str(fault) if fault is not None else interrupt.text
        return DeviceFault(f"{self.name}: {detail}: {where}")

    # --- the end ----------------------------------------------------------------------------------------------------
    def close(self) -> None:
        """Take queues off, free memory, leave the card cold and quiet. Twice is harmless."""
        if self._closed:
            return
        self._closed = True
        clean = self.fault is None
        try:
            if not self.device.lost:
                self._shut(clean)
        except (DeviceLost, DeviceTimeout, DeviceHung) as error:
            LOG.info("%s: closing: %s", self.name, error)
        finally:
            self.device.close()

    def _shut(self, clean: bool) -> None:
        try:
            self._queues.close()
        except RingupError as error:
            LOG.info("%s: closing the queues: %s", self.name, error)
            clean = False
        bringup.stop(self.blocks, self.ih, clean=clean)
        self.spaces.close()

    def __enter__(self) -> Radeon:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def adopt(self) -> None:
        """Give the card to the calling thread; nobody else may be using it meanwhile."""
        self.owner.adopt()


PROGRAM_ALIGN = 4096
PREFETCH_BYTES = 256  # waves fetch instructions beyond the last one; GUESS: three cache lines of 64 bytes, as compilers pad with s_code_end


def start(device: Device, **options: Any) -> Radeon:
    """Bring up the card behind `device`; what `drivers.select` calls."""
    return Radeon(device, **options)
