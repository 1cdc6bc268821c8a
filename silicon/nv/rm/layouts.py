"""Parameters that the generated modules lack: structs of NVIDIA's open kernel modules 535.261.03 that its manifest does
not name. 535.113.01 has the same.

Each docstring names struct and header; members have plain names. Offsets follow the C rules of alignment. What later
releases changed is from NVIDIA's open kernel modules 555.58.02, and from nouveau's excerpts of 570.144.
"""

from __future__ import annotations

from typing import ClassVar

from ringup.autogen.layout import Array, Struct

# the branches whose first release changed a struct, as in the generated modules
BRANCHES = ("535", "545", "550", "555", "560", "565", "570", "575")


class UVM_CHANNEL_RETAINER(Struct):
    """NV_UVM_CHANNEL_RETAINER_ALLOC_PARAMS: clc574.h. Handles of a client and of its channel."""

    SIZE, ALIGN = 8, 4
    LAYOUT = "client:u32@0 channel:u32@4"
    client: int
    channel: int


class TRANSFER_SURFACE(Struct):
    """NV2080_CTRL_INTERNAL_TRANSFER_SURFACE_INFO: ctrl2080internal.h."""

    SIZE, ALIGN = 32, 8
    LAYOUT = "base:u64@0 size:u64@8 offset:u64@16 aperture:u32@24 caching:u32@28"
    base: int
    size: int
    offset: int
    aperture: int
    caching: int


class MEMORY_TRANSFER(Struct):
    """NV2080_CTRL_INTERNAL_MEMMGR_MEMORY_TRANSFER_WITH_GSP_PARAMS: ctrl2080internal.h."""

    SIZE, ALIGN = 96, 8
    LAYOUT = "src:TRANSFER_SURFACE@0 tag:u8[16]@32 dst:TRANSFER_SURFACE@48 size:u64@80 value:u32@88 operation:u32@92"
    src: TRANSFER_SURFACE
    tag: Array[int]
    dst: TRANSFER_SURFACE
    size: int
    value: int
    operation: int


# enum NV2080_CTRL_MEMMGR_MEMORY_OP, ctrl2080internal.h
MEMORY_OP_MEMCPY, MEMORY_OP_MEMSET = 0, 1


class BIF_STATIC_INFO(Struct):
    """NV2080_CTRL_INTERNAL_BIF_GET_STATIC_INFO_PARAMS: ctrl2080internal.h."""

    SIZE, ALIGN = 16, 8
    LAYOUT = "generation_4:u8@0 chip_link:u8@1 dma_window:u64@8"
    generation_4: int
    chip_link: int
    dma_window: int


class TRACE_ENABLE(Struct):
    """NV2080_CTRL_INTERNAL_GR_FECS_TRACE_HW_ENABLE_PARAMS: ctrl2080internal.h. The first 16 bytes name the engine."""

    SIZE, ALIGN = 24, 8
    LAYOUT = "route:u8[16]@0 enable:u8@16"
    route: Array[int]
    enable: int


class BOOST_SYNC_INFO(Struct):
    """NV2080_CTRL_INTERNAL_PERF_GPU_BOOST_SYNC_GET_INFO_PARAMS: ctrl2080internal.h."""

    SIZE, ALIGN = 16, 8
    LAYOUT = "hysteresis_us:u64@0 hysteresis:u8@8 enabled:u8@9"
    hysteresis_us: int
    hysteresis: int
    enabled: int


class MODULE_INFO(Struct):
    """NV2080_CTRL_PMGR_MODULE_INFO_PARAMS: ctrl2080pmgr.h."""

    SIZE, ALIGN = 8, 4
    LAYOUT = "module:u32@0 nvswitch:u8@4"
    module: int
    nvswitch: int


class I2C_PORTS(Struct):
    """NV402C_CTRL_I2C_GET_PORT_INFO_PARAMS: ctrl402c.h."""

    SIZE, ALIGN = 16, 1
    LAYOUT = "ports:u8[16]@0"
    ports: Array[int]


class FACT(Struct):
    """NVXXXX_CTRL_XXX_INFO: ctrlxxxx.h."""

    SIZE, ALIGN = 8, 4
    LAYOUT = "index:u32@0 data:u32@4"
    index: int
    data: int


class UNDOCUMENTED_LIST(Struct):
    """The parameters of control 0x20808159, as a request of libcuda 535.261.03 looks; no header has it."""

    SIZE, ALIGN = 332, 4
    LAYOUT = "count:u32@0 entries:FACT[41]@4"
    count: int
    entries: Array[FACT]


class SAVE_INIT(Struct):
    """NV2080_CTRL_INTERNAL_FBSR_INIT_PARAMS: ctrl2080internal.h. Since 555 the CPU saves its own memory itself."""

    SIZE, ALIGN = 32, 8
    LAYOUT = "kind:u32@0 regions:u32@4 client:u32@8 memory:u32@12 own_offset:u64@16 off:u8@24"
    CHANGES: ClassVar = {
        "555": (12, "-kind -regions -own_offset client:u32@0 memory:u32@4 off:u8@8"),
        "570": (24, "metadata:u64@16"),
    }
    kind: int
    regions: int
    client: int
    memory: int
    own_offset: int
    off: int
    metadata: int


