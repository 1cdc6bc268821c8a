"""NBIO 4.3 and 7.9, the bus interface: straps and sizes, scratch registers, indirect windows, HDP flushes, routing of
doorbells.

Source: amdgpu nbio_v4_3.c, nbio_v7_9.c, hdp_v6_0.c, soc21.c, amdgpu_device.c (amdgpu_device_mm_access);
nbio_2_3_default.h for two reset values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ringup.autogen.amd.nbio_doorbell import S2A_DOORBELL_ENTRY_0_CTRL
from ringup.autogen.linux import pci as regs
from ringup.errors import GuestError, Unmodelled
from ringup.silicon.amd.board.chips import ChipRow
from ringup.silicon.amd.common.parts import FIRST_PAGE_DWORDS, Board, DoorbellClient
from ringup.silicon.amd.memory.hdp import Hdp
from ringup.silicon.amd.rows import bus, unnamed
from ringup.silicon.common.cells import ALL, Cells, Door
from ringup.silicon.pci.function import Function

# MM_INDEX.MM_APER: the window reaches VRAM, not registers
MM_VRAM = 1 << 31
HDP_FLUSH_US = 0.5
REMAP_DEFAULTS = {"MEM": bus.FLUSH_MEM, "REG": bus.FLUSH_REG}
DOORBELL_ENTRIES = 16
# Which engines an entry's AWID selects. Source: nbio_v4_3.c, *_doorbell_range and gc_doorbell_init.
AWID_CLIENTS = {0x3: ("gc", "sdma"), 0x6: ("gc", "sdma"), 0xE: ("sdma",), 0x0: ("ih",), 0x4: ("vcn",), 0x7: ("vcn",)}
# Ranges of a card with several dies, which lead to: the interrupt handler, four copy engines of each die, a video
# engine of each. All others lead to the graphics cores: a queue that runs on several has one doorbell. Each die has a
# table of its own too, by AWID, which drivers set up alike; the model does not follow it. Source: nbio_v7_9.c
CHIPLET_ENTRIES: tuple[tuple[str, ...], ...] = (("ih",), *[("sdma",)] * 16, *[("vcn",)] * 4)
CHIPLET_REST: tuple[str, ...] = ("gc",)
# bits of a doorbell's number that their ranges see: a range is one of every page. Source: the width of RANGE_OFFSET;
# amdkfd's init_doorbell_bitmap, which keeps the numbers of copy engines free on every process's pages, twice on each
CHIPLET_MASK = 0x3FF
# the graphics core's entries: with range size 0 they take every doorbell that no other entry claims
REST_ENTRIES = (0, 3)
# Configuration space of the functions as registers: name of the first register, its offset, name of the function's row.
CONFIG_ALIASES = (
    ("BIF_CFG_DEV0_EPF0_VENDOR_ID", 0, "gpu"),
    ("BIF_CFG_DEV0_EPF1_VENDOR_ID", 0, "audio"),
    ("BIF_CFG_DEV0_EPF2_VENDOR_ID", 0, "usb"),
    ("BIF_CFG_DEV0_EPF3_VENDOR_ID", 0, "ucsi"),
    ("BIF_CFG_DEV0_RC_SUB_BUS_NUMBER_LATENCY", regs.PCI_PRIMARY_BUS, "downstream"),
    ("PSWUSCFG0_SUB_BUS_NUMBER_LATENCY", regs.PCI_PRIMARY_BUS, "upstream"),
)


@dataclass(frozen=True, slots=True)
class Window:
    """An index and data pair that reaches any register."""

    index: str
    data: str
    high: str


@dataclass(frozen=True, slots=True)
class Route:
    """A range of doorbells, in dwords, and the engines that it leads to."""

    first: int
    end: int
    deduct: int
    names: tuple[str, ...]


MM_WINDOW = Window("BIF_BX_PF0_MM_INDEX", "BIF_BX_PF0_MM_DATA", "BIF_BX_PF0_MM_INDEX_HI")
WINDOWS = (
    Window("BIF_BX_PF0_RSMU_INDEX", "BIF_BX_PF0_RSMU_DATA", "BIF_BX_PF0_RSMU_INDEX_HI"),
    Window("BIF_BX0_PCIE_INDEX", "BIF_BX0_PCIE_DATA", "BIF_BX0_PCIE_INDEX_HI"),
    Window("BIF_BX0_PCIE_INDEX2", "BIF_BX0_PCIE_DATA2", "BIF_BX0_PCIE_INDEX2_HI"),
)


class Nbio:
    """The bus interface of one card. `functions`: those of the board, by name; their configuration space appears here
    as registers.
    """

    def __init__(self, board: Board, chip: ChipRow, hdp: Hdp, functions: Mapping[str, Function]) -> None:
        self._board, self._chip, self._hdp = board, chip, hdp
        self._gpu = functions["gpu"]
        self._clients: dict[str, list[DoorbellClient]] = {}
        # whether the low half of a 64-bit doorbell rings alone
        self.half_rings = True
        # halves of 64-bit doorbells that wait for the other half
        self._halves: dict[int, int] = {}
        self._remapped: dict[str, Door] = {}
        self._routes: list[Route] = []
        self._rest: Sequence[str] = ()
        self.cells = Cells(board.chip, chip.bus.block)
        self._doorbells_on = self.cells.place("RCC_DEV0_EPF0_RCC_DOORBELL_APER_EN")
        self._own = {
            self.cells.address(name)
            for window in (MM_WINDOW, *WINDOWS)
            for name in (window.index, window.data, window.high)
        }
        self._straps()
        self._hooks()
        board.space.attach(self.cells)
        board.space.door(unnamed.BASE_ZERO, 4, lambda address: 0, lambda address, value: None)
        for name, offset, function in CONFIG_ALIASES:
            # a board may lack some of them, and a header the ports
            if function in functions and name in self.cells:
                self._alias(self.cells.address(name) - offset, functions[function])
        self._remap_all()
        self._read_routes()

    # --- making it ----------------------------------------------------------------------------------------------
    def _straps(self) -> None:
        cells, gpu, chip = self.cells, self._gpu.row, self._chip
        strap = "RCC_STRAP0_RCC_DEV0_EPF0_STRAP0"
        fixed = {
            strap: cells.replace(
                strap, 0, STRAP_DEVICE_ID_DEV0_F0=gpu.device_id, STRAP_ATI_REV_ID_DEV0_F0=chip.revision,
                STRAP_MAJOR_REV_ID_DEV0_F0=gpu.revision >> 4, STRAP_MINOR_REV_ID_DEV0_F0=gpu.revision & 0xF,
                STRAP_FUNC_EN_DEV0_F0=1, STRAP_LEGACY_DEVICE_TYPE_EN_DEV0_F0=1,
            ),
            "RCC_DEV0_EPF0_RCC_CONFIG_MEMSIZE": self._board.vram.size_bytes >> 20,
            "RCC_DEV0_EPF0_RCC_IOV_FUNC_IDENTIFIER": 0,  # a physical function, virtualisation off
        }  # fmt: skip
        if chip.bus.chiplets:
            # all cores in one partition (SPX), all memory in one (NPS1)
            status = "BIF_BX_PF0_PARTITION_MEM_STATUS"
            fixed[status] = cells.replace(status, 0, NPS_MODE=1)
            capability = "BIF_BX_PF0_PARTITION_MEM_CAP"
            fixed[capability] = cells.replace(capability, 0, NPS1_SUPPORT=1)
        for name, value in fixed.items():
            cells.resets_to(name, value)
        cells.on_read("RCC_DEV0_0_RCC_CONFIG_APER_SIZE", lambda: self._gpu.sizes[0] & ALL)
        cells.on_read("RCC_DEV0_0_RCC_CONFIG_REG_APER_SIZE", lambda: self._gpu.sizes[5])

    def _hooks(self) -> None:
        cells = self.cells
        cells.on_read("BIF_BX_PF0_MM_DATA", self._mm_read)
        cells.on_write("BIF_BX_PF0_MM_DATA", self._mm_write)
        for window in WINDOWS:
            cells.on_read(window.data, partial(self._window_read, window))
            cells.on_write(window.data, partial(self._window_write, window))
        for name in ("MEM_COHERENCY_FLUSH", "REG_COHERENCY_FLUSH", "MEM_COHERENCY_FLUSH_ONLY"):
            cells.on_write(f"BIF_BX_PF0_HDP_{name}_CNTL", lambda value: self._hdp.flush())
        cells.on_write("BIF_BX_PF0_GPU_HDP_FLUSH_REQ", self._flush_request)
        for kind in REMAP_DEFAULTS:
            cells.on_write(f"BIF_BX0_REMAP_HDP_{kind}_FLUSH_CNTL", lambda value: self._remap_all())
        for name in self._entries():
            cells.on_write(name, self._read_routes)
        status = "BIF_BX_PF0_BIF_BME_STATUS"
        cells.on_write(status, self._bme_status)

    def _entries(self) -> list[str]:
        """List the registers of the doorbell ranges."""
        bus = self._chip.bus
        count = len(CHIPLET_ENTRIES) if bus.chiplets else DOORBELL_ENTRIES
        return [f"{bus.doorbells}{number}{'' if bus.chiplets else '_CTRL'}" for number in range(count)]

    def _alias(self, first: int, function: Function) -> None:
        def place(address: int) -> int:
            if address % 4:
                raise GuestError(f"register {address:#x} of {function.row.name}'s configuration space is no dword")
            return address - first

        self._board.space.door(
            first,
            regs.PCI_CFG_SPACE_EXP_SIZE,
            lambda address: function.config.read(place(address)),
            lambda address, value: function.config.write(place(address), value),
        )

    def reset(self, *, keep_scratch: bool = False) -> None:
        """Return to the state after power-on. `keep_scratch`: the BIOS scratch registers keep their values, as in a
        reset of the chip alone.
        """
        scratch = [f"BIF_BX0_BIOS_SCRATCH_{n}" for n in range(16)] if keep_scratch else []
        self.cells.reset(keep=scratch)
        self._halves.clear()
        self._remap_all()
        self._read_routes()

    # --- indirect access ----------------------------------------------------------------------------------------
    def _window(self, window: Window) -> int:
        return self._target(window, self.cells[window.index] | self.cells[window.high] << 32)

    def _target(self, window: Window, address: int) -> int:
        if address in self._own:
            raise GuestError(f"{window.data} was used with {window.index} pointing at an index or data register itself")
        return address

    def _window_read(self, window: Window) -> int:
        return self._board.space.read(self._window(window))

    def _window_write(self, window: Window, value: int) -> None:
        self._board.space.write(self._window(window), value)

    def _mm_place(self) -> int:
        """Return the offset in VRAM that MM_DATA accesses."""
        index = self.cells["BIF_BX_PF0_MM_INDEX"] & ~MM_VRAM | self.cells["BIF_BX_PF0_MM_INDEX_HI"] << 31
        return index & ~3

    def _mm_read(self) -> int:
        index = self.cells["BIF_BX_PF0_MM_INDEX"]
        if not index & MM_VRAM:
            return self._board.space.read(self._target(MM_WINDOW, index))
        place = self._mm_place()
        if place + 4 > self._board.vram.size_bytes:
            self._note(f"MM_DATA was read at vram_pa {place:#x}, beyond the end of VRAM")
            return ALL
        return int.from_bytes(self._board.vram.read(place, 4), "little")

    def _mm_write(self, value: int) -> None:
        index = self.cells["BIF_BX_PF0_MM_INDEX"]
        place = self._mm_place()
        if not index & MM_VRAM:
            self._board.space.write(self._target(MM_WINDOW, index), value)
        elif place + 4 > self._board.vram.size_bytes:
            self._note(f"MM_DATA was written at vram_pa {place:#x}, beyond the end of VRAM")
        else:
            self._board.vram.write(place, value.to_bytes(4, "little"))

    # --- HDP flushes --------------------------------------------------------------------------------------------
    def _remap_all(self) -> None:
        """Map the two flush registers where the REMAP registers say: a page that may be mapped into user processes."""
        for kind in REMAP_DEFAULTS:
            if (door := self._remapped.pop(kind, None)) is not None:
                self._board.space.close(door)
            address = self.cells[f"BIF_BX0_REMAP_HDP_{kind}_FLUSH_CNTL"] & 0x7FFFC
            if address != REMAP_DEFAULTS[kind]:
                self._remapped[kind] = self._board.space.door(
                    address, 4, lambda address: 0, lambda address, value: self._hdp.flush()
                )

    def _flush_request(self, engines: int) -> None:
        """Flush for `engines`: their DONE bits fall now and rise when the flush is done."""
        done = "BIF_BX_PF0_GPU_HDP_FLUSH_DONE"
        self.cells[done] &= ~engines
        self.cells["BIF_BX_PF0_GPU_HDP_FLUSH_REQ"] = 0

        def finish() -> None:
            self._hdp.flush()
            self.cells[done] |= engines

        self._board.clock.after(HDP_FLUSH_US, finish)

    # --- bus mastering ------------------------------------------------------------------------------------------
    def dma_refused(self) -> None:
        """Record that an engine tried to use the bus while bus mastering was off."""
        self.cells["BIF_BX_PF0_BIF_BME_STATUS"] |= 1

    def _bme_status(self, value: int) -> None:
        clear = 1 << 16  # CLEAR_DMA_ON_BME_LOW
        if value & clear:
            self.cells["BIF_BX_PF0_BIF_BME_STATUS"] = value & ~clear & ~1

    # --- doorbells ----------------------------------------------------------------------------------------------
    def listen(self, name: str, client: DoorbellClient) -> None:
        """Route the doorbells of an engine (`gc`, `sdma`, `ih`, `vcn`) to `client`; several clients of one name are
        tried in turn.
        """
        self._clients.setdefault(name, []).append(client)

    def doorbell(self, index: int, value: int, size_bytes: int) -> None:
        """Handle a write to the doorbell BAR at dword `index`. A doorbell that no aperture passes is dropped and
        logged.
        """
        self._hdp.kick("doorbell {:#x}", index)
        if not self.cells.load(self._doorbells_on) & 1:
            self._note(f"doorbell {index:#x} was rung while RCC_DOORBELL_APER_EN is off")
            return
        half, index = (index & 1, index & ~1) if size_bytes == 4 else (0, index)
        route = self._route(index)
        if route is None:
            self._note(f"doorbell {index:#x} lies in no range of an enabled S2A_DOORBELL_ENTRY_n_CTRL")
            return
        target, names = route
        if size_bytes == 4 and "ih" not in names:
            # QUIRK: bridges that send only dwords ring a 64-bit doorbell in halves, and cards behind them are known to
            # work. UNKNOWN: how the halves are joined. Here the high half waits for the low one; with `half_rings` off,
            # either half waits for the other.
            other = self._halves.pop(index | 1 - half, None)
            if other is None and (half or not self.half_rings):
                self._halves[index | half] = value
                return
            if other is not None:
                value, size_bytes = (other | value << 32 if half else value | other << 32), 8
        listeners = self._listeners(names)
        if self._chip.bus.chiplets:
            # every core gets it
            heard = [client.doorbell(target, value, size_bytes) for client in listeners]
            if any(heard):
                return
        elif any(client.doorbell(target, value, size_bytes) for client in listeners):
            return
        text = f"doorbell {index:#x} ({value:#x}) reached {' and '.join(names)}, where no queue listens to it"
        if index < FIRST_PAGE_DWORDS:
            self._note(text)
        # a process may ring while its queue is not mapped; once mapped, the queue reads its write pointer from memory.
        # Source: amdkfd
        else:
            self._board.log.note("nbio", "unheard", "{}", text)

    def _route(self, index: int) -> tuple[int, Sequence[str]] | None:
        """Return the doorbell's number as the engines see it, and the engines."""
        place = index & CHIPLET_MASK if self._chip.bus.chiplets else index
        for route in self._routes:
            if route.first <= place < route.end:
                return index - route.deduct, route.names
        return (index, self._rest) if self._rest else None

    def _read_routes(self, value: int = 0) -> None:
        """Read the doorbell ranges from the S2A entries."""
        self._routes, self._rest = [], ()
        if self._chip.bus.chiplets:
            self._rest = CHIPLET_REST
            layout = self._entries()[0]
            for name, clients in zip(self._entries(), CHIPLET_ENTRIES, strict=True):
                word = self.cells[name]
                first = self.cells.field(layout, "BIF_DOORBELL0_RANGE_OFFSET_ENTRY", word)
                if size := self.cells.field(layout, "BIF_DOORBELL0_RANGE_SIZE_ENTRY", word):
                    self._routes.append(Route(first, first + size, 0, clients))
            return
        for number, name in enumerate(self._entries()):
            entry = S2A_DOORBELL_ENTRY_0_CTRL(self.cells[name])
            if not entry.s2a_doorbell_port0_enable:
                continue
            if entry.s2a_doorbell_port0_64bit_support_dis:
                raise Unmodelled(f"doorbell entry {number} without 64-bit support")
            names = AWID_CLIENTS.get(entry.s2a_doorbell_port0_awid, ())
            first, size = entry.s2a_doorbell_port0_range_offset, entry.s2a_doorbell_port0_range_size
            if size:
                deduct = first if entry.s2a_doorbell_port0_need_deduct_range_offset else 0
                self._routes.append(Route(first, first + size, deduct, names))
            elif number in REST_ENTRIES:
                self._rest = self._rest or names

    def _listeners(self, names: Sequence[str]) -> list[DoorbellClient]:
        return [client for name in names for client in self._clients.get(name, ())]

    def _note(self, text: str) -> None:
        self._board.log.note("nbio", "violation", "{}", text)
