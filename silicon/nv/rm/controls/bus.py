"""Controls of PCI Express: windows, link, and what the card can do over it."""

from __future__ import annotations

from ringup.autogen.nv import rm_ctrl_2080_bus as bus
from ringup.autogen.nv import rm_ctrl_2080_internal as internal
from ringup.silicon.nv.rm import layouts
from ringup.silicon.nv.rm.controls.lists import Values, fill
from ringup.silicon.nv.rm.controls.table import Request, accept, row
from ringup.silicon.nv.rm.manager import Manager

REGISTER_BYTES, INSTANCE_BYTES = 16 << 20, 32 << 20
GENERATION_4 = 4
# lanes: every board of the rows has an x16 connector
LANES = 16


def _link(manager: Manager) -> int:
    """Return PCIE_LINK_CAP: speed, width and generation. The link runs as fast as the card can."""
    generation = manager.chip.generation
    level = generation - 1
    return sum(
        value << field[1]
        for field, value in (
            (bus.NV2080_CTRL_BUS_INFO_PCIE_LINK_CAP_MAX_SPEED, generation),
            (bus.NV2080_CTRL_BUS_INFO_PCIE_LINK_CAP_MAX_WIDTH, LANES),
            (bus.NV2080_CTRL_BUS_INFO_PCIE_LINK_CAP_GEN, level),
            (bus.NV2080_CTRL_BUS_INFO_PCIE_LINK_CAP_CURR_LEVEL, level),
            (bus.NV2080_CTRL_BUS_INFO_PCIE_LINK_CAP_GPU_GEN, level),
        )
    )


INFO: Values = {
    bus.NV2080_CTRL_BUS_INFO_INDEX_TYPE: lambda manager: bus.NV2080_CTRL_BUS_INFO_TYPE_PCI_EXPRESS,
    bus.NV2080_CTRL_BUS_INFO_INDEX_PCIE_GPU_LINK_CAPS: _link,
    bus.NV2080_CTRL_BUS_INFO_INDEX_PCIE_GEN_INFO: _link,
    bus.NV2080_CTRL_BUS_INFO_INDEX_SYSMEM_CONNECTION_TYPE: lambda manager: (
        bus.NV2080_CTRL_BUS_INFO_INDEX_SYSMEM_CONNECTION_TYPE_PCIE
    ),
}


def _windows(request: Request, params: bus.NV2080_CTRL_BUS_GET_PCI_BAR_INFO_PARAMS) -> None:
    """Tell the three windows: registers, memory, instance memory. All eight entries are written: what the CPU hands
    over is not cleared (kbusInitBarsSize_KERNEL).
    """
    manager = request.manager
    windows = zip(manager.windows, (REGISTER_BYTES, manager.chip.bar1_bytes, INSTANCE_BYTES), strict=True)
    for number in range(len(params.pciBarInfo)):
        entry = params.pciBarInfo[number]
        entry.barOffset, entry.barSizeBytes = next(windows, (0, 0))
        entry.barSize, entry.flags = entry.barSizeBytes >> 20, 0
    params.pciBarCount = len(manager.windows)


def _static(request: Request, params: layouts.BIF_STATIC_INFO) -> None:
    params.generation_4 = request.manager.chip.generation >= GENERATION_4
    # no link between chips, and addresses of memory begin at 0
    params.chip_link, params.dma_window = 0, 0


def _info(request: Request, params: bus.NV2080_CTRL_BUS_GET_INFO_V2_PARAMS) -> None:
    fill(request.manager, params.busInfoListSize, params.busInfoList, INFO, "facts of the bus")


def _atomics(request: Request, params: bus.NV2080_CTRL_CMD_BUS_GET_PCIE_SUPPORTED_GPU_ATOMICS_PARAMS) -> None:
    """Tell that no atomic goes over the bus. GUESS: metal has some where the root port allows them."""
    for number in range(len(params.atomicOp)):
        entry = params.atomicOp[number]
        entry.bSupported, entry.attributes = 0, 0


def _chip_link(request: Request, params: bus.NV2080_CTRL_CMD_BUS_GET_C2C_INFO_PARAMS) -> None:
    """Tell that there is no link to another chip: only GH100's family has one."""
    params.bIsLinkUp, params.nrLinks, params.maxNrLinks, params.linkMask = 0, 0, 0, 0


ROWS = (
    row(bus, "BUS_GET_PCI_BAR_INFO", bus.NV2080_CTRL_BUS_GET_PCI_BAR_INFO_PARAMS, _windows),
    row(internal, "INTERNAL_BIF_GET_STATIC_INFO", layouts.BIF_STATIC_INFO, _static),
    row(bus, "BUS_GET_INFO_V2", bus.NV2080_CTRL_BUS_GET_INFO_V2_PARAMS, _info),
    row(
        bus,
        "BUS_GET_PCIE_SUPPORTED_GPU_ATOMICS",
        bus.NV2080_CTRL_CMD_BUS_GET_PCIE_SUPPORTED_GPU_ATOMICS_PARAMS,
        _atomics,
    ),
    row(bus, "BUS_GET_C2C_INFO", bus.NV2080_CTRL_CMD_BUS_GET_C2C_INFO_PARAMS, _chip_link),
    # every write of this card is visible when it is made
    row(internal, "INTERNAL_BUS_FLUSH_WITH_SYSMEMBAR", None, accept),
)
