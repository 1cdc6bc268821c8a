"""Calls as messages carry them: a header of 32 bytes and a body. Long ones go in several records.

Source: g_rpc-message-header.h; rpc.c (_issueRpcLarge) and nouveau 6.12 (r535_gsp_rpc_push), which cut calls up the
same way: the first record has the call's number, the others are CONTINUATION_RECORD, and each has a header.
Inference: the firmware sees from a call's own sizes that more records follow, and answers in as many records.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ringup.autogen.nv import gsp_rpc as rpc
from ringup.silicon.nv.gsp.queue import RPC_HEADER, RPC_LIMIT, QueueError

VERSION = rpc.NV_VGPU_MSG_HEADER_VERSION_MAJOR_TOT << 24 | rpc.NV_VGPU_MSG_HEADER_VERSION_MINOR_TOT << 16
SIGNATURE = rpc.NV_VGPU_MSG_SIGNATURE_VALID
CONTINUATION = rpc.NV_VGPU_MSG_FUNCTION_CONTINUATION_RECORD
# GUESS: the bound for a hostile CPU. The longest call that was seen has 88,080 bytes.
CALL_LIMIT = 1 << 20
PREFIXES = ("NV_VGPU_MSG_FUNCTION_", "NV_VGPU_MSG_EVENT_")


def name(function: int) -> str:
    """Return the name of a call or event."""
    for key, value in vars(rpc).items():
        if value == function and key.startswith(PREFIXES):
            return key.removeprefix(PREFIXES[0]).removeprefix(PREFIXES[1])
    return f"call {function:#x}"


@dataclass(frozen=True, slots=True)
class Call:
    """A call. `body`: without the header. `beyond`: what the first record's elements hold, header excluded, at least as
    long as the body of that record. `sequence`: the caller's number, which the answer repeats.
    """

    function: int
    body: bytes
    beyond: bytes
    sequence: int


def header(function: int, body_bytes: int, result: int, private: int, sequence: int) -> bytes:
    """Return the header of one record."""
    return struct.pack(
        "<8I",
        VERSION,
        SIGNATURE,
        RPC_HEADER + body_bytes,
        function,
        result,
        private,
        sequence,
        rpc.NV_VGPU_MSG_UNION_INIT,
    )


def records(function: int, body: bytes, result: int = 0, private: int = 0, sequence: int = 0) -> Iterator[bytes]:
    """Cut a call into records."""
    room = RPC_LIMIT - RPC_HEADER
    for offset in range(0, max(len(body), 1), room):
        part = body[offset : offset + room]
        yield header(CONTINUATION if offset else function, len(part), result, private, sequence) + part


class Assembler:
    """Puts the records of a call together again."""

    def __init__(self, extent: Callable[[int, bytes], int]) -> None:
        """`extent`: returns how many bytes a call's body has, from its number and its first bytes."""
        self._extent = extent
        self._partial: Call | None = None

    def add(self, record: bytes, beyond: bytes) -> Call | None:
        """Take a record in; return the call if it is complete. Raises `QueueError`, and forgets an incomplete call."""
        version, signature, length, function, _, _, sequence, _ = struct.unpack_from("<8I", record)
        if signature != SIGNATURE or version != VERSION:
            self._partial = None
            raise QueueError(
                "signature", f"call {function:#x} has signature {signature:#010x} and version {version:#x}"
            )
        body = record[RPC_HEADER:length]
        partial, self._partial = self._partial, None
        if function == CONTINUATION:
            if partial is None:
                raise QueueError("continuation", "a continuation without a call")
            call = Call(partial.function, partial.body + body, partial.beyond, partial.sequence)
        else:
            if partial is not None:
                self._partial = None
                raise QueueError("continuation", f"call {function:#x} came within call {partial.function:#x}")
            call = Call(function, body, beyond[RPC_HEADER:], sequence)
        wanted = self._extent(call.function, call.body)
        if wanted > CALL_LIMIT:
            raise QueueError("length", f"call {call.function:#x} says it has {wanted} bytes")
        if len(call.body) >= wanted:
            return call
        if length < RPC_LIMIT:
            # a record that is not full is the last one
            raise QueueError("length", f"call {call.function:#x} says it has {wanted} bytes, and {len(call.body)} came")
        self._partial = call
        return None
