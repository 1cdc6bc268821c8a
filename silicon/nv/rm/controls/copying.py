"""Controls of the copy engines: logical engines (LCEs), which channels use, and physical ones (PCEs) behind them."""

from __future__ import annotations

from ringup.autogen.nv import rm_ctrl_2080_fifo as fifo
from ringup.autogen.nv import status
from ringup.silicon.nv.rm.boards.facts import EngineKind
from ringup.silicon.nv.rm.controls.table import Request, row
from ringup.silicon.nv.rm.parts import RmError

# what every LCE of these chips can: system memory, peers over PCI Express, both kinds of block-linear copies
COMMON = (
    fifo.NV2080_CTRL_CE_CAPS_CE_SYSMEM_READ,
    fifo.NV2080_CTRL_CE_CAPS_CE_SYSMEM_WRITE,
    fifo.NV2080_CTRL_CE_CAPS_CE_SYSMEM,
    fifo.NV2080_CTRL_CE_CAPS_CE_P2P,
    fifo.NV2080_CTRL_CE_CAPS_CE_SUPPORTS_NONPIPELINED_BL,
    fifo.NV2080_CTRL_CE_CAPS_CE_SUPPORTS_PIPELINED_BL,
)


def _fault_method_buffer(request: Request, params: fifo.NV2080_CTRL_CE_GET_FAULT_METHOD_BUFFER_SIZE_PARAMS) -> None:
    params.size = request.manager.board.fault_method_buffer_bytes


def _hub(request: Request, params: fifo.NV2080_CTRL_CE_GET_HUB_PCE_MASK_PARAMS) -> None:
    """Tell where the PCEs are: at the hub of video memory, or at the first hub of the links."""
    copying = request.manager.copying
    params.fbhubPceMask = copying.hub
    for number in range(len(params.hshubPceMasks)):
        params.hshubPceMasks[number] = 0 if number else copying.pces & ~copying.hub


def _update(request: Request, params: fifo.NV2080_CTRL_CE_UPDATE_PCE_LCE_MAPPINGS_PARAMS) -> None:
    """Take a mapping. Without the flag there is none in the request: kceTopLevelPceLceMappingsUpdate."""
    if params.bUpdateNvlinkPceLce:
        request.manager.copying.update(tuple(params.pceLceMap), tuple(params.grceConfig))


def _stubbed(request: Request, params: fifo.NV2080_CTRL_CE_UPDATE_CLASS_DB_PARAMS) -> None:
    params.stubbedCeMask = request.manager.copying.without


def _lce(request: Request, engine_type: int) -> int:
    engine = request.manager.board.engine(engine_type)
    if engine is None or engine.kind is not EngineKind.CE:
        raise RmError(status.NV_ERR_INVALID_ARGUMENT, f"engine {engine_type:#x} does not copy")
    return engine.instance


def caps(request: Request, lce: int) -> bytes:
    """Return the capabilities of an LCE."""
    copying = request.manager.copying
    found = bytearray(fifo.NV2080_CTRL_CE_CAPS_TBL_SIZE)
    if not copying.pce_mask(lce):
        return bytes(found)
    bits = list(COMMON)
    if lce in copying.graphics:
        bits.append(fifo.NV2080_CTRL_CE_CAPS_CE_GRCE)
    if copying.is_shared(lce):
        bits.append(fifo.NV2080_CTRL_CE_CAPS_CE_SHARED)
    for place, bit in bits:
        found[place] |= bit
    return bytes(found)


def _pce_mask(request: Request, params: fifo.NV2080_CTRL_CE_GET_CE_PCE_MASK_PARAMS) -> None:
    params.pceMask = request.manager.copying.pce_mask(_lce(request, params.ceEngineType))


def _physical_caps(request: Request, params: fifo.NV2080_CTRL_CE_GET_PHYSICAL_CAPS_PARAMS) -> None:
    params.capsTbl[0:2] = caps(request, _lce(request, params.ceEngineType))


def _all_caps(request: Request, params: fifo.NV2080_CTRL_CE_GET_ALL_PHYSICAL_CAPS_PARAMS) -> None:
    copying = request.manager.copying
    params.present = 0
    for lce in copying.lces:
        if copying.pce_mask(lce):
            params.present |= 1 << lce
            params.capsTbl[lce][0:2] = caps(request, lce)


ROWS = (
    row(
        fifo,
        "CE_GET_FAULT_METHOD_BUFFER_SIZE",
        fifo.NV2080_CTRL_CE_GET_FAULT_METHOD_BUFFER_SIZE_PARAMS,
        _fault_method_buffer,
    ),
    row(fifo, "CE_GET_HUB_PCE_MASK", fifo.NV2080_CTRL_CE_GET_HUB_PCE_MASK_PARAMS, _hub),
    row(fifo, "CE_UPDATE_PCE_LCE_MAPPINGS", fifo.NV2080_CTRL_CE_UPDATE_PCE_LCE_MAPPINGS_PARAMS, _update),
    row(fifo, "CE_UPDATE_CLASS_DB", fifo.NV2080_CTRL_CE_UPDATE_CLASS_DB_PARAMS, _stubbed),
    row(fifo, "CE_GET_CE_PCE_MASK", fifo.NV2080_CTRL_CE_GET_CE_PCE_MASK_PARAMS, _pce_mask),
    row(fifo, "CE_GET_PHYSICAL_CAPS", fifo.NV2080_CTRL_CE_GET_PHYSICAL_CAPS_PARAMS, _physical_caps),
    row(fifo, "CE_GET_ALL_PHYSICAL_CAPS", fifo.NV2080_CTRL_CE_GET_ALL_PHYSICAL_CAPS_PARAMS, _all_caps),
)
