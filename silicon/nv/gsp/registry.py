"""The registry that the CPU's driver hands over: names with numbers, bytes or texts.

Source: g_os_nvoc.h, PACKED_REGISTRY_TABLE; nouveau 6.12, build_registry.
"""

from __future__ import annotations

import struct

from ringup.autogen.nv import gsp_rpc as rpc
from ringup.silicon.nv.gsp.queue import QueueError

HEAD, ENTRY = rpc.PACKED_REGISTRY_TABLE.SIZE, rpc.PACKED_REGISTRY_ENTRY.SIZE
MAX_ENTRIES = 1024


def extent(body: bytes) -> int:
    """Return the bytes of the whole table."""
    return int(struct.unpack_from("<I", body)[0])


def parse(body: bytes) -> dict[str, int | bytes]:
    """Return the entries. Raises `QueueError` for a table that does not hold together."""
    size, count = struct.unpack_from("<II", body)
    if count > MAX_ENTRIES or HEAD + count * ENTRY > size or size > len(body):
        raise QueueError("registry", f"the registry has {count} entries in {size} bytes, of which {len(body)} came")
    found: dict[str, int | bytes] = {}
    for number in range(count):
        entry = rpc.PACKED_REGISTRY_ENTRY.view(bytearray(body[HEAD + number * ENTRY : HEAD + (number + 1) * ENTRY]))
        end = body.find(b"\0", entry.nameOffset, size)
        if entry.nameOffset < HEAD + count * ENTRY or end < 0:
            raise QueueError("registry", f"entry {number} has its name at byte {entry.nameOffset}")
        name = body[entry.nameOffset : end].decode("ascii", "replace")
        if entry.type == rpc.REGISTRY_TABLE_ENTRY_TYPE_DWORD:
            found[name] = entry.data
        elif entry.type in (rpc.REGISTRY_TABLE_ENTRY_TYPE_BINARY, rpc.REGISTRY_TABLE_ENTRY_TYPE_STRING):
            if entry.data + entry.length > size:
                raise QueueError("registry", f"{name} has {entry.length} bytes at byte {entry.data}")
            found[name] = body[entry.data : entry.data + entry.length]
        else:
            raise QueueError("registry", f"{name} has type {entry.type}")
    return found
