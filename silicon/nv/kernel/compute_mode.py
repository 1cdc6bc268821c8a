"""Who may compute on the card, as its administrator has set it (`nvidia-smi -c`), and who has it for itself.

The driver only keeps the rule and one reservation: a process that does not ask is not stopped. Source: NVIDIA's open
kernel modules 535.261.03, subdevice_ctrl_gpu_kernel.c and subdevice.c; numbers of the reservation's controls, which no
header has: g_subdevice_nvoc.c. On metal only an administrator may set the rule (RMCTRL_FLAGS_PRIVILEGED); here every
client may, as all are of one user.
"""

from __future__ import annotations

from ringup.autogen.nv import rm_ctrl_2080_gpu as gpu
from ringup.autogen.nv import status
from ringup.silicon.nv.rm.classes import Kind
from ringup.silicon.nv.rm.controls import hosting
from ringup.silicon.nv.rm.controls.table import Control, Request, row
from ringup.silicon.nv.rm.objects import Resource
from ringup.silicon.nv.rm.parts import RmError

ACQUIRE, RELEASE = 0x20800145, 0x20800146
_EXCLUSIVE = (
    gpu.NV2080_CTRL_GPU_COMPUTE_MODE_RULES_EXCLUSIVE_COMPUTE,
    gpu.NV2080_CTRL_GPU_COMPUTE_MODE_RULES_EXCLUSIVE_COMPUTE_PROCESS,
)
NOBODY = 0


class ComputeMode:
    """The rule, and the client that has the reservation."""

    def __init__(self) -> None:
        self.rule = gpu.NV2080_CTRL_GPU_COMPUTE_MODE_RULES_NONE
        self.holder = NOBODY

    def dropped(self, gone: Resource) -> None:
        """End the reservation of a client whose subdevice goes."""
        if gone.row.kind is Kind.SUBDEVICE and gone.client.handle == self.holder:
            self.holder = NOBODY

    def rows(self) -> tuple[Control, ...]:
        """Return the controls of a subdevice."""
        return (
            row(
                gpu,
                "GPU_QUERY_COMPUTE_MODE_RULES",
                gpu.NV2080_CTRL_GPU_QUERY_COMPUTE_MODE_RULES_PARAMS,
                self._query,
            ),
            row(gpu, "GPU_SET_COMPUTE_MODE_RULES", gpu.NV2080_CTRL_GPU_SET_COMPUTE_MODE_RULES_PARAMS, self._set),
            Control(ACQUIRE, "GPU_ACQUIRE_COMPUTE_MODE_RESERVATION", Kind.SUBDEVICE, None, 0, self._acquire),
            Control(RELEASE, "GPU_RELEASE_COMPUTE_MODE_RESERVATION", Kind.SUBDEVICE, None, 0, self._release),
        )

    def _query(self, request: Request, params: gpu.NV2080_CTRL_GPU_QUERY_COMPUTE_MODE_RULES_PARAMS) -> None:
        params.rules = self.rule

    def _set(self, request: Request, params: gpu.NV2080_CTRL_GPU_SET_COMPUTE_MODE_RULES_PARAMS) -> None:
        hosting.compute_rules(request, params)
        self.rule = params.rules

    def _acquire(self, request: Request, params: object) -> None:
        if self.rule == gpu.NV2080_CTRL_GPU_COMPUTE_MODE_RULES_COMPUTE_PROHIBITED:
            raise RmError(status.NV_ERR_STATE_IN_USE, "the card is closed to compute")
        # its own client's too
        if self.rule in _EXCLUSIVE and self.holder != NOBODY:
            raise RmError(status.NV_ERR_STATE_IN_USE, f"client {self.holder:#x} has the card for itself")
        self.holder = request.target.client.handle

    def _release(self, request: Request, params: object) -> None:
        if self.holder != request.target.client.handle:
            raise RmError(status.NV_ERR_STATE_IN_USE, "another client has the reservation, or none")
        self.holder = NOBODY