class SAVE_REGION(Struct):
    """NV2080_CTRL_INTERNAL_FBSR_SEND_REGION_INFO_PARAMS: ctrl2080internal.h."""

    SIZE, ALIGN = 40, 8
    LAYOUT = "kind:u32@0 client:u32@4 memory:u32@8 offset:u64@16 save_offset:u64@24 size:u64@32"
    CHANGES: ClassVar = {"555": None}
    kind: int
    client: int
    memory: int
    offset: int
    save_offset: int
    size: int


class HALT_CHANNELS(Struct):
    """NV2080_CTRL_CMD_INTERNAL_FIFO_TOGGLE_ACTIVE_CHANNEL_SCHEDULING_PARAMS: ctrl2080internal.h of 555."""

    SIZE, ALIGN = 1, 1
    LAYOUT = "halt:u8@0"
    SINCE = "555"
    halt: int


class THERMAL_INSTRUCTION(Struct):
    """NV2080_CTRL_THERMAL_SYSTEM_INSTRUCTION: ctrl2080thermal.h of 575."""

    SIZE, ALIGN = 44, 4
    LAYOUT = "result:u32@0 executed:u32@4 opcode:u32@8 operands:i32[8]@12"
    result: int
    executed: int
    opcode: int
    operands: Array[int]


class THERMAL_LIST(Struct):
    """NV2080_CTRL_THERMAL_SYSTEM_EXECUTE_V2_PARAMS: ctrl2080thermal.h of 575.

    No header of 535 has it, but nvidia-smi 535.261.03 sends as many bytes, with the same numbers in front.
    """

    SIZE, ALIGN = 1432, 4
    LAYOUT = (
        "version:u32@0 revision:u32@4 instruction_bytes:u32@8 flags:u32@12 successful:u32@16 count:u32@20 "
        "instructions:THERMAL_INSTRUCTION[32]@24"
    )
    version: int
    revision: int
    instruction_bytes: int
    flags: int
    successful: int
    count: int
    instructions: Array[THERMAL_INSTRUCTION]


class DISPLAY_INSTANCE_MEMORY(Struct):
    """NV2080_CTRL_INTERNAL_DISPLAY_WRITE_INST_MEM_PARAMS: ctrl2080internal.h."""

    SIZE, ALIGN = 24, 8
    LAYOUT = "address:u64@0 size:u64@8 space:u32@16 caching:u32@20"
    address: int
    size: int
    space: int
    caching: int


class DISPLAY_STATIC_INFO(Struct):
    """NV2080_CTRL_INTERNAL_DISPLAY_GET_STATIC_INFO_PARAMS: ctrl2080internal.h of 570."""

    SIZE, ALIGN = 36, 4
    LAYOUT = (
        "capabilities:u32@0 windows:u32@4 remapper:u8@8 heads:u32@12 i2c_port:u32@16 active:u32@20 embedded:u32@24 "
        "external_mux:u8@28 internal_mux:u8@29 channels:u32@32"
    )
    SINCE = "570"
    capabilities: int
    windows: int
    remapper: int
    heads: int
    i2c_port: int
    active: int
    embedded: int
    external_mux: int
    internal_mux: int
    channels: int


class DISPLAY_BRIGHTNESS(Struct):
    """NV2080_CTRL_INTERNAL_INIT_BRIGHTC_STATE_LOAD_PARAMS: ctrl2080internal.h."""

    SIZE, ALIGN = 4104, 4
    LAYOUT = "status:u32@0 size:u16@4 data:u8[4096]@6"
    status: int
    size: int
    data: Array[int]


class DISPLAY_HEADS(Struct):
    """NV0073_CTRL_SYSTEM_GET_NUM_HEADS_PARAMS: ctrl0073system.h."""

    SIZE, ALIGN = 12, 4
    LAYOUT = "subdevice:u32@0 flags:u32@4 heads:u32@8"
    subdevice: int
    flags: int
    heads: int


class DISPLAY_HEAD_MASK(Struct):
    """NV0073_CTRL_SPECIFIC_GET_ALL_HEAD_MASK_PARAMS: ctrl0073specific.h."""

    SIZE, ALIGN = 8, 4
    LAYOUT = "subdevice:u32@0 mask:u32@4"
    subdevice: int
    mask: int


class DISPLAYS_SUPPORTED(Struct):
    """NV0073_CTRL_SYSTEM_GET_SUPPORTED_PARAMS: ctrl0073system.h."""

    SIZE, ALIGN = 12, 4
    LAYOUT = "subdevice:u32@0 displays:u32@4 with_ddc:u32@8"
    subdevice: int
    displays: int
    with_ddc: int
