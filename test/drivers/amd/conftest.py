"""Fixtures for the blocks of a Radeon's driver: a virtual card, and only the driver's blocks that a test needs."""

from __future__ import annotations

import functools
import struct

import pytest
from language.rdna4_code import compile_with

import ringup
from ringup.autogen import regdb
from ringup.autogen.amd import psp
from ringup.autogen.amd.mmhub import MMMC_VM_FB_LOCATION_BASE
from ringup.drivers.amd.bus.discovery import discover
from ringup.drivers.amd.bus.hdp import Hdp
from ringup.drivers.amd.bus.nbio import Nbio
from ringup.drivers.amd.bus.registers import Block, Registers
from ringup.drivers.amd.gfx.core import Gfx
from ringup.drivers.amd.gfx.shape import Design
from ringup.drivers.amd.gmc.controller import Gmc
from ringup.drivers.amd.psp.firmware import firmware_set, psp_firmware
from ringup.drivers.amd.psp.processor import ROWS, Psp
from ringup.drivers.amd.psp.ring import PspBuffers
from ringup.drivers.amd.smu.controller import Smu
from ringup.firmware.store import Store

CHIPS = ("navi31", "navi32", "navi33")
GFX_FIRMWARE = (
    psp.GFX_FW_TYPE_RS64_PFP,
    psp.GFX_FW_TYPE_RS64_ME,
    psp.GFX_FW_TYPE_RS64_MEC,
    *range(psp.GFX_FW_TYPE_RS64_PFP_P0_STACK, psp.GFX_FW_TYPE_RS64_MEC_P3_STACK + 1),
    psp.GFX_FW_TYPE_CP_MES,
    psp.GFX_FW_TYPE_MES_STACK,
    psp.GFX_FW_TYPE_CP_MES_KIQ,
    psp.GFX_FW_TYPE_MES_KIQ_STACK,
    psp.GFX_FW_TYPE_RLC_RESTORE_LIST_GPM_MEM,
    psp.GFX_FW_TYPE_RLC_RESTORE_LIST_SRM_MEM,
    psp.GFX_FW_TYPE_RLC_IRAM,
    psp.GFX_FW_TYPE_RLC_DRAM_BOOT,
    psp.GFX_FW_TYPE_RLC_P,
    psp.GFX_FW_TYPE_RLC_V,
)
SDMA_FIRMWARE = (psp.GFX_FW_TYPE_SDMA_UCODE_TH0, psp.GFX_FW_TYPE_SDMA_UCODE_TH1)
VALID, SYSTEM, SNOOPED, RIGHTS = 1, 2, 4, 0x70  # amdgpu_vm.h, AMDGPU_PTE_*; rights: executable, readable, writeable
MEC_START = 0x1000  # where the micro engine's program begins; the model runs no program


