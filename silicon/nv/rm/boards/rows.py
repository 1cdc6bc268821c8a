"""The board rows: TU102 as Tesla T10, GA100 as A100, GA102 as A10, AD102 as L40S, GH100 as H100, GB202 as RTX PRO 6000.
None of them has a display; GB202 has an engine for them.

Classes and numbers of engines: hal…ClassDescriptorList of g_gpu_class_list.c, NVIDIA's open kernel modules 535.261.03.
"""

from __future__ import annotations

from ringup.autogen.nv import mmu, rm_ctrl_2080_fb, rm_ctrl_2080_fifo
from ringup.errors import NoSuchCard
from ringup.silicon.nv.rm.boards.facts import (
    STALL_SUBTREE,
    UVM_OWNED_SUBTREE,
    UVM_SHARED_SUBTREE,
    VECTORS_PER_SUBTREE,
    Board,
    Copying,
    Display,
    Engine,
    EngineKind,
    Frame,
    Shaders,
    Vectors,
)

HBM2 = rm_ctrl_2080_fb.NV2080_CTRL_FB_INFO_RAM_TYPE_HBM2
GDDR7 = rm_ctrl_2080_fb.NV2080_CTRL_FB_INFO_RAM_TYPE_GDDR7
GDDR6 = rm_ctrl_2080_fb.NV2080_CTRL_FB_INFO_RAM_TYPE_GDDR6
STALL_BASE = mmu.NV_CTRL_LEGACY_ENGINE_STALL_INTR_BASE_VECTORID_VECTOR_INIT
assert STALL_BASE == STALL_SUBTREE * VECTORS_PER_SUBTREE

# GUESS: no public header has the registers of a runlist and of its channels' state on these chips. They lie apart, in
# a part of BAR 0 that no other block of the card uses.
RUNLIST_BASE, RUNLIST_STRIDE = 0xA00000, 0x1000
CHANNEL_RAM_BASE, CHANNEL_RAM_STRIDE = 0xA40000, 0x4000
# bases of the engines' own registers. Source: nouveau nvkm/subdev/top and the engines' constructors (GR, SEC2, NVDEC);
# GUESS for the rest
REGISTERS = {
    EngineKind.GR: (0x400000, 0),
    EngineKind.CE: (0x104000, 0x1000),
    EngineKind.NVDEC: (0x848000, 0x4000),
    EngineKind.NVENC: (0x1C8000, 0x4000),
    EngineKind.NVJPG: (0x830000, 0x4000),
    EngineKind.OFA: (0x844000, 0),
    EngineKind.SEC2: (0x840000, 0),
}
# a channel's context of a falcon. GUESS: metal's size is not public
FALCON_CONTEXT_BYTES = 0x1000
FALCONS = (EngineKind.NVDEC, EngineKind.NVENC, EngineKind.NVJPG, EngineKind.OFA, EngineKind.SEC2)
# GSP-RM reports its own interrupts on the first stalling vector. GUESS: which one metal uses is not public
GSP_VECTOR = STALL_BASE
_UVM, _SHARED = UVM_OWNED_SUBTREE * VECTORS_PER_SUBTREE, UVM_SHARED_SUBTREE * VECTORS_PER_SUBTREE
# GUESS: the numbers within each subtree, except the doorbell's, which a header has
VECTORS = Vectors(
    gsp=GSP_VECTOR,
    timer=_SHARED + 2,
    replayable_fault=_UVM,
    replayable_fault_error=_SHARED + 3,
    non_replayable_fault=_SHARED + 4,
    non_replayable_fault_error=_SHARED + 5,
    access_counter=_UVM + 1,
    cpu_doorbell=mmu.NV_CTRL_CPU_DOORBELL_VECTORID_VALUE_CONSTANT,
)
# Sizes and alignments of the buffers behind a graphics context. GUESS: metal's are in the closed firmware; these are
# multiples of a page in the proportions that drivers expect. Both drivers allocate what they are told.
CONTEXT_BUFFERS = {
    "GRAPHICS": (0x8D000, 0x1000),
    "GRAPHICS_ZCULL": (0x27000, 0x1000),
    "GRAPHICS_PM": (0x1000, 0x1000),
    "COMPUTE_PREEMPT": (0x1000, 0x1000),
    "GRAPHICS_PREEMPT": (0x200000, 0x1000),
    "GRAPHICS_SPILL": (0x12000, 0x1000),
    "GRAPHICS_PAGEPOOL": (0x20000, 0x1000),
    "GRAPHICS_BETACB": (0x80000, 0x1000),
    "GRAPHICS_RTV": (0x8000, 0x1000),
    "GRAPHICS_PATCH": (0x2000, 0x1000),
    "GRAPHICS_BUNDLE_CB": (0x6000, 0x1000),
    "GRAPHICS_PAGEPOOL_GLOBAL": (0x20000, 0x1000),
    "GRAPHICS_ATTRIBUTE_CB": (0x600000, 0x1000),
    "GRAPHICS_RTV_CB_GLOBAL": (0xA0000, 0x1000),
    "GRAPHICS_GFXP_POOL": (0x8000, 0x1000),
    "GRAPHICS_GFXP_CTRL_BLK": (0x8000, 0x1000),
    "GRAPHICS_FECS_EVENT": (0x80000, 0x1000),
    "GRAPHICS_PRIV_ACCESS_MAP": (0x80000, 0x1000),
}
# the buffer that keeps methods after a fault of a copy engine. GUESS: r535_gr_oneinit of nouveau passes as many bytes
FAULT_METHOD_BUFFER_BYTES = 0x5000


