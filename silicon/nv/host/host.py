"""The host engine: which channels exist, which may run, and what makes them run: their doorbell.

Sources: dev_vm.h (NV_VIRTUAL_FUNCTION_DOORBELL: the channel in 11:0, the runlist in 22:16), nvenc error codes in
nverror.h (ROBUST_CHANNEL_*). GUESS: channels of a runlist run at once, without time slices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ringup.autogen.nv import error_notifier as errors
from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.common.log import EventLog
from ringup.silicon.nv.compute.launch import Core
from ringup.silicon.nv.engines.engine import Refused
from ringup.silicon.nv.host.channel import RunningChannel
from ringup.silicon.nv.host.pushbuffer import BadPushbuffer
from ringup.silicon.nv.memory.gmmu import Gmmu
from ringup.silicon.nv.memory.space import PageFault
from ringup.silicon.nv.memory.windows import Memory
from ringup.silicon.nv.rm.boards import rows
from ringup.silicon.nv.rm.parts import Channel

# from the doorbell to the first fetch; GUESS
WAKE_US = 2.0


class Host:
    """All channels of a card. `interrupt` sets a vector; `fail` tells the GSP about a channel's error."""

    def __init__(
        self,
        chip: str,
        memory: Memory,
        gmmu: Gmmu,
        clock: VirtualClock,
        log: EventLog,
        interrupt: Callable[[int], None],
    ) -> None:
        self.memory, self.gmmu, self.log = memory, gmmu, log
        self._clock, self._interrupt = clock, interrupt
        self._engines = {engine.rm_type: engine for engine in rows.find(chip).engines}
        # the shader cores, if the card has any
        self.core: Core | None = None
        self.fail: Callable[[Channel, int, str], None] = lambda channel, code, text: None
        self._channels: dict[tuple[int, int], RunningChannel] = {}
        # what a channel is doing; a channel that is stopped has nothing
        self._going: dict[RunningChannel, Iterator[float]] = {}

    def now_ns(self) -> int:
        """The time of the card's timer."""
        return self._clock.now_ns

    def notify(self, channel: Channel) -> None:
        """Send the interrupt of a channel's engine that does not stall."""
        engine = self._engines.get(channel.engine_type)
        if engine is not None:
            self._interrupt(engine.notification_vector)

    # --- from the resource manager --------------------------------------------------------------------------------
    def add(self, channel: Channel) -> None:
        """Know a channel; it starts at the begin of its GPFIFO."""
        self._channels[channel.runlist, channel.number] = RunningChannel(self, channel)

    def schedule(self, channel: Channel, enable: bool) -> None:
        """Let a channel run, or stop it where it is."""
        if (running := self._find(channel)) is None:
            return
        if enable:
            self._wake(running)
        else:
            self._going.pop(running, None)

    def remove(self, channel: Channel) -> None:
        """Forget a channel."""
        if (running := self._find(channel)) is not None:
            self._going.pop(running, None)
            del self._channels[channel.runlist, channel.number]

    def reset(self) -> None:
        """Forget all channels."""
        self._channels.clear()
        self._going.clear()

    def _find(self, channel: Channel) -> RunningChannel | None:
        running = self._channels.get((channel.runlist, channel.number))
        return running if running is not None and running.channel is channel else None

    def waiting(self) -> list[str]:
        """Describe the channels that wait for a semaphore."""
        return [
            f"channel {one.channel.number} on runlist {one.channel.runlist} waits for {one.waits_for}"
            for one in self._channels.values()
            if one.waits_for
        ]

    # --- running ----------------------------------------------------------------------------------------------------
    def doorbell(self, token: int) -> None:
        """Look at the GPFIFO of the channel that a doorbell names."""
        running = self._channels.get((token >> 16 & 0x7F, token & 0xFFF))
        if running is None:
            self.log.note("host", "violation", "doorbell {:#x} names a channel that there is not", token)
        elif not running.channel.scheduled:
            # the put pointer is in memory; the channel looks at it when it is scheduled
            self.log.note("host", "channel", "doorbell {:#x} of a channel that is not scheduled", token)
        else:
            self._wake(running)

    def _wake(self, running: RunningChannel) -> None:
        if running not in self._going:
            going = self._going[running] = running.run()
            self._clock.after(WAKE_US, lambda: self._step(running, going))

    def _step(self, running: RunningChannel, going: Iterator[float]) -> None:
        """Let a channel go on until it has to wait."""
        if self._going.get(running) is not going:
            return
        try:
            delay_us = next(going)
        except StopIteration:
            del self._going[running]
        except PageFault as fault:
            self._fail(running, errors.ROBUST_CHANNEL_FIFO_ERROR_MMU_ERR_FLT, "fault", str(fault))
        except BadPushbuffer as error:
            self._fail(running, errors.ROBUST_CHANNEL_PBDMA_ERROR, "violation", str(error))
        except Refused as error:
            self._fail(running, error.code or errors.ROBUST_CHANNEL_GR_CLASS_ERROR, error.kind, str(error))
        else:
            self._clock.after(delay_us, lambda: self._step(running, going))

    def _fail(self, running: RunningChannel, code: int, kind: str, why: str) -> None:
        self._going.pop(running, None)
        channel = running.channel
        text = f"channel {channel.number} on runlist {channel.runlist}: {why}"
        self.log.note("host", kind, "{}", text)
        self.fail(channel, code, text)
