"""The shape of a board row. Every answer about a board is computed from one row, so that answers agree.

Numbers come from NVIDIA's open kernel modules 535.261.03 (names of engines, engine types, interrupt categories), from
nouveau 6.12 (which engines a chip has: nvkm/engine/device/base.c) and from NVIDIA's data sheets (shader cores, memory).
What no public source has is marked GUESS.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

# Class numbers in engine descriptors, __nvoc_class_id_… of 535.261.03. A descriptor is the class and, in its low
# 8 bits, the instance. Both drivers compare descriptors with each other only.
NVOC_GRAPHICS, NVOC_CE, NVOC_NVDEC, NVOC_NVENC, NVOC_NVJPG, NVOC_OFA, NVOC_SEC2 = (
    0xD334DF,
    0x793CEB,
    0x8F99E1,
    0xE97B6C,
    0x2B3A54,
    0xDD7BAB,
    0x28C408,
)
# an interrupt that does not exist: intr.h, NV_INTR_VECTOR_INVALID
NO_VECTOR = 0xFFFFFFFF
VECTORS_PER_SUBTREE = 64
# Source: intr_tu102.c and its headers: what each subtree of the interrupt tree is for
NOTIFICATION_SUBTREE, UVM_OWNED_SUBTREE, UVM_SHARED_SUBTREE, STALL_SUBTREE = 0, 1, 2, 3

THREADS_PER_WARP = 32
# banks of an SM's registers. GUESS
REGISTER_BANKS = 2


class EngineKind(enum.Enum):
    """Kinds of engines. The value: first number of NV2080_ENGINE_TYPE_*, the type in the chip's device list, and
    the class in its descriptor. `rm/numbers.py` has the numbers that differ by release.

    Source: cl2080_notification.h. The device types are NV_PTOP_DEVICE_INFO_TYPE_ENUM_* of nouveau's nvkm/subdev/top.
    """

    GR = (0x01, 0, NVOC_GRAPHICS)
    CE = (0x09, 19, NVOC_CE)
    NVDEC = (0x13, 16, NVOC_NVDEC)
    NVENC = (0x1B, 14, NVOC_NVENC)
    NVJPG = (0x2B, 21, NVOC_NVJPG)
    OFA = (0x33, 22, NVOC_OFA)
    SEC2 = (0x26, 13, NVOC_SEC2)


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine that the host feeds. Registers are byte offsets in BAR 0; vectors are those of the interrupt tree.

    `group`: the engine's place in its runlist. `context_bytes`: what a channel's context of it takes, for falcons.
    """

    kind: EngineKind
    instance: int
    runlist: int
    runlist_base: int
    channel_ram_base: int
    group: int
    pbdmas: tuple[int, ...]
    fault_id: int
    reset_id: int
    stall_vector: int
    notification_vector: int
    register_base: int
    context_bytes: int = 0

    @property
    def name(self) -> str:
        """The engine's name, such as CE2; a chip has only one SEC2."""
        return self.kind.name if self.kind is EngineKind.SEC2 else f"{self.kind.name}{self.instance}"

    @property
    def nv2080_type(self) -> int:
        """NV2080_ENGINE_TYPE_*, by which callers name engines."""
        return self.kind.value[0] + self.instance

    @property
    def device_type(self) -> int:
        """The type in the chip's device list."""
        return self.kind.value[1]

    @property
    def descriptor(self) -> int:
        """ENGDESCRIPTOR: class and instance."""
        return self.kind.value[2] << 8 | self.instance


@dataclass(frozen=True, slots=True)
class Vectors:
    """Interrupt vectors that belong to no engine of a runlist."""

    gsp: int
    timer: int
    replayable_fault: int
    replayable_fault_error: int
    non_replayable_fault: int
    non_replayable_fault_error: int
    access_counter: int
    cpu_doorbell: int


@dataclass(frozen=True, slots=True)
class Shaders:
    """The graphics engine's shader cores. `tpc_masks`: one for each GPC that is left, in logical order.

    `sm_version`: NV2080_CTRL_GR_INFO_INDEX_SM_VERSION, 0x806 for compute 8.6. `physical_gpcs`: the mask of GPCs that
    are left, by physical number.
    """

    sm_version: int
    physical_gpcs: int
    tpc_masks: tuple[int, ...]
    sms_per_tpc: int
    max_gpcs: int
    max_tpcs_per_gpc: int
    pes_per_gpc: int
    warps_per_sm: int
    registers_per_sm: int
    rop_units_per_gpc: int
    rt_cores_per_sm: int
    tensor_cores_per_sm: int
    cores_per_sm: int

    @property
    def tpc_count(self) -> int:
        """TPCs that are left."""
        return sum(mask.bit_count() for mask in self.tpc_masks)

    @property
    def sm_count(self) -> int:
        """SMs that are left."""
        return self.tpc_count * self.sms_per_tpc


@dataclass(frozen=True, slots=True)
class Frame:
    """The memory behind the chip. `fbp_mask`: partitions that are left; `ltcs`: L2 units, with `slices` each.

    `ram_type`: NV2080_CTRL_FB_INFO_RAM_TYPE_*.
    """

    ram_type: int
    bus_bits: int
    fbp_mask: int
    l2_bytes: int
    ltcs: int
    slices: int


@dataclass(frozen=True, slots=True)
class Copying:
    """Physical copy engines (PCEs) behind the logical ones (LCEs). `pces`: mask of those that exist; `hub`: of those at
    the hub of video memory, while the others are at the first of the links' hubs.

    `graphics_lces`: LCEs on the graphics engine's runlist (GRCEs). After the start, `lce_of_pce` says for which LCE
    each PCE works, and `shared` whose PCEs each GRCE uses.
    """

    pces: int
    hub: int
    graphics_lces: tuple[int, ...]
    lce_of_pce: tuple[tuple[int, int], ...]
    shared: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Display:
    """The display engine of a board without connectors. `heads`, `outputs` (SORs), `windows`: masks of what it has.

    `vector`, `low_latency_vector`: of its interrupts, the second for the times of heads.
    """

    heads: int
    outputs: int
    windows: int
    vector: int
    low_latency_vector: int


@dataclass(frozen=True, slots=True)
class Board:
    """Everything about a chip that the resource manager tells. `per_runlist_channels`: channel numbers are counted on
    each runlist; otherwise over the chip.
    """

    chip: str
    architecture: int
    implementation: int
    classes: tuple[str, ...]
    engines: tuple[Engine, ...]
    vectors: Vectors
    shaders: Shaders
    frame: Frame
    copying: Copying
    per_runlist_channels: bool
    channels: int
    usermode_base: int
    # sizes of the buffers behind a graphics context, by NV0080_CTRL_FIFO_GET_ENGINE_CONTEXT_PROPERTIES_ENGINE_ID_*
    context_buffers: dict[str, tuple[int, int]]
    fault_method_buffer_bytes: int
    # the BIOS's version and the board maker's part of it, as the ROM has them
    bios: tuple[int, int]
    # what a doorbell's token must have beside runlist and channel
    doorbell_enable: int = 0
    display: Display | None = None

    def engine(self, nv2080_type: int) -> Engine | None:
        """Return the engine that callers name by NV2080_ENGINE_TYPE_*; None if the chip lacks it."""
        return next((engine for engine in self.engines if engine.nv2080_type == nv2080_type), None)

    def of_kind(self, kind: EngineKind) -> tuple[Engine, ...]:
        """Return the engines of a kind, in order."""
        return tuple(engine for engine in self.engines if engine.kind is kind)