# Source: dev_ce.h of tu102, NV_CE_PCE2LCE_CONFIG__SIZE_1, and the default entry of nvLinkCeAutoConfigTable_TU102.
# GUESS: a board without NVLink starts with it
TURING_COPYING = Copying(0b1111, 0b1111, (0, 1), ((1, 4), (2, 2), (3, 3)), (4, 3))
# Source: dev_ce.h of ga100 (18 PCEs, two GRCEs), kernel_ce_ga100.c (LCEs 2 and 3 have PCEs 16 and 17 by default).
# GUESS: which PCEs the others get on a board without links
GA100_COPYING = Copying(
    0x3FFFF,
    0b11 << 16,
    (0, 1),
    ((0, 4), (1, 5), (2, 6), (3, 7), (4, 8), (5, 9), (16, 2), (17, 3)),
    (2, 3),
)
# Source: dev_ce.h of ga102, which later chips use too; kceGetMappings_GA100 and kernel_ce_ga102.c: the PCEs at the hub
# are for LCEs 2 and 3 and the GRCEs share them, LCE 4 gets two others. GUESS: which PCEs are at the hub
AMPERE_COPYING = Copying(0b111111, 0b11, (0, 1), ((0, 2), (1, 3), (2, 4), (3, 4)), (2, 3))
# Source: dev_ce.h of gh100 (16 PCEs), kernel_ce_gh100.c (LCEs 0 and 1 are GRCEs, four PCEs at the hub of video memory,
# 12 without links). GUESS: which LCE each works for
HOPPER_COPYING = Copying(
    0xFFF,
    0b1111,
    (0, 1),
    ((0, 2), (1, 3), (2, 2), (3, 3), *((pce, pce) for pce in range(4, 10)), (10, 4), (11, 5)),
    (2, 3),
)
# Source: dev_ce.h of gb202, NV_CE_GRCE_MASK: LCEs 0 to 3 are GRCEs. GUESS: the PCEs, and which LCE each works for
BLACKWELL_COPYING = Copying(
    0b11_1111_1111,
    0b1111,
    (0, 1, 2, 3),
    ((0, 4), (1, 5), (2, 6), (3, 7), (4, 4), (5, 5), (6, 6), (7, 7), (8, 4), (9, 5)),
    (4, 5, 6, 7),
)


def _fault_id(chip: str, kind: EngineKind, instance: int) -> int:
    """Return NV_PFAULT_MMU_ENG_ID_* of an engine."""
    names = {
        EngineKind.GR: "GRAPHICS",
        EngineKind.SEC2: "SEC",
        EngineKind.OFA: "OFA0",
        EngineKind.NVJPG: f"NVJPG{instance}",
    }
    name = f"NV_PFAULT_MMU_ENG_ID_{names.get(kind, f'{kind.name}{instance}')}"
    return mmu.VALUES.get(chip, {}).get(name) or int(getattr(mmu, name))


