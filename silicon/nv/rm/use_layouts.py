"""Samples of how much engines are used, by driver release: ctrl2080perf.h of NVIDIA's open kernel modules 535.261.03,
545.29.02, 550.163.01, 555.58.02, 565.77, 570.144, 575.51.02 and 580.65.06.

Each docstring names the header's struct; members have plain names, engines the header's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from ringup.autogen.layout import Array, Struct

BRANCHES = ("535", "545", "550", "555", "560", "565", "570", "575", "580")


class ENGINE_USE(Struct):
    """NV2080_CTRL_PERF_GPUMON_ENGINE_UTIL_SAMPLE. `util` in hundredths of a percent."""

    SIZE, ALIGN = 116, 4
    LAYOUT = "util:u32@0 scale:u32@4 process:u32@8 subprocess:u32@12 name:u8[100]@16"
    CHANGES: ClassVar[Mapping[str, tuple[int, str] | None]] = {"570": (128, "os_process:ptr@120")}
    util: int
    scale: int
    process: int
    subprocess: int
    name: Array[int]
    os_process: int


class USE_SAMPLE(Struct):
    """NV2080_CTRL_PERF_GPUMON_PERFMON_UTIL_SAMPLE."""

    SIZE, ALIGN = 472, 8
    LAYOUT = "time_ns:u64@0 fb:ENGINE_USE@8 gr:ENGINE_USE@124 nvenc:ENGINE_USE@240 nvdec:ENGINE_USE@356"
    CHANGES: ClassVar[Mapping[str, tuple[int, str] | None]] = {
        "550": (704, "nvjpg:ENGINE_USE@472 nvofa:ENGINE_USE@588"),
        "570": (
            776,
            "gr:ENGINE_USE@136 nvenc:ENGINE_USE@264 nvdec:ENGINE_USE@392 nvjpg:ENGINE_USE@520 nvofa:ENGINE_USE@648",
        ),
    }
    time_ns: int
    fb: ENGINE_USE
    gr: ENGINE_USE
    nvenc: ENGINE_USE
    nvdec: ENGINE_USE
    nvjpg: ENGINE_USE
    nvofa: ENGINE_USE


class USE_SAMPLES(Struct):
    """NV2080_CTRL_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2_PARAMS."""

    SIZE, ALIGN = 34000, 8
    LAYOUT = "kind:u8@0 size_bytes:u32@4 count:u32@8 tracker:u32@12 samples:USE_SAMPLE[72]@16"
    CHANGES: ClassVar[Mapping[str, tuple[int, str] | None]] = {
        "550": (50704, "samples:USE_SAMPLE[72]@16"),
        "570": (55888, "samples:USE_SAMPLE[72]@16"),
    }
    kind: int
    size_bytes: int
    count: int
    tracker: int
    samples: Array[USE_SAMPLE]
