"""What happens to a channel that made an error: it stops with its group, and everyone concerned is told.

Source: NVIDIA's open kernel modules 535.261.03: kernel_rc_notification.c (which channels a scope has),
method_notification.c (the notifier's words), kernel_gsp.c (without confidential computing the firmware writes the
notifiers, and that before it sends RC_TRIGGERED).
"""

from __future__ import annotations

import struct

from ringup.silicon.nv.rm.manager import BLOCK, Manager
from ringup.silicon.nv.rm.objects import Group
from ringup.silicon.nv.rm.parts import Channel

# g_kernel_rc_nvoc.h, RC_NOTIFIER_SCOPE_*
SCOPE_CHANNEL, SCOPE_GROUP = 0, 1
# NvNotification: high and low word of the time, info32, info16, status
NOTIFICATION = struct.Struct("<IIIHH")
FAILED = 0xFFFF


def _together(manager: Manager, channel: Channel) -> tuple[Channel, ...]:
    """Return the channels that stop with a channel: those of its group."""
    for client in manager.clients:
        for resource in client.resources.values():
            if isinstance(resource.state, Group) and channel in resource.state.channels:
                return tuple(resource.state.channels)
    return (channel,)


def fail(manager: Manager, channel: Channel, code: int, text: str, time_ns: int) -> None:
    """Stop a channel because of an error. `code`: ROBUST_CHANNEL_*; `text`: for the system's log.

    GUESS: the line in the log comes first, and RC_TRIGGERED once, for the channel that made the error.
    """
    if channel not in manager.numbers:
        manager.log.note(BLOCK, "recovery", "channel {} is gone, and its error {} with it", channel.number, code)
        return
    stopping = _together(manager, channel)
    for other in stopping:
        if other.scheduled:
            other.scheduled = False
            manager.effects.channel_scheduled(other, False)
        if not other.stopped:
            other.stopped = True
            manager.effects.channel_stopped(other)
        _notify(manager, other, code, time_ns)
    scope = SCOPE_GROUP if len(stopping) > 1 else SCOPE_CHANNEL
    manager.events.error_logged(code, channel.runlist, channel.number, text)
    manager.events.channel_failed(channel, code, channel.engine_type, scope)


def _notify(manager: Manager, channel: Channel, code: int, time_ns: int) -> None:
    """Write a channel's error notifier, if it has one."""
    place = channel.error_notifier
    if place is None or place.size_bytes < NOTIFICATION.size:
        return
    words = NOTIFICATION.pack(time_ns >> 32, time_ns & 0xFFFFFFFF, code, channel.engine_type & 0xFFFF, FAILED)
    try:
        manager.memory.write(place.aperture, place.address, words)
    except ValueError as error:
        manager.log.note(BLOCK, "violation", "notifier of channel {}: {}", channel.number, error)
