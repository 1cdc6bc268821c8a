"""The control of temperatures: a list of instructions that ask for targets, sensors and readings.

Source: ctrl2080thermal.h of NVIDIA's open kernel modules 575, which has the comments that 535 lacks.
"""

from __future__ import annotations

from collections.abc import Callable

from ringup.autogen.layout import Array
from ringup.autogen.nv import rm_ctrl_2080_firmware as firmware
from ringup.autogen.nv import status
from ringup.silicon.nv.rm import layouts
from ringup.silicon.nv.rm.controls.table import Request, row
from ringup.silicon.nv.rm.manager import Manager
from ringup.silicon.nv.rm.parts import RmError

# one target, the GPU, with one sensor of one provider. GUESS: the kind of provider, and the sensor's range in degrees
GPU, PROVIDER_IN_GPU, LOWEST, HIGHEST = firmware.NV2080_CTRL_THERMAL_SYSTEM_TARGET_GPU, 1, -40, 127
# what an instruction writes: operands by place, from the manager
Values = Callable[[Manager], dict[int, int]]
COUNTS: dict[int, Values] = {
    firmware.NV2080_CTRL_THERMAL_SYSTEM_GET_INFO_TARGETS_AVAILABLE_OPCODE: lambda manager: {0: 1},
    firmware.NV2080_CTRL_THERMAL_SYSTEM_GET_INFO_SENSORS_AVAILABLE_OPCODE: lambda manager: {0: 1},
}
# those whose first operand is the index of a target, provider or sensor
INDEXED: dict[int, Values] = {
    firmware.NV2080_CTRL_THERMAL_SYSTEM_GET_INFO_TARGET_TYPE_OPCODE: lambda manager: {1: GPU},
    firmware.NV2080_CTRL_THERMAL_SYSTEM_GET_INFO_PROVIDER_TYPE_OPCODE: lambda manager: {1: PROVIDER_IN_GPU},
    firmware.NV2080_CTRL_THERMAL_SYSTEM_GET_INFO_SENSOR_PROVIDER_OPCODE: lambda manager: {1: 0},
    firmware.NV2080_CTRL_THERMAL_SYSTEM_GET_INFO_SENSOR_TARGET_OPCODE: lambda manager: {1: 0},
    firmware.NV2080_CTRL_THERMAL_SYSTEM_GET_INFO_SENSOR_READING_RANGE_OPCODE: lambda manager: {1: LOWEST, 2: HIGHEST},
    firmware.NV2080_CTRL_THERMAL_SYSTEM_GET_STATUS_SENSOR_READING_OPCODE: lambda manager: {
        1: manager.effects.celsius()
    },
}


def _instruction(manager: Manager, opcode: int, operands: Array[int]) -> int:
    """Carry one instruction out; return its result."""
    values = COUNTS.get(opcode) or INDEXED.get(opcode)
    if values is None or (opcode in INDEXED and operands[0]):
        return status.NV_ERR_INVALID_ARGUMENT
    for place, value in values(manager).items():
        operands[place] = value
    return status.NV_OK


def _execute(request: Request, params: layouts.THERMAL_LIST) -> None:
    """Carry a list out. The first failure ends it, unless failures are to be ignored."""
    versions = (params.version, params.revision, params.instruction_bytes)
    if versions != (
        firmware.THERMAL_SYSTEM_API_VER,
        firmware.THERMAL_SYSTEM_API_REV,
        layouts.THERMAL_INSTRUCTION.SIZE,
    ):
        raise RmError(status.NV_ERR_INVALID_PARAM_STRUCT, f"instructions of interface {versions}")
    if params.count > len(params.instructions):
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"{params.count} instructions")
    params.successful = 0
    for number in range(params.count):
        instruction = params.instructions[number]
        instruction.result = _instruction(request.manager, instruction.opcode, instruction.operands)
        instruction.executed = 1
        if instruction.result == status.NV_OK:
            params.successful += 1
        elif not params.flags & firmware.NV2080_CTRL_THERMAL_SYSTEM_EXECUTE_FLAGS_IGNORE_FAIL:
            break


ROWS = (row(firmware, "THERMAL_SYSTEM_EXECUTE_V2_PHYSICAL", layouts.THERMAL_LIST, _execute),)
