"""Controls of the copy engines: logical engines (LCEs), which channels use, and physical ones (PCEs) behind them."""

from __future__ import annotations

from ringup.autogen.nv import rm_ctrl_2080_fifo as fifo
from ringup.silicon.nv.rm.controls.table import Request, row


def _fault_method_buffer(request: Request, params: fifo.NV2080_CTRL_CE_GET_FAULT_METHOD_BUFFER_SIZE_PARAMS) -> None:
    params.size = request.manager.board.fault_method_buffer_bytes


ROWS = (
    row(
        fifo,
        "CE_GET_FAULT_METHOD_BUFFER_SIZE",
        fifo.NV2080_CTRL_CE_GET_FAULT_METHOD_BUFFER_SIZE_PARAMS,
        _fault_method_buffer,
    ),
)
