"""Events of GSP-RM, decoded: what a card object and its memory manager want to know.

Source: OGKM g_rpc-structures.h; kernel_gsp.c, _kgspRpcOsErrorLog, _kgspRpcPostEvent, _kgspRpcRCTriggered,
_kgspRpcUcodeLibosPrint.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ringup.autogen.nv import gsp_rpc
from ringup.autogen.structs import Struct
from ringup.drivers.nv.gsp.releases import struct
from ringup.errors import DeviceHung

TEXT_BYTES = 256  # of rpc_os_error_log_v17_00.errString


@dataclass(frozen=True, slots=True)
class ErrorLog:
    """A line for the system's log: an error's number ("Xid"), and its text."""

    xid: int
    channel: int
    text: str


@dataclass(frozen=True, slots=True)
class Posted:
    """An event of an object that a client has asked for."""

    client: int
    event: int
    index: int
    data: int
    info16: int
    status: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Triggered:
    """A channel was stopped by robust-channel recovery (RC)."""

    engine: int
    channel: int
    error: int
    scope: int


@dataclass(frozen=True, slots=True)
class Printed:
    """Raw log records of another processor's firmware."""

    engine: int
    records: bytes


def error_log(payload: bytes, release: str) -> ErrorLog:
    """Decode OS_ERROR_LOG."""
    seen = _view(gsp_rpc.rpc_os_error_log_v17_00, payload, release)
    at = struct(gsp_rpc.rpc_os_error_log_v17_00, release).offset_of("errString")
    text = payload[at : at + TEXT_BYTES].split(b"\0", 1)[0].decode("ascii", "replace")
    return ErrorLog(seen.exceptType, seen.chid, text)


def posted(payload: bytes, release: str) -> Posted:
    """Decode POST_EVENT."""
    layout = struct(gsp_rpc.rpc_post_event_v17_00, release)
    seen = _view(gsp_rpc.rpc_post_event_v17_00, payload, release)
    at = layout.offset_of("eventData")
    data = payload[at : at + seen.eventDataSize]
    return Posted(seen.hClient, seen.hEvent, seen.notifyIndex, seen.data, seen.info16, seen.status, data)


def triggered(payload: bytes, release: str) -> Triggered:
    """Decode RC_TRIGGERED."""
    seen = _view(gsp_rpc.rpc_rc_triggered_v17_02, payload, release)
    return Triggered(seen.nv2080EngineType, seen.chid, seen.exceptType, seen.scope)


def printed(payload: bytes, release: str) -> Printed:
    """Decode UCODE_LIBOS_PRINT."""
    layout = struct(gsp_rpc.rpc_ucode_libos_print_v1E_08, release)
    seen = _view(gsp_rpc.rpc_ucode_libos_print_v1E_08, payload, release)
    at = layout.offset_of("libosPrintBuf")
    return Printed(seen.ucodeEngDesc, payload[at : at + seen.libosPrintBufSize])


def _view(cls: type[Struct], payload: bytes, release: str) -> Any:
    layout = struct(cls, release)
    if len(payload) < layout.SIZE:
        raise DeviceHung(f"GSP-RM sent an event of {len(payload)} bytes, {cls.__name__} has {layout.SIZE}")
    return layout.view(bytearray(payload))
