"""What logger.c writes: one record for each call on NVIDIA's device nodes."""

from __future__ import annotations

import enum
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ringup.autogen.nv import uvm
from ringup.autogen.structs import Struct
from ringup.errors import NotSupported, TransportError

# struct record of logger.c
HEADER = struct.Struct("<IIiiqiIIIQQQQQ")
MAGIC = 0x4C43_5552
# nv_escape.h: the requests whose parameters have a command or a class at this byte
NUMBER_AT = {0x2A: 8, 0x2B: 12}


class Kind(enum.IntEnum):
    """What was called."""

    OPEN = 1
    IOCTL = 2
    MAP = 3
    CLOSE = 4


@dataclass(frozen=True, slots=True)
class Call:
    """One call. `before` and `after` are the bytes of its argument (of an open: the path), `params_…` those of the
    parameters that the argument points to.
    """

    kind: Kind
    node: int
    result: int
    error: int
    request: int
    length: int
    time_ns: int
    before: bytes
    after: bytes
    params_before: bytes
    params_after: bytes

    @property
    def name(self) -> str:
        """The call in short: its kind, the request's number, of a control or an object its command or class."""
        if self.kind is not Kind.IOCTL:
            return self.kind.name.lower()
        at = NUMBER_AT.get(self.request & 0xFF) if self.request >> 30 else None
        inner = f" {int.from_bytes(self.before[at : at + 4], 'little'):#x}" if at and len(self.before) >= at + 4 else ""
        return f"{self.request:#x}{inner}"


def read(data: bytes) -> Iterator[Call]:
    """Return the calls of one process. A record that is cut short ends them.

    Raises `TransportError` for what is no recording.
    """
    at = 0
    while at + HEADER.size <= len(data):
        magic, kind, node, _, result, error, body, params, _, request, _, length, _, time_ns = HEADER.unpack_from(
            data, at
        )
        if magic != MAGIC or kind not in set(Kind):
            raise TransportError(f"byte {at} of a recording of calls begins no record: {data[at : at + 8].hex()}")
        at += HEADER.size
        if at + 2 * (body + params) > len(data):
            return
        parts = []
        for size in (body, body, params, params):
            parts.append(data[at : at + size])
            at += size
        yield Call(Kind(kind), node, result, error, request, length, time_ns, *parts)


def counts(calls: Iterator[Call]) -> dict[str, int]:
    """Count calls by what they are."""
    return dict(Counter(call.name for call in calls).most_common())


def uvm_sizes(release: str) -> str:
    """Return the rows of uvm_sizes.h: how many bytes each call on /dev/nvidia-uvm takes in a release."""
    rows = []
    for name, layout in vars(uvm).items():
        call = name.removesuffix("_PARAMS")
        number = getattr(uvm, call, None)
        if call == name or not isinstance(number, int) or not issubclass(layout, Struct):
            continue
        try:
            size_bytes = layout.at(release).SIZE
        # a call that this release does not have
        except NotSupported:
            continue
        rows.append(f"\t{{ {number:#x}u, {size_bytes} }}, /* {call} */\n")
    return "".join(rows)