def _engines(chip: str, counts: dict[EngineKind, int], graphics_lces: tuple[int, ...]) -> tuple[Engine, ...]:
    """Return the engines of a chip, graphics first. Graphics and its copy engines share a runlist and its PBDMAs; every
    other engine has its own.
    """
    wanted = [(kind, instance) for kind, count in counts.items() for instance in range(count)]
    made: list[Engine] = []
    # a device's entry names two at most. GUESS: four GRCEs share these
    shared = min(len(graphics_lces), rm_ctrl_2080_fifo.NV2080_CTRL_FIFO_GET_DEVICE_INFO_TABLE_ENGINE_MAX_PBDMA)
    runlist, pbdma = 0, shared
    for index, (kind, instance) in enumerate(wanted):
        shares = kind is EngineKind.GR or (kind is EngineKind.CE and instance in graphics_lces)
        if not shares:
            runlist += 1
        own = 0 if shares else runlist
        if kind is EngineKind.GR:
            pbdmas = tuple(range(shared))
        elif shares:
            pbdmas = (graphics_lces.index(instance) % shared,)
        else:
            pbdmas, pbdma = (pbdma,), pbdma + 1
        base, stride = REGISTERS[kind]
        made.append(
            Engine(
                kind=kind,
                instance=instance,
                runlist=own,
                runlist_base=RUNLIST_BASE + own * RUNLIST_STRIDE,
                channel_ram_base=CHANNEL_RAM_BASE + own * CHANNEL_RAM_STRIDE,
                group=index if shares else 0,
                pbdmas=pbdmas,
                fault_id=_fault_id(chip, kind, instance),
                # GUESS: the order of the reset bits
                reset_id=index,
                stall_vector=STALL_BASE + 1 + index,
                notification_vector=index,
                register_base=base + stride * instance,
                context_bytes=FALCON_CONTEXT_BYTES if kind in FALCONS else 0,
            )
        )
    return tuple(made)


