"""What GSP-RM tells of channels that it has stopped, as errors: with the address of an access that was not allowed.

GSP-RM sends a line for the system's log ("Xid") and then that the channel was stopped. The line has the address: the
structure does not. Source: OGKM kernel_gsp.c, _kgspRpcOsErrorLog and _kgspRpcRCTriggered; nverror.h; for the text,
NVIDIA's "XID Errors" document and lines that users have reported.
"""

from __future__ import annotations

import re

from ringup.drivers.memory.buffers import Memory
from ringup.drivers.nv.channels.channel import Channel, ChannelNumbers
from ringup.drivers.nv.gsp.events import ErrorLog, Triggered
from ringup.drivers.nv.gsp.running import Running
from ringup.drivers.nv.rm.xids import WORKS_OWN, xid_name
from ringup.errors import DeviceFault, DeviceHung, RingupError

# such as "faulted @ 0x7f15_38000000": high and low half of the address
FAULT_ADDRESS = re.compile(r"@ 0x([0-9a-f]{1,8})_([0-9a-f]{8})\b")
MAX_TEXT = 240


def described(error: ErrorLog) -> str:
    """Return a line of the system's log as one for a report."""
    return f"Xid {error.xid} ({xid_name(error.xid)}), channel {error.channel}: {error.text[:MAX_TEXT]}"


def fault_address(text: str) -> int | None:
    """Return the address that a line names, None where it names none."""
    found = FAULT_ADDRESS.search(text)
    return None if found is None else int(found[1], 16) << 32 | int(found[2], 16)


class Watch:
    """What came of one GSP-RM that was not taken in yet."""

    def __init__(self, running: Running, numbers: ChannelNumbers, memory: Memory) -> None:
        self._running, self._numbers, self._memory = running, numbers, memory

    @property
    def pending(self) -> bool:
        """Whether something has come. It looks at memory alone."""
        return bool(self._running.poll()) or bool(self._running.triggered)

    def take(self, name: str) -> RingupError | None:
        """Give stopped channels their errors; return that of a channel which is none of the queues', if there is one.
        `name`: the card's.
        """
        other: RingupError | None = None
        triggered = self._running.triggered
        while triggered:
            one = triggered.popleft()
            channel = self._numbers.taken.get(one.channel)
            error = self._error(name, one, channel)
            if channel is None:
                other = other or error
            elif channel.error is None:
                channel.error = error
        return other

    def _error(self, name: str, one: Triggered, channel: Channel | None) -> RingupError:
        lines = [line for line in self._running.errors if line.channel == one.channel and line.xid == one.error]
        text = f": {lines[-1].text[:MAX_TEXT].strip()}" if lines else ""
        whose = str(channel) if channel is not None else f"channel {one.channel} of engine {one.engine}"
        said = f"{name}: GSP-RM stopped {whose}: Xid {one.error} ({xid_name(one.error)}){text}"
        if one.error not in WORKS_OWN:
            return DeviceHung(f"{said}; reset the card")
        gpu_va = fault_address(lines[-1].text) if lines else None
        if gpu_va is None:
            return DeviceFault(said)
        return DeviceFault(f"{said}: {gpu_va:#x} is {self._memory.faulted(gpu_va)}")