class Hands:
    """A card and the driver's blocks, in the state in which the security processor leaves them.

    Host memory of `USER_BYTES` is at `USER` in VMID 8, the first 8 MiB of VRAM at `USER_VRAM`. Page tables are written
    directly into the model, without a driver.
    """

    VMID, USER, USER_BYTES, USER_VRAM = 8, 0x2_0000_0000, 1 << 20, 0x1_0000_0000
    SCRATCH_PA, TABLES_PA, RING_PA, MQD_PA = 0x1000, 0x20_0000, 0x10_0000, 0x11_0000

    def __init__(self, radeon):
        self.radeon = radeon
        # Memory decoding and bus mastering.
        radeon.config.write(4, 6, 2)
        self.registers = Registers(radeon)
        self.places = {place.block: place for place in regdb.open_chip(radeon.chip.name).row.places}
        self.hdp = Hdp(self.block("nbio"))
        self.nbio = Nbio(self.block("nbio"), self.block("nbio").version)
        self.hdp.start()
        self.nbio.start(2)
        self.gc, self.mmhub, self.osssys = self.block("gc"), self.block("mmhub"), self.block("osssys")
        self.default_page = radeon.alloc_host(4096)
        self.gmc = Gmc(
            [self.mmhub],
            [self.gc],
            self.hdp.flush,
            vram_bytes=radeon.vram.size_bytes,
            scratch_pa=self.SCRATCH_PA,
            default_bus_addr=self.default_page.bus_addr(0),
        )
        core = radeon.chip.gc.core
        self.design = Design(core.shader_engines, core.arrays_per_engine, core.wgps_per_array * 2)
        self.gfx = Gfx(self.gc, self.block("smuio"), self.design, MEC_START)
        self.user = radeon.alloc_host(self.USER_BYTES)
        # The root directories of all VMIDs come first.
        self.next_table = self.TABLES_PA + 16 * 4096

    def block(self, name):
        place = self.places[name]
        return Block(self.registers, name, tuple(map(int, place.version.split("."))), place.bases[0])

    def load_firmware(self):
        """Do what the security processor does: load firmware of the graphics core and SDMA, then start the RLC."""
        for kind in GFX_FIRMWARE:
            self.radeon.gc.firmware_loaded(kind, b"")
        for engine in self.radeon.sdma:
            for kind in SDMA_FIRMWARE:
                engine.firmware_loaded(kind, b"")
        self.radeon.gc.autoload()

    def start(self):
        """Start hubs and graphics core, with VMID 8's page tables."""
        self.load_firmware()
        self.gmc.start_mmhub()
        self.gfx.boot()
        self.gfx.place_programs()
        self.map_user()
        self.gmc.set_context(self.VMID, self.root(self.VMID))
        self.gmc.start_gfxhub()
        self.gfx.start()
        return self

    # --- page tables: four levels of 512 entries, 4 KiB pages ---------------------------------------------------
    def root(self, vmid):
        return self.TABLES_PA + vmid * 4096

    def entry(self, pa, index, value=None):
        """Read or write a page table entry in VRAM."""
        at = self.radeon.vram.view[pa + 8 * index : pa + 8 * index + 8]
        if value is not None:
            at[:] = struct.pack("<Q", value)
        return struct.unpack("<Q", at)[0]

    def map_page(self, vmid, gpu_va, entry):
        table = self.root(vmid)
        for shift in (39, 30, 21):
            index = gpu_va >> shift & 511
            found = self.entry(table, index)
            if not found & VALID:
                found = self.entry(table, index, self.next_table | VALID)
                self.next_table += 4096
            table = found & 0xFFFF_FFFF_F000
        self.entry(table, gpu_va >> 12 & 511, entry)

    def map_user(self):
        for at in range(0, self.USER_BYTES, 4096):
            self.map_page(self.VMID, self.USER + at, self.user.bus_addr(at) | VALID | SYSTEM | SNOOPED | RIGHTS)
        for at in range(0, 8 << 20, 4096):
            self.map_page(self.VMID, self.USER_VRAM + at, at | VALID | RIGHTS)

    # --- memory -------------------------------------------------------------------------------------------------
    def put(self, at, *words):
        """Store dwords in VMID 8's host memory, `at` bytes in."""
        self.user.view[at : at + 4 * len(words)] = struct.pack(f"<{len(words)}I", *words)

    def get(self, at, count=1):
        """Read dwords of VMID 8's host memory."""
        words = struct.unpack(f"<{count}I", self.user.view[at : at + 4 * count])
        return words[0] if count == 1 else list(words)

    def vram(self, pa, size_bytes):
        return self.radeon.vram.view[pa : pa + size_bytes]


@pytest.fixture
def virtual_card(virtual_card):
    """Make cards as the plugin's fixture does, with a security processor that looks at its mailbox at once."""

    def make(*args, **options):
        made = virtual_card(*args, **options)
        made.hdp.slow_listeners = made.hdp.forgives_left = False
        return made

    return make


@pytest.fixture
def hands(virtual_card):
    """`hands(chip)` makes a powered card and the driver's blocks, none of them started."""
    return lambda chip="navi31": Hands(virtual_card(chip, vram_bytes=64 << 20))


@pytest.fixture(params=CHIPS)
def up(hands, request):
    """A card with its hubs and graphics core started; each chip in turn."""
    return hands(request.param).start()


class Boot:
    """A card and the driver's blocks that bring its processors up. Only the bus interface and the host data path are
    started.
    """

    BUFFERS = PspBuffers(message=0x10_0000, ring=0x1000, command=0x2000)
    TABLE_PA, PAGE_PA, TMR_PA = 0x8000, 0x4000, 32 << 20

    def __init__(self, radeon):
        self.radeon = radeon
        # Memory decoding and bus mastering.
        radeon.config.write(4, 6, 2)
        self.registers = Registers(radeon)
        self.ips, self.window = discover(radeon, self.registers)
        self.nbio = Nbio(self.ips.block("nbio"), self.ips.version("nbio"))
        self.hdp = Hdp(self.nbio.block)
        self.hdp.start()
        self.nbio.start(2)
        self.fb_base = int(self.ips.block("mmhub").read(MMMC_VM_FB_LOCATION_BASE)) << 24
        self.psp = self.make_psp()
        self.smu = self.make_smu()

    def make_psp(self, **changed):
        given = {"buffers": self.BUFFERS, "fb_base": self.fb_base} | changed
        return Psp(self.ips.block("mp0"), self.ips.version("mp0"), self.window, self.hdp, **given)

    def make_smu(self):
        return Smu(self.ips.block("mp1"), self.ips.version("mp1"), self.window, self.hdp, self.TABLE_PA, self.fb_base)

    def firmware(self, *folders):
        """Return what the security processor loads: the model's own images, or the files of `folders`."""
        if folders:
            self.radeon.firmware = lambda name: None
        row = ROWS[self.ips.version("mp0")]
        return psp_firmware(firmware_set(self.radeon, self.ips, Store(folders)), self.ips.version("gc"), row)

    def load(self, firmware=None):
        """Start the security processor and load everything."""
        self.psp.start(firmware or self.firmware(), lambda size_bytes: self.TMR_PA)
        return self


