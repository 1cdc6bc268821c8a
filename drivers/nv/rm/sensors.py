"""What the resource manager tells of a card's state now: temperatures, load, memory, link, errors of memory.

Controls only, so it is the same through the kernel's driver and on a bare card. What a driver refuses or its release
has no public layout for is None. Power and clocks are always missing: the open headers describe no control that tells
them. Source: NVIDIA open-gpu-kernel-modules: ctrl2080thermal.h, ctrl2080perf.h, ctrl2080fb.h, ctrl2080bus.h,
ctrl2080gpu.h.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from ringup.autogen.nv import rm_ctrl_2080_bus as bus
from ringup.autogen.nv import rm_ctrl_2080_fb as fb
from ringup.autogen.nv import rm_ctrl_2080_firmware as state
from ringup.autogen.nv import rm_ctrl_2080_gpu as gpu
from ringup.drivers.nv.rm.client import RmClient
from ringup.drivers.nv.rm.facts import KIB, memory_sizes
from ringup.drivers.transport.nvidia.status import RmLost, RmRefused
from ringup.errors import NotSupported

T = TypeVar("T")
# a card has few sensors: a driver that tells more than this is not believed
MAX_SENSORS = 16
# ctrl2080perf.h: utilisation is in units of a hundredth of a percent
PER_PERCENT = 100
# ctrl2080bus.h, NV2080_CTRL_BUS_INFO_PCIE_LINK_CTRL_STATUS_LINK_SPEED and …_CAP_MAX_SPEED, in GT/s
LINK_SPEEDS = {1: "2.5", 2: "5.0", 3: "8.0", 4: "16.0", 5: "32.0", 6: "64.0"}


@dataclass(frozen=True, slots=True)
class Sensors:
    """The sensors of one card; None for what its driver does not tell. `vram_…` counts all processes, and is what the
    driver can give out of the card's memory. `performance_state`: 0 is the fastest. `ecc_…_errors`: since the driver
    was loaded.
    """

    busy_percent: float | None
    memory_busy_percent: float | None
    vram_total_bytes: int | None
    vram_used_bytes: int | None
    vram_free_bytes: int | None
    temperature_c: int | None
    memory_temperature_c: int | None
    performance_state: int | None
    ecc: bool | None
    ecc_corrected_errors: int | None
    ecc_uncorrected_errors: int | None
    link: str
    link_at_best: str


def read(client: RmClient, subdevice: int) -> Sensors:
    """Ask a card's subdevice for all of them. Raises `RmLost` for a card that is gone."""
    busy, memory_busy = told(lambda: load(client, subdevice)) or (None, None)
    total, used, free = told(lambda: memory(client, subdevice)) or (None, None, None)
    heat = told(lambda: temperatures(client, subdevice)) or {}
    ecc, corrected, uncorrected = told(lambda: errors(client, subdevice)) or (None, None, None)
    now, best = told(lambda: link(client, subdevice)) or ("", "")
    return Sensors(
        busy_percent=busy,
        memory_busy_percent=memory_busy,
        vram_total_bytes=total,
        vram_used_bytes=used,
        vram_free_bytes=free,
        temperature_c=heat.get(state.NV2080_CTRL_THERMAL_SYSTEM_TARGET_GPU),
        memory_temperature_c=heat.get(state.NV2080_CTRL_THERMAL_SYSTEM_TARGET_MEMORY),
        performance_state=told(lambda: performance_state(client, subdevice)),
        ecc=ecc,
        ecc_corrected_errors=corrected,
        ecc_uncorrected_errors=uncorrected,
        link=now,
        link_at_best=best,
    )


def told(ask: Callable[[], T]) -> T | None:
    """Return what a question returns; None if the driver refuses it or its release has no layout for it."""
    try:
        return ask()
    except RmLost:
        raise
    except (RmRefused, NotSupported):
        return None


