"""The control of how much engines are used: samples of the last ten seconds, in a ring.

Source: ctrl2080perf.h and ctrl2080gpumon.h of NVIDIA's open kernel modules.
"""

from __future__ import annotations

from ringup.autogen.nv import status
from ringup.silicon.nv.common.usage import Usage
from ringup.silicon.nv.rm import use_layouts
from ringup.silicon.nv.rm.classes import Kind
from ringup.silicon.nv.rm.controls.table import Control, Request
from ringup.silicon.nv.rm.parts import RmError

# NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2, NV2080_CTRL_GPUMON_SAMPLE_TYPE_PERFMON_UTIL
COMMAND, KIND = 0x20802096, 2
# NV2080_GPUMON_PID_INVALID. GUESS: metal names the process, which the model does not know
NOBODY = 0xFFFFFFFF
FULL = 10_000


def _samples(request: Request, params: use_layouts.USE_SAMPLES) -> None:
    ring, sample_layout = params.samples, request.manager.layout(use_layouts.USE_SAMPLE)
    if params.kind != KIND or params.size_bytes != len(ring) * sample_layout.SIZE:
        text = f"{params.size_bytes} bytes of samples of kind {params.kind}"
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, text)
    found = request.manager.effects.usage()
    engines = tuple(name for name in sample_layout.members() if name != "time_ns")
    for one in found:
        _fill(ring[one.place], one, engines)
    params.count = len(found)
    # the oldest sample; while the ring is not full, the place of the next
    params.tracker = found[0].place if len(found) == len(ring) else len(found)


def _fill(sample: use_layouts.USE_SAMPLE, one: Usage, engines: tuple[str, ...]) -> None:
    """Write one sample. The engines for video and pictures do nothing in this model."""
    sample.time_ns = one.end_ns
    shares = {"fb": one.memory, "gr": one.graphics}
    for name in engines:
        engine: use_layouts.ENGINE_USE = getattr(sample, name)
        engine.util = round(shares.get(name, 0.0) * FULL)
        engine.process = engine.subprocess = NOBODY


NAME = "NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2"
ROWS = (Control(COMMAND, NAME, Kind.SUBDEVICE, use_layouts.USE_SAMPLES, 0, _samples),)
