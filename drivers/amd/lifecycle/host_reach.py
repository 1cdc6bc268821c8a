"""Whether the card reaches the host's memory: a copy engine, whose own ring and fence lie in VRAM, reads and writes one
page of it.

Checked before any queue is made: rings and fences of queues lie in host memory, so a card that does not reach it looks
like one whose queues hang. The cause lies between card and memory: an IOMMU, a bridge without bus mastering, an address
wider than the card can put on the bus.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ringup.autogen.linux import pci
from ringup.drivers.amd.board.wiring import Blocks
from ringup.drivers.amd.bus.doorbells import DOORBELL_BAR, Doorbell
from ringup.drivers.amd.gfx.sdma import QUEUES, SdmaQueue, SdmaQueueSpec
from ringup.drivers.amd.gmc.pte import FORMATS
from ringup.drivers.amd.memory.spaces import USER_VMID, Spaces
from ringup.drivers.buffer import Buffer
from ringup.drivers.transport import bars
from ringup.drivers.transport.seam import TellsDma
from ringup.drivers.transport.wait import poll
from ringup.errors import DeviceTimeout, TransportError
from ringup.firmware.stated import named
from ringup.queues.amd.sdma import Sdma

PAGE_BYTES = 4096
SENT, BACK = 0, 2048  # of the host's page: what the card reads, and where it writes
RPTR_AT, WPTR_AT, BEGUN_AT, FENCE_AT, LANDED_AT, SOURCE_AT = 0, 64, 128, 192, 1024, 2048  # of the page in VRAM
PATTERN = struct.pack("<Q", 0x0123_4567_89AB_CDEF) * 8
SIZE, DOING = len(PATTERN), "looking whether the card reaches host memory"
ENGINE, QUEUE = 0, QUEUES - 1  # a queue that is not the first to be made
BEGUN, READ, WRITTEN = 1, 1, 2  # what the engine stores before it reads the host's page, and in its fence
TIMEOUT_US, POLL_US = 100_000, 20  # TIMEOUT: ours; two copies of 64 bytes take microseconds
REMEDY = (
    "let the IOMMU map what the card is given (`ringup bind` gives the card to VFIO), or boot with iommu=pt or intel_iommu=off; see `dmesg` for "
    "DMAR or AMD-Vi faults"
)


def check(blocks: Blocks, spaces: Spaces) -> None:
    """Have the card read and write a page of host memory. All memory is freed afterwards.

    Raises a `TransportError` that names the address and the state of IOMMU, bus mastering and address mask.
    """
    user = spaces.user
    with (
        user.alloc(PAGE_BYTES, "host", name="reach of host memory", cached=False) as host,
        user.alloc(PAGE_BYTES, "vram", visible=True, name="ring of a look", cached=False) as ring,
        user.alloc(PAGE_BYTES, "vram", visible=True, name="page of a look", cached=False) as page,
    ):
        _Check(blocks, spaces, host, ring, page).take()


class _Copied(NamedTuple):
    """The state of the copies: bytes that the card read from the host, bytes that it wrote there, the fence."""

    landed: bytes | memoryview
    back: bytes | memoryview
    fence: int

    def is_whole(self) -> bool:
        return self.fence == WRITTEN and self.landed == self.back == PATTERN


class _Check:
    """One check, with its memory."""

    def __init__(self, blocks: Blocks, spaces: Spaces, host: Buffer, ring: Buffer, page: Buffer) -> None:
        self._blocks, self._host, self._ring, self._page = blocks, host, ring, page
        self._in_host, self._in_ring, self._in_page = (spaces.user.access(one) for one in (host, ring, page))
        self._runs = spaces.user.bus_runs(host)

    def take(self) -> None:
        """Run the check. Raises `TransportError`."""
        va, index = self._page.gpu_va, self._blocks.doorbells.sdma_index(ENGINE, QUEUE)
        spec = SdmaQueueSpec(self._ring.gpu_va, PAGE_BYTES // 4, va + RPTR_AT, va + WPTR_AT, USER_VMID, index)
        hardware = SdmaQueue(self._blocks.sdma[ENGINE], QUEUE, spec)
        self._in_host[SENT : SENT + len(PATTERN)] = PATTERN
        self._in_page.write(0, bytes(PAGE_BYTES))
        self._in_page.write(SOURCE_AT, PATTERN)
        size_bytes = self._lay_packets()
        self._blocks.hdp.flush()
        hardware.map()
        self._in_page.at(WPTR_AT)(size_bytes)
        self._blocks.hdp.flush()
        Doorbell(bars.window(self._blocks.device, DOORBELL_BAR), index).ring(size_bytes)
        try:
            self._compare()
        finally:  # ORDER: the engine has let go of the memory before it is freed
            if not hardware.unmap():
                hardware.engine.stop()

    def _lay_packets(self) -> int:
        """Write the packets; return their bytes."""
        sdma, host_va, va = Sdma(self._blocks.ips.version("sdma0")), self._host.gpu_va, self._page.gpu_va
        dwords = [
            *sdma.write(va + BEGUN_AT, BEGUN),
            *sdma.copy_linear(va + LANDED_AT, host_va + SENT, len(PATTERN)),
            *sdma.wait_idle(),
            *sdma.fence(va + FENCE_AT, READ),
            *sdma.copy_linear(host_va + BACK, va + SOURCE_AT, len(PATTERN)),
            *sdma.wait_idle(),
            *sdma.fence(va + FENCE_AT, WRITTEN),
        ]
        self._in_ring.write(0, struct.pack(f"<{len(dwords)}I", *dwords))
        return 4 * len(dwords)

    def _compare(self) -> None:
        """Wait for both copies and compare. A write to the host is posted: it may arrive after the fence in VRAM."""
        copied = poll(
            self._copied,
            _Copied.is_whole,
            clock=self._blocks.registers.clock,
            timeout_us=TIMEOUT_US,
            poll_us=POLL_US,
        )
        if copied.is_whole():
            return
        landed, back, fence = copied
        self._blocks.registers.check(DOING)
        engine = f"{DOING}: SDMA{ENGINE}"
        if self._word(BEGUN_AT) != BEGUN:
            raise DeviceTimeout(
                f"{engine} did not begin what it was given within {TIMEOUT_US / 1000:g} ms; reset the card"
            )
        wrong = []
        if landed != PATTERN:
            seen = named(int.from_bytes(landed[:8], "little"), 64) if fence else "nothing came back"
            wrong.append(f"it cannot read it ({seen})")
        if back != PATTERN:
            wrong.append("what it writes does not arrive")
        if not wrong:
            raise DeviceTimeout(
                f"{engine} copied and did not store its fence within {TIMEOUT_US / 1000:g} ms; reset the card"
            )
        at = self._runs[0][0]
        raise TransportError(
            f"the card does not reach host memory at bus address {at:#x}: {' and '.join(wrong)}; {self._state()}"
        )

    def _copied(self) -> _Copied:
        landed, back = self._in_page[LANDED_AT:SOURCE_AT][:SIZE], self._in_host[BACK : BACK + SIZE]
        return _Copied(landed, back, self._word(FENCE_AT))

    def _word(self, at: int) -> int:
        return int.from_bytes(self._in_page[at : at + 4], "little")

    def _state(self) -> str:
        """Return what is known of the path from the card to memory, and what to do."""
        device = self._blocks.device
        bits = FORMATS[self._blocks.ips.version("gc")[0]].bus_bits
        end = max(address + size for address, size in self._runs)
        command = device.config.read(pci.PCI_COMMAND, 2)
        parts = [
            f"its bus mastering is {'on' if command & pci.PCI_COMMAND_MASTER else 'OFF'}",
            f"it addresses {bits} bits" + (f", which {end:#x} is beyond" if end > 1 << bits else ""),
            *([device.dma_state()] if isinstance(device, TellsDma) else ["the path says nothing of an IOMMU"]),
            REMEDY,
        ]
        return "; ".join(parts)
