"""What differs between the generations of the cores, as rows: encodings, names, wait counters, float modes.

The engines know a format, a field and an instruction by its RDNA3 name if RDNA4 only renamed it. So they have one rule
for both. Source: RDNA3 and RDNA4 ISA references, "Microcode Formats", "Data Dependency Resolution", "MODE register";
LLVM AMDGPUUsage, "Memory Model GFX12".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ringup.errors import NotSupported
from ringup.silicon.shader.common.launch import CDNA3_START, CDNA4_START, RDNA3_START, RDNA4_START, Start

# The wait counters that an operation holds up, each with the kind among which it returns in order there.
Order = dict[str, str]


class Orders(NamedTuple):
    """The wait counters of each sort of operation."""

    loads: Order  # of vector memory, and atomics that return
    stores: Order
    flat_loads: Order
    flat_stores: Order
    lds: Order
    scalar: Order
    message: Order
    reply: Order  # to a message
    direct: Order  # loads of LDS without an address in a VGPR
    samples: Order  # of images


class Generation(NamedTuple):
    """What the engines ask about a generation of the cores."""

    name: str
    # The generation whose reserved bits, hardware registers and texts it has.
    family: str
    # The processor in `autogen.isa` whose encodings it has.
    facts: str
    # Formats by their names in the facts, and by those their fields, where the engines name them differently.
    formats: Mapping[str, str]
    fields: Mapping[str, Mapping[str, str]]
    # Mnemonics by the names in the facts, where the engines name them differently.
    renamed: Mapping[str, str]
    # By format: the bits of offsets that have a sign.
    offset_bits: Mapping[str, int]
    # src1 of a permuted instruction may be a scalar or a constant.
    permutes_beside_scalars: bool
    # Wait counters, with their largest values.
    counters: Mapping[str, int]
    orders: Orders
    # Floats are flushed in atomics on memory.
    flushes_in_memory: bool
    # Offsets of scratch in registers have a sign.
    signed_scratch: bool
    # The stride of a buffer has a scale, and swizzling takes the scalar offset in.
    scales_buffers: bool
    # ds_permute and ds_bpermute move values between the halves of a wave64.
    permutes_whole_wave: bool
    start: Start
    # A wave signals a barrier and waits for it with two instructions.
    splits_barriers: bool
    # The vector ALU does not wait for results of transcendental instructions.
    trails_transcendentals: bool
    # An SGPR that the vector ALU has read and that is written again needs s_wait_alu before it is read.
    trails_scalars: bool
    # Where a trap handler finds the trap's number, above the PC: the lowest bit, and how many.
    trap_id: tuple[int, int]
    # The hardware register that contains SCC, which a trap handler may write.
    scc_register: int
    # A wave holds factors of matrices twice, and a 16-bit element of C and D in one half of a register.
    copies_matrices: bool
    # Results of matrix products come a wait state later than on CDNA3.
    late_products: bool
    # Its encodings are GCN's, see `gcn.py`.
    is_gcn: bool
    # Which 8-bit floats it has: `OCP`, or `FNUZ`, whose only NaN has the bits of -0 and of which none is infinite.
    octets: str
    # Instructions of the facts, which are LLVM's, whose opcodes the document reserves.
    reserved: frozenset[str] = frozenset()
    # The number of a barrier is a constant. M0 is for other processors of the generation.
    numbers_barriers: bool = False


OCP, FNUZ = "ocp", "fnuz"

_OFFSET = {"ioffset": "offset"}
_CLAMP = {"cm": "clmp"}
_FLAT = {"vaddr": "addr", "vsrc": "data"} | _OFFSET


def _orders(load: str, store: str, lds: str, scalar: str) -> Orders:
    flat = {lds: "lds"}
    return Orders(
        {load: "vmem"}, {store: "store"}, {load: "vmem"} | flat, {store: "store"} | flat, flat, {scalar: "scalar"},
        {scalar: "message"}, {scalar: "reply"}, {"exp": "direct"}, {load: "sample"},
    )  # fmt: skip


RDNA3 = Generation(
    "RDNA 3", "RDNA 3", "gfx1100", {}, {}, {}, {"SMEM": 21, "SCRATCH": 13, "GLOBAL": 13}, False,
    {"vm": 63, "vs": 63, "lgkm": 63, "exp": 7}, _orders("vm", "vs", "lgkm", "lgkm"), flushes_in_memory=True,
    signed_scratch=False, scales_buffers=False, permutes_whole_wave=False, start=RDNA3_START, splits_barriers=False,
    trails_transcendentals=True, trails_scalars=False, trap_id=(48, 8), scc_register=2, copies_matrices=True,
    late_products=False, is_gcn=False, octets=OCP,
)  # fmt: skip

# Source: RDNA3.5 ISA reference, "SALU Floating Point"; LLVM AMDGPU.td, FeatureISAVersion11_5_Common, which has
# FeatureDPPSrc1SGPR and not FeatureVALUTransUseHazard.
RDNA3_5 = RDNA3._replace(name="RDNA 3.5", facts="gfx1151", permutes_beside_scalars=True, trails_transcendentals=False)

RDNA4 = Generation(
    "RDNA 4",
    "RDNA 4",
    "gfx1201",
    {
        "VDS": "DS", "VDSDIR": "LDSDIR", "VBUFFER": "MUBUF", "VFLAT": "FLAT", "VGLOBAL": "GLOBAL", "VSCRATCH": "SCRATCH",
        "VEXPORT": "EXP",
    },
    dict.fromkeys(("VOP3", "VOP3SD", "VOP3P", "VINTERP"), _CLAMP) | dict.fromkeys(("SMEM", "VBUFFER"), _OFFSET)
    | dict.fromkeys(("VFLAT", "VGLOBAL", "VSCRATCH"), _FLAT),
    {
        "s_add_co_u32": "s_add_u32", "s_sub_co_u32": "s_sub_u32", "s_add_co_i32": "s_add_i32", "s_sub_co_i32": "s_sub_i32",
        "s_add_co_ci_u32": "s_addc_u32", "s_sub_co_ci_u32": "s_subb_u32", "s_addk_co_i32": "s_addk_i32",
        "s_wait_alu": "s_waitcnt_depctr", "v_mad_co_u64_u32": "v_mad_u64_u32", "v_mad_co_i64_i32": "v_mad_i64_i32",
        "ds_param_load": "lds_param_load", "ds_direct_load": "lds_direct_load", "export": "exp",
    },
    {"SMEM": 24, "SCRATCH": 24, "GLOBAL": 24, "FLAT": 24},
    True,
    {"load": 63, "store": 63, "sample": 63, "bvh": 7, "ds": 63, "km": 31, "exp": 7},
    _orders("load", "store", "ds", "km")._replace(samples={"sample": "sample"}),
    flushes_in_memory=False,
    signed_scratch=True,
    scales_buffers=True,
    permutes_whole_wave=True,
    start=RDNA4_START,
    splits_barriers=True,
    trails_transcendentals=False,
    trails_scalars=True,
    trap_id=(60, 4),
    scc_register=4,
    copies_matrices=False,
    late_products=False,
    is_gcn=False,
    octets=OCP,
    reserved=frozenset(("s_barrier_init", "s_barrier_join", "s_barrier_leave")),
    numbers_barriers=True,
)  # fmt: skip

CDNA3 = Generation(
    "CDNA 3",
    "CDNA 3",
    "gfx942",
    {"VOP3A": "VOP3", "VOP3B": "VOP3SD"},
    {},
    {},
    {"SMEM": 21, "SCRATCH": 13, "GLOBAL": 13},
    True,
    {"vm": 63, "lgkm": 15, "exp": 7},
    # Loads and stores share a counter and return in order. So do atomics.
    _orders("vm", "vm", "lgkm", "lgkm")._replace(stores={"vm": "vmem"}, flat_stores={"vm": "vmem", "lgkm": "lds"}),
    flushes_in_memory=False,
    signed_scratch=False,
    scales_buffers=False,
    permutes_whole_wave=True,
    start=CDNA3_START,
    splits_barriers=False,
    trails_transcendentals=False,
    trails_scalars=False,
    trap_id=(48, 8),
    scc_register=2,
    copies_matrices=False,
    late_products=False,
    is_gcn=True,
    octets=FNUZ,
)  # fmt: skip

# Source: CDNA4 ISA reference; LLVM AMDGPU.td, FeatureISAVersion9_5_0.
CDNA4 = CDNA3._replace(
    name="CDNA 4",
    facts="gfx950",
    # A scaled matrix product begins with a dword pair of its own.
    fields={
        "VOP3PX2": {
            "scale_src0": "src_scale0", "scale_src1": "src_scale1", "scale_opsel": "opsel", "scale_opsel_hi": "opsel_hi",
        }
    },
    start=CDNA4_START,
    late_products=True,
    octets=OCP,
)  # fmt: skip

GENERATIONS: Mapping[str, Generation] = {one.name: one for one in (RDNA3, RDNA3_5, RDNA4, CDNA3, CDNA4)}

# By the name of the processor that code is compiled for.
TARGETS: Mapping[str, Generation] = {
    "gfx1100": RDNA3, "gfx1101": RDNA3, "gfx1102": RDNA3, "gfx1103": RDNA3,
    "gfx1150": RDNA3_5, "gfx1151": RDNA3_5, "gfx1152": RDNA3_5, "gfx1153": RDNA3_5, "gfx1200": RDNA4, "gfx1201": RDNA4,
    "gfx942": CDNA3, "gfx950": CDNA4,
}  # fmt: skip


def generation(target: str) -> Generation:
    """Return the generation of a processor; raise `NotSupported` if the cores cannot be one."""
    found = TARGETS.get(target)
    if found is None:
        raise NotSupported(f"virtual cores of {target}: there are {', '.join(TARGETS)}")
    return found


def relatives(target: str) -> tuple[str, ...]:
    """Return the processors of a processor's generation."""
    found = generation(target)
    return tuple(name for name, one in TARGETS.items() if one is found)