def memory(client: RmClient, subdevice: int) -> tuple[int, int, int] | None:
    """Return how many bytes of the card's memory there are, are used by anybody, and are free."""
    total, free = memory_sizes(
        client, subdevice, fb.NV2080_CTRL_FB_INFO_INDEX_TOTAL_RAM_SIZE, fb.NV2080_CTRL_FB_INFO_INDEX_HEAP_FREE
    )
    # more free than there is: an answer that nothing can be made of
    return (total * KIB, (total - free) * KIB, free * KIB) if 0 < total >= free else None


def load(client: RmClient, subdevice: int) -> tuple[float, float] | None:
    """Return how busy the graphics engine and the card's memory are, in percent, by the driver's newest sample."""
    layout = state.NV2080_CTRL_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2_PARAMS
    request = client.make(layout, type=state.NV2080_CTRL_GPUMON_SAMPLE_TYPE_PERFMON_UTIL)
    size = state.NV2080_CTRL_PERF_GPUMON_PERFMON_UTIL_SAMPLE.at(client.door.layouts).SIZE
    request.bufSize = size * len(request.samples)
    client.control(subdevice, state.NV2080_CTRL_CMD_PERF_GET_GPUMON_PERFMON_UTIL_SAMPLES_V2, request)
    newest = max(request.samples, key=lambda one: int(one.base.timeStamp))
    if not newest.base.timeStamp:
        return None
    busy, memory_busy = newest.gr.util / PER_PERCENT, newest.fb.util / PER_PERCENT
    return (busy, memory_busy) if max(busy, memory_busy) <= 100 else None


def temperatures(client: RmClient, subdevice: int) -> dict[int, int]:
    """Return the reading of a sensor for each kind of target that has one, in °C.

    GUESS: the header gives no unit; the targets are said to be those of NVAPI, whose readings are whole °C.
    """
    (count,) = _thermal(
        client, subdevice, [(state.NV2080_CTRL_THERMAL_SYSTEM_GET_INFO_SENSORS_AVAILABLE_OPCODE, "", 0)]
    )
    if count is None:
        return {}
    sensors = min(int(count.getInfoSensorsAvailable.availableSensors), MAX_SENSORS)
    readings = _thermal(
        client, subdevice, _each(state.NV2080_CTRL_THERMAL_SYSTEM_GET_STATUS_SENSOR_READING_OPCODE, sensors)
    )
    targets = _thermal(
        client, subdevice, _each(state.NV2080_CTRL_THERMAL_SYSTEM_GET_INFO_SENSOR_TARGET_OPCODE, sensors)
    )
    found: dict[int, int] = {}
    for reading, target in zip(readings, targets, strict=True):
        if reading is None or target is None:
            continue
        opcode = state.NV2080_CTRL_THERMAL_SYSTEM_GET_INFO_TARGET_TYPE_OPCODE
        at = int(target.getInfoSensorTarget.targetIndex)
        (kind,) = _thermal(client, subdevice, [(opcode, "getInfoTargetType.targetIndex", at)])
        if kind is not None:
            found.setdefault(int(kind.getInfoTargetType.type), int(reading.getStatusSensorReading.value))
    return found


def _each(opcode: int, sensors: int) -> list[tuple[int, str, int]]:
    """Return an instruction for each sensor. The sensor's number is the first operand of both opcodes."""
    return [(opcode, "getStatusSensorReading.sensorIndex", number) for number in range(sensors)]


def _thermal(client: RmClient, subdevice: int, asked: Iterable[tuple[int, str, int]]) -> list[Any]:
    """Run instructions (opcode, name of the operand, its value); return their operands, None where one failed."""
    asked = list(asked)
    request = client.make(
        state.NV2080_CTRL_THERMAL_SYSTEM_EXECUTE_V2_PARAMS,
        clientAPIVersion=state.THERMAL_SYSTEM_API_VER,
        clientAPIRevision=state.THERMAL_SYSTEM_API_REV,
        clientInstructionSizeOf=state.NV2080_CTRL_THERMAL_SYSTEM_INSTRUCTION.at(client.door.layouts).SIZE,
        executeFlags=state.NV2080_CTRL_THERMAL_SYSTEM_EXECUTE_FLAGS_IGNORE_FAIL,
        instructionListSize=len(asked),
    )
    for number, (opcode, operand, value) in enumerate(asked):
        instruction = request.instructionList[number]
        instruction.opcode = opcode
        if operand:
            kind, _, name = operand.partition(".")
            setattr(getattr(instruction.operands, kind), name, value)
    client.control(subdevice, state.NV2080_CTRL_CMD_THERMAL_SYSTEM_EXECUTE_V2, request)
    done = [request.instructionList[number] for number in range(len(asked))]
    # `request` is kept by the caller's list: its members refer to its memory
    return [_Kept(request, one.operands) if one.executed and not one.result else None for one in done]


