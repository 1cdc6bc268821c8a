"""What the ladder expects of each chip: the words of the kernel, and the numbers of the card's shape.

The words are those of Linux 6.12's amdgpu_discovery.c (blocks), amdgpu_gfx.c and the blocks' own files (rings).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ringup.autogen.amd import smu_v13_0_0, smu_v13_0_6, smu_v14_0_2
from ringup.silicon.amd.gc.cp.processor import Slot


@dataclass(frozen=True)
class Climber:
    """One chip on the ladder."""

    chip: str
    product: str  # the name that libdrm's table of Debian 13, amdgpu.ids, gives it
    device: int  # its id on the bus
    target: str
    blocks: tuple[str, ...]
    rings: tuple[str, ...]
    shape: str  # as amdgpu prints it
    bar_mib: int  # of BAR 0; less than the memory where it does not fit into the guest's addresses
    width: str  # of the memory, as amdgpu prints it
    firmware: dict[str, str]  # file of firmware-amd-graphics by amdgpu's name of the processor
    gfxclk_feature: int  # bit of the SMU's feature "the graphics clock follows the load"
    firmware_queues: frozenset[Slot]
    node: dict[str, int] = field(default_factory=dict)  # properties of the KFD's node
    kinds: tuple[str, ...] = ("gfx", "compute", "sdma")  # of rings whose test is announced
    hub: str = "MM"  # prefix of the memory hub's registers
    wave: int = 32
    # Shaders (by file) that Debian 13's Mesa compiles wrongly for this chip, with the reason.
    not_judged: dict[str, str] = field(default_factory=dict)


def _files(gc: str, sdma: str, psp: str, smu: str) -> dict[str, str]:
    return {
        "ME": f"gc_{gc}_me",
        "PFP": f"gc_{gc}_pfp",
        "MEC": f"gc_{gc}_mec",
        "SDMA0": f"sdma_{sdma}",
        "SMC": f"smu_{smu}",
        "SOS": f"psp_{psp}_sos",
    }


NAVI31 = Climber(
    chip="navi31",
    product="AMD Radeon RX 7900 XTX",
    device=0x744C,
    target="gfx1100",
    blocks=("soc21_common", "gmc_v11_0", "ih_v6_0", "psp", "smu", "dm", "gfx_v11_0", "sdma_v6_0", "mes_v11_0"),
    rings=(
        "gfx_0.0.0",
        *(f"comp_1.{pipe}.{queue}" for queue in (0, 1) for pipe in range(4)),
        "sdma0",
        "sdma1",
        "mes_kiq_3.1.0",
    ),
    shape="SE 6, SH per SE 2, CU per SH 8, active_cu_number 96",
    bar_mib=32768,
    width="384bits GDDR6",
    firmware=_files("11_0_0", "6_0_0", "13_0_0", "13_0_0"),
    gfxclk_feature=smu_v13_0_0.FEATURE_DPM_GFXCLK_BIT,
    firmware_queues=frozenset({Slot(3, 0, 0), Slot(3, 1, 0)}),
    node={"gfx_target_version": 110000, "array_count": 12, "num_cp_queues": 8},
)
_RDNA3_MATRICES = "Mesa 25.0.7 lays matrices out as for RDNA3, as its own dump of the shader shows"
NAVI48 = Climber(
    chip="navi48",
    # The table does not know the card.
    product="AMD Radeon Graphics",
    device=0x7550,
    target="gfx1201",
    blocks=("soc24_common", "gmc_v12_0", "ih_v7_0", "psp", "smu", "dm", "gfx_v12_0", "sdma_v7_0", "mes_v12_0"),
    # The unified MES has no ring of the KIQ's name (mes_v12_0.c: `enable_uni_mes`).
    rings=("gfx_0.0.0", *(f"comp_1.{pipe}.{queue}" for queue in (0, 1) for pipe in range(2)), "sdma0", "sdma1"),
    shape="SE 4, SH per SE 2, CU per SH 8, active_cu_number 64",
    bar_mib=16384,
    width="256bits GDDR6",
    firmware=_files("12_0_1", "7_0_1", "14_0_3", "14_0_3"),
    gfxclk_feature=smu_v14_0_2.FEATURE_DPM_GFXCLK_BIT,
    firmware_queues=frozenset({Slot(3, 0, 0), Slot(3, 1, 0)}),
    node={"gfx_target_version": 120001, "array_count": 8, "num_cp_queues": 4},
    not_judged={"matrix16": _RDNA3_MATRICES, "matrix8": _RDNA3_MATRICES},
)
# An accelerator: compute rings and a KIQ for each of eight cores, four copy engines for each of four dies; no gfx ring.
MI300X = Climber(
    chip="mi300x",
    product="AMD Instinct MI300X",
    device=0x74A1,
    target="gfx942",
    blocks=("soc15_common", "gmc_v9_0", "vega20_ih", "psp", "smu", "gfx_v9_4_3", "sdma_v4_4_2"),
    rings=(
        *(f"comp_{core}.1.{pipe}.{queue}" for core in range(8) for queue in (0, 1) for pipe in range(4)),
        *(f"kiq_{core}.2.1.0" for core in range(8)),
        *(f"sdma{die}.{engine}" for die in range(4) for engine in range(4)),
    ),
    shape="SE 4, SH per SE 1, CU per SH 10, active_cu_number 304",
    # 256 GiB do not fit into the 40 bits of addresses of an emulated processor, beside the other slots' windows.
    bar_mib=256,
    width="8192bits HBM",
    # The kernel takes the second secure OS of psp_13_0_6_sos, whose version is not in the header.
    firmware={"MEC": "gc_9_4_3_mec", "SDMA0": "sdma_4_4_2"},
    gfxclk_feature=smu_v13_0_6.FEATURE_DPM_GFXCLK,
    firmware_queues=frozenset({Slot(2, 1, 0)}),
    node={
        "gfx_target_version": 90402, "simd_count": 1216, "array_count": 32, "num_xcc": 8, "num_cp_queues": 24,
        "num_sdma_engines": 2, "num_sdma_xgmi_engines": 14, "cu_per_simd_array": 10, "wave_front_size": 64,
    },
    kinds=(),
    hub="",
    wave=64,
)  # fmt: skip