@pytest.fixture
def boot_of():
    """`boot_of(radeon)` gives the driver's blocks over a card that the test made."""
    return Boot


@pytest.fixture
def boot(virtual_card):
    """`boot(chip, …)` makes a powered card with known blocks, whose processors have no firmware yet."""
    return lambda chip="navi31", **options: Boot(virtual_card(chip, **{"vram_bytes": 64 << 20} | options))


COMPILE = ("clang-19", "-w", "-x", "cl", "-cl-std=CL2.0", "-target", "amdgcn-amd-amdhsa", "-nogpulib", "-O1")


@pytest.fixture(scope="session")
def opencl(tmp_path_factory):
    """`opencl(source, target, *flags)` is the code object that clang makes of OpenCL C. Each is compiled once."""
    folder = tmp_path_factory.mktemp("opencl")

    @functools.cache
    def build(source, target, *flags):
        (folder / "source.cl").write_text(source)
        compile_with([*COMPILE, f"-mcpu={target}", *flags, str(folder / "source.cl")], target, folder / "out")
        return (folder / "out").read_bytes()

    return build


TROUBLE = """
__kernel void spin(__global volatile uint *flag) { while (flag[0] == 0) ; }
__kernel void store(__global uint *out, uint value) { out[__builtin_amdgcn_workitem_id_x()] = value; }
"""


@pytest.fixture(scope="session")
def trouble(tmp_path_factory):
    """`trouble(target)` is a code object with two kernels: `spin` ends when the first dword of a buffer is not 0,
    `store` stores a value. Each is compiled once.
    """
    folder = tmp_path_factory.mktemp("trouble")
    (folder / "source.cl").write_text(TROUBLE)
    argv = ["clang-19", "-w", "-x", "cl", "-cl-std=CL2.0", "-target", "amdgcn-amd-amdhsa", "-nogpulib", "-O2"]

    @functools.cache
    def build(target):
        compile_with([*argv, f"-mcpu={target}", str(folder / "source.cl")], target, folder / "out")
        return (folder / "out").read_bytes()

    return build


class Bench:
    """An open card on a model, with one program that never ends and one that stores a value."""

    def __init__(self, radeon, trouble):
        self.radeon = radeon
        self.card = ringup.open(radeon.name, transport={"card": radeon})
        self.code = trouble(self.card.info.target)
        self.program = self.card.load(self.code, "trouble")
        self.flag = self.card.alloc(4096, name="flag")
        self.card.copy.fill(self.flag, 0).wait()

    def hang(self, queue=None):
        """Submit the program that never ends; return its point."""
        queue = queue or self.card.compute
        stream = queue.stream()
        stream.dispatch(self.program["spin"], 1, 32, [self.flag])
        return queue.submit(stream)

    def store(self, address, value, queue=None, program=None):
        """Submit a store of `value` to 32 dwords at `address`; return its point."""
        queue = queue or self.card.compute
        stream = queue.stream()
        stream.dispatch((program or self.program)["store"], 1, 32, [address, value])
        return queue.submit(stream)

    def works(self, value, queue=None, copy=None):
        """Tell whether a copy queue fetches a value that a compute queue stores."""
        program = None if not self.program.lost else self.card.load(self.code, "trouble again")
        copy = copy or self.card.copy
        with self.card.alloc(128) as out:
            copy.wait_for(self.store(out, value, queue, program))
            return copy.download(out) == struct.pack("<I", value) * 32


@pytest.fixture
def bench(virtual_card, trouble):
    """`bench(chip, …)` is an open card. It is closed at the end and must not have recorded a violation that the test
    did not clear.
    """
    made = []

    def make(chip="navi31", **options):
        made.append(Bench(virtual_card(chip, **{"vram_bytes": 512 << 20} | options), trouble))
        return made[-1]

    yield make
    for one in made:
        one.card.close()