TU102 = Board(
    chip="tu102",
    architecture=0x160,
    implementation=0x2,
    classes=(
        "TURING_CHANNEL_GPFIFO_A",
        "VOLTA_CHANNEL_GPFIFO_A",
        "TURING_A",
        "TURING_COMPUTE_A",
        "FERMI_TWOD_A",
        "KEPLER_INLINE_TO_MEMORY_B",
        "TURING_DMA_COPY_A",
        "NVC4B0_VIDEO_DECODER",
        "NVC4B7_VIDEO_ENCODER",
    ),
    engines=_engines(
        "tu102",
        {EngineKind.GR: 1, EngineKind.CE: 5, EngineKind.NVDEC: 1, EngineKind.NVENC: 1, EngineKind.SEC2: 1},
        (0, 1),
    ),
    vectors=VECTORS,
    # Tesla T10: 3072 cores, 48 SMs of 72. GUESS: which are left
    shaders=Shaders(0x705, 0b1111, (0x3F,) * 4, 2, 6, 6, 3, 32, 65536, 16, 1, 8, 64),
    frame=Frame(GDDR6, 256, 0xF, 4 << 20, 8, 4),
    copying=TURING_COPYING,
    per_runlist_channels=False,
    channels=4096,
    usermode_base=0xBB0000,
    context_buffers=CONTEXT_BUFFERS,
    fault_method_buffer_bytes=FAULT_METHOD_BUFFER_BYTES,
    bios=(0x90020100, 1),
)
GA100 = Board(
    chip="ga100",
    architecture=0x170,
    implementation=0x0,
    # g_gpu_class_list.c of 570.144, halGA100ClassDescriptorList
    classes=(
        "AMPERE_CHANNEL_GPFIFO_A",
        "TURING_CHANNEL_GPFIFO_A",
        "VOLTA_CHANNEL_GPFIFO_A",
        "AMPERE_A",
        "AMPERE_COMPUTE_A",
        "FERMI_TWOD_A",
        "KEPLER_INLINE_TO_MEMORY_B",
        "AMPERE_DMA_COPY_A",
        "NVC6B0_VIDEO_DECODER",
        "NVC4D1_VIDEO_NVJPG",
        "NVC6FA_VIDEO_OFA",
    ),
    engines=_engines(
        "ga100",
        {
            EngineKind.GR: 1,
            EngineKind.CE: 10,
            EngineKind.NVDEC: 5,
            EngineKind.NVJPG: 1,
            EngineKind.OFA: 1,
            EngineKind.SEC2: 1,
        },
        GA100_COPYING.graphics_lces,
    ),
    vectors=VECTORS,
    # A100: 6912 cores, 108 SMs of 128, in 7 of 8 GPCs of 8 TPCs. GUESS: which are left
    shaders=Shaders(0x800, 0x7F, (*((0xFF,) * 5), 0x7F, 0x7F), 2, 8, 8, 3, 64, 65536, 16, 0, 4, 64),
    # 80 slices of 512 KiB. GUESS: four to a unit
    frame=Frame(HBM2, 5120, 0x3FF, 40 << 20, 20, 4),
    copying=GA100_COPYING,
    per_runlist_channels=True,
    channels=2048,
    usermode_base=0xBB0000,
    context_buffers=CONTEXT_BUFFERS,
    fault_method_buffer_bytes=FAULT_METHOD_BUFFER_BYTES,
    bios=(0x92000100, 1),
)
GA102 = Board(
    chip="ga102",
    architecture=0x170,
    implementation=0x2,
    classes=(
        "AMPERE_CHANNEL_GPFIFO_A",
        "TURING_CHANNEL_GPFIFO_A",
        "VOLTA_CHANNEL_GPFIFO_A",
        "AMPERE_B",
        "AMPERE_COMPUTE_B",
        "FERMI_TWOD_A",
        "KEPLER_INLINE_TO_MEMORY_B",
        "AMPERE_DMA_COPY_B",
        "NVC7B0_VIDEO_DECODER",
        "NVC7B7_VIDEO_ENCODER",
        "NVC7FA_VIDEO_OFA",
    ),
    engines=_engines(
        "ga102",
        {
            EngineKind.GR: 1,
            EngineKind.CE: 5,
            EngineKind.NVDEC: 2,
            EngineKind.NVENC: 1,
            EngineKind.OFA: 1,
            EngineKind.SEC2: 1,
        },
        (0, 1),
    ),
    vectors=VECTORS,
    # A10: 9216 cores, 72 SMs of 84. GUESS: which are left
    shaders=Shaders(
        0x806, 0b111_1111, (0x3F, 0x1F, 0x1F, 0x1F, 0x1F, 0x1F, 0x1F), 2, 7, 6, 3, 48, 65536, 16, 1, 4, 128
    ),
    frame=Frame(GDDR6, 384, 0x3F, 6 << 20, 12, 4),
    copying=AMPERE_COPYING,
    per_runlist_channels=True,
    channels=2048,
    usermode_base=0xBB0000,
    context_buffers=CONTEXT_BUFFERS,
    fault_method_buffer_bytes=FAULT_METHOD_BUFFER_BYTES,
    bios=(0x94020100, 1),
)
AD102 = Board(
    chip="ad102",
    architecture=0x190,
    implementation=0x2,
    classes=(
        "AMPERE_CHANNEL_GPFIFO_A",
        "TURING_CHANNEL_GPFIFO_A",
        "VOLTA_CHANNEL_GPFIFO_A",
        "ADA_A",
        "ADA_COMPUTE_A",
        "FERMI_TWOD_A",
        "KEPLER_INLINE_TO_MEMORY_B",
        "AMPERE_DMA_COPY_B",
        "NVC9B0_VIDEO_DECODER",
        "NVC9B7_VIDEO_ENCODER",
        "NVC9D1_VIDEO_NVJPG",
        "NVC9FA_VIDEO_OFA",
    ),
    engines=_engines(
        "ad102",
        {
            EngineKind.GR: 1,
            EngineKind.CE: 5,
            EngineKind.NVDEC: 4,
            EngineKind.NVENC: 3,
            EngineKind.NVJPG: 4,
            EngineKind.OFA: 1,
            EngineKind.SEC2: 1,
        },
        (0, 1),
    ),
    vectors=VECTORS,
    # L40S: 18176 cores, 142 SMs of 144. GUESS: which are left
    shaders=Shaders(0x809, 0xFFF, (0x1F, *((0x3F,) * 11)), 2, 12, 6, 3, 48, 65536, 16, 1, 4, 128),
    frame=Frame(GDDR6, 384, 0x3F, 96 << 20, 24, 4),
    copying=AMPERE_COPYING,
    per_runlist_channels=True,
    channels=2048,
    usermode_base=0xBB0000,
    context_buffers=CONTEXT_BUFFERS,
    fault_method_buffer_bytes=FAULT_METHOD_BUFFER_BYTES,
    bios=(0x95020100, 1),
)
GH100 = Board(
    chip="gh100",
    architecture=0x180,
    implementation=0x0,
    # g_gpu_class_list.c of 570.144, halGH100ClassDescriptorList
    classes=(
        "HOPPER_CHANNEL_GPFIFO_A",
        "AMPERE_CHANNEL_GPFIFO_A",
        "TURING_CHANNEL_GPFIFO_A",
        "VOLTA_CHANNEL_GPFIFO_A",
        "HOPPER_A",
        "HOPPER_COMPUTE_A",
        "FERMI_TWOD_A",
        "KEPLER_INLINE_TO_MEMORY_B",
        "HOPPER_DMA_COPY_A",
        "NVB8B0_VIDEO_DECODER",
        "NVB8D1_VIDEO_NVJPG",
        "NVB8FA_VIDEO_OFA",
    ),
    engines=_engines(
        "gh100",
        # the board has seven decoders of either kind; of these the fault numbers are known, by GA100's dev_fault.h
        {
            EngineKind.GR: 1,
            EngineKind.CE: 10,
            EngineKind.NVDEC: 3,
            EngineKind.NVJPG: 1,
            EngineKind.OFA: 1,
            EngineKind.SEC2: 1,
        },
        HOPPER_COPYING.graphics_lces,
    ),
    vectors=VECTORS,
    # 14592 cores, 114 SMs of 144, in 8 GPCs of 9 TPCs. GUESS: which are left
    shaders=Shaders(0x900, 0xFF, (0xFF, *((0x7F,) * 7)), 2, 8, 9, 3, 64, 65536, 16, 0, 4, 128),
    frame=Frame(HBM2, 5120, 0x3FF, 50 << 20, 80, 2),
    copying=HOPPER_COPYING,
    per_runlist_channels=True,
    channels=2048,
    usermode_base=0xBB0000,
    context_buffers=CONTEXT_BUFFERS,
    fault_method_buffer_bytes=FAULT_METHOD_BUFFER_BYTES,
    bios=(0x96000100, 1),
)
GB202 = Board(
    chip="gb202",
    architecture=0x1B0,
    implementation=0x2,
    # g_gpu_class_list.c of 570.144, halGB202ClassDescriptorList
    classes=(
        "BLACKWELL_CHANNEL_GPFIFO_B",
        "BLACKWELL_CHANNEL_GPFIFO_A",
        "HOPPER_CHANNEL_GPFIFO_A",
        "AMPERE_CHANNEL_GPFIFO_A",
        "TURING_CHANNEL_GPFIFO_A",
        "VOLTA_CHANNEL_GPFIFO_A",
        "BLACKWELL_B",
        "BLACKWELL_COMPUTE_B",
        "FERMI_TWOD_A",
        "BLACKWELL_INLINE_TO_MEMORY_A",
        "BLACKWELL_DMA_COPY_B",
        "NVCFB0_VIDEO_DECODER",
        "NVCFB7_VIDEO_ENCODER",
        "NVCFD1_VIDEO_NVJPG",
        "NVCFFA_VIDEO_OFA",
        "NV04_DISPLAY_COMMON",
        "NVCA70_DISPLAY",
    ),
    engines=_engines(
        "gb202",
        {
            EngineKind.GR: 1,
            EngineKind.CE: 8,
            EngineKind.NVDEC: 4,
            EngineKind.NVENC: 4,
            EngineKind.NVJPG: 4,
            EngineKind.OFA: 1,
            EngineKind.SEC2: 1,
        },
        BLACKWELL_COPYING.graphics_lces,
    ),
    vectors=VECTORS,
    # 24064 cores, 188 SMs of 192, in 12 GPCs of 8 TPCs. GUESS: which are left. The version is that by which tinygrad
    # knows sm_120
    shaders=Shaders(0xA04, 0xFFF, (0x7F, 0x7F, *((0xFF,) * 10)), 2, 12, 8, 4, 48, 65536, 16, 1, 4, 128),
    frame=Frame(GDDR7, 512, 0xFF, 128 << 20, 32, 4),
    copying=BLACKWELL_COPYING,
    per_runlist_channels=True,
    channels=2048,
    usermode_base=0xBB0000,
    context_buffers=CONTEXT_BUFFERS,
    fault_method_buffer_bytes=FAULT_METHOD_BUFFER_BYTES,
    bios=(0x98020100, 1),
    # dev_vm.h of gb202, NV_VIRTUAL_FUNCTION_DOORBELL_RUNLIST_DOORBELL_ENABLE; gb202_chan_doorbell_handle of nouveau
    doorbell_enable=1 << 30,
    # as many heads, SORs and windows as nouveau's coreca7d_init and r535_sor_cnt have. GUESS: the vectors
    display=Display(0xF, 0xF, 0xFF, _SHARED + 6, _SHARED + 7),
)
ROWS = {row.chip: row for row in (TU102, GA100, GA102, AD102, GH100, GB202)}


def find(chip: str) -> Board:
    """Return the row of a chip. Raises `NoSuchCard`, which lists those that there are."""
    if chip not in ROWS:
        raise NoSuchCard(f"there is no board of chip {chip!r}; there are {', '.join(ROWS)}")
    return ROWS[chip]