class _Kept:
    """The operands of an instruction, with the struct whose memory they are in."""

    def __init__(self, whole: Any, operands: Any) -> None:
        self._whole, self._operands = whole, operands

    def __getattr__(self, name: str) -> Any:
        return getattr(self._operands, name)


def performance_state(client: RmClient, subdevice: int) -> int | None:
    """Return the card's performance state, as in P0 or P8."""
    told = client.ask(
        subdevice, state.NV2080_CTRL_CMD_PERF_GET_CURRENT_PSTATE, state.NV2080_CTRL_PERF_GET_CURRENT_PSTATE_PARAMS
    )
    # ctrl2080perf.h: NV2080_CTRL_PERF_PSTATES_P0 is bit 0, P1 is bit 1, and so on
    found = int(told.currPstate)
    return found.bit_length() - 1 if found and not found & (found - 1) else None


def errors(client: RmClient, subdevice: int) -> tuple[bool, int | None, int | None]:
    """Return whether errors of memory are corrected, and how many were, and were not, in all units that count them."""
    asked = client.ask(subdevice, gpu.NV2080_CTRL_CMD_GPU_QUERY_ECC_STATUS, gpu.NV2080_CTRL_GPU_QUERY_ECC_STATUS_PARAMS)
    units = [unit for unit in asked.units if unit.supported and unit.enabled]
    if not units:
        return False, None, None
    return True, sum(int(unit.sbe.count) for unit in units), sum(int(unit.dbe.count) for unit in units)


def link(client: RmClient, subdevice: int) -> tuple[str, str]:
    """Return the speed and width of the card's link now, and the best that the card can do; empty if not known."""
    wanted = (
        bus.NV2080_CTRL_BUS_INFO_INDEX_PCIE_GPU_LINK_CTRL_STATUS,
        bus.NV2080_CTRL_BUS_INFO_INDEX_PCIE_GPU_LINK_CAPS,
    )
    request = client.make(bus.NV2080_CTRL_BUS_GET_INFO_V2_PARAMS, busInfoListSize=len(wanted))
    for number, index in enumerate(wanted):
        request.busInfoList[number].index = index
    client.control(subdevice, bus.NV2080_CTRL_CMD_BUS_GET_INFO_V2, request)
    now, best = (int(request.busInfoList[number].data) for number in range(len(wanted)))
    return (
        _link(
            now,
            bus.NV2080_CTRL_BUS_INFO_PCIE_LINK_CTRL_STATUS_LINK_SPEED,
            bus.NV2080_CTRL_BUS_INFO_PCIE_LINK_CTRL_STATUS_LINK_WIDTH,
        ),
        _link(best, bus.NV2080_CTRL_BUS_INFO_PCIE_LINK_CAP_MAX_SPEED, bus.NV2080_CTRL_BUS_INFO_PCIE_LINK_CAP_MAX_WIDTH),
    )


def _link(word: int, speed: tuple[int, int], width: tuple[int, int]) -> str:
    """Return speed and width as the kernel writes them, from the bits (high, low) of a word."""
    rate, lanes = (word >> low & (1 << high - low + 1) - 1 for high, low in (speed, width))
    return f"{LINK_SPEEDS[rate]} GT/s PCIe x{lanes}" if rate in LINK_SPEEDS and lanes else ""
