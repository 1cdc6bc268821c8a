"""The faults that a virtual NVIDIA card offers by name, beside those of every card."""

from __future__ import annotations

from ringup.silicon.common.faults import FaultKind

FWSEC_ERROR, BOOTER_ERROR, FALCON_STUCK = "fwsec_error", "booter_error", "falcon_stuck"
FSP_ERROR, FSP_SILENT = "fsp_error", "fsp_silent"
GSP_NO_START, GSP_SILENT, GSP_CRASH, GSP_CHECKSUM = "gsp_no_start", "gsp_silent", "gsp_crash", "gsp_bad_checksum"
RM_STATUS, INVALIDATE_STUCK, ENGINE_STUCK = "rm_status", "invalidate_stuck", "engine_stuck"
MANY = "how many; -1: all"
KINDS = (
    FaultKind(FALCON_STUCK, "a falcon that is started never halts", MANY),
    FaultKind(FWSEC_ERROR, "FWSEC protects nothing, and leaves an error", "the error, 1 to 65535; -1: 1"),
    FaultKind(BOOTER_ERROR, "the booter, or the GSP's FMC, loads nothing, and leaves an error", "the error; -1: 1"),
    FaultKind(FSP_ERROR, "the FSP does not boot the GSP, and answers an error", "the error; -1: an invalid state"),
    FaultKind(FSP_SILENT, "the FSP takes commands in and answers none", MANY),
    FaultKind(GSP_NO_START, "GSP-RM is started and never says that it is ready", MANY),
    FaultKind(GSP_SILENT, "GSP-RM takes calls in and answers none", MANY),
    FaultKind(GSP_CRASH, "GSP-RM's core halts at its next call", MANY),
    FaultKind(GSP_CHECKSUM, "messages of GSP-RM have a wrong checksum", MANY),
    FaultKind(RM_STATUS, "allocations and controls fail with a status", "the status, NV_ERR_*; -1: NV_ERR_GENERIC"),
    FaultKind(INVALIDATE_STUCK, "an invalidation of translations is never acknowledged", MANY),
    FaultKind(ENGINE_STUCK, "a channel's next work on its engine never ends", MANY),
)
