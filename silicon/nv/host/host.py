"""The host engine: which channels exist, which may run, and what makes them run: their doorbell.

Sources: dev_vm.h (NV_VIRTUAL_FUNCTION_DOORBELL: the channel in 11:0, the runlist in 22:16), error codes in nverror.h
(ROBUST_CHANNEL_*).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial

from ringup.autogen.nv import error_notifier as errors
from ringup.autogen.nv import methods_copy, methods_host
from ringup.silicon.common.clock import VirtualClock
from ringup.silicon.common.faults import Faults
from ringup.silicon.common.log import EventLog
from ringup.silicon.nv.common.faults import ENGINE_STUCK
from ringup.silicon.nv.compute.launch import Core
from ringup.silicon.nv.engines.engine import MacroEngine, Refused, State
from ringup.silicon.nv.host import clients
from ringup.silicon.nv.host.channel import RunningChannel
from ringup.silicon.nv.host.methods import FaultPage
from ringup.silicon.nv.host.pushbuffer import BadPushbuffer
from ringup.silicon.nv.host.runlist import Load, Runlist, Stop
from ringup.silicon.nv.memory.fault_buffers import Buffer, packet
from ringup.silicon.nv.memory.gmmu import Gmmu
from ringup.silicon.nv.memory.space import Client, PageFault
from ringup.silicon.nv.memory.windows import Memory
from ringup.silicon.nv.rm.boards import rows
from ringup.silicon.nv.rm.parts import Channel, MmuFault, Slice

# the graphics engine's, and of the copy engines beside it
GRAPHICS_RUNLIST = 0
# from the doorbell to the first fetch; GUESS
WAKE_US = 2.0
# how often an engine that a fault has stopped is looked at
STUCK_US = 1e3


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
        faults: Faults,
    ) -> None:
        self.memory, self.gmmu, self.log, self._faults = memory, gmmu, log, faults
        self._clock, self._interrupt = clock, interrupt
        self._engines = {engine.nv2080_type: engine for engine in rows.find(chip).engines}
        # the shader cores, if the card has any
        self.core: Core | None = None
        # who is told how long engines work
        self.load: Load | None = None
        self.fail: Callable[[Channel, int, str], None] = lambda channel, code, text: None
        # a driver in the same process is told of the same interrupt
        self.notified: Callable[[Channel], None] = lambda channel: None
        self._channels: dict[tuple[int, int], RunningChannel] = {}
        self._runlists: dict[int, Runlist] = {}
        self._stuck: set[RunningChannel] = set()
        # what a channel was doing when it left its runlist, and channels whose state outlives a reset
        self._stopped: dict[RunningChannel, Iterator[float]] = {}
        self._saved: dict[Channel, RunningChannel] = {}
        # the MMU's buffer for faults that may be replayed; gives others to the CPU, if a client of it takes them
        self.replayable: Buffer | None = None
        self.offer_fault: Callable[[bytes], bool] = lambda packet: False
        # state of the graphics engine's objects: by what a group's channels have in common, then subcontext, subchannel
        # and class
        self._contexts: dict[Slice, dict[tuple[int, int, int], State]] = {}
        # channels that wait until their fault is handled
        self._faulted: dict[RunningChannel, PageFault] = {}

    def now_ns(self) -> int:
        """The time of the card's timer."""
        return self._clock.now_ns

    def state(self, channel: Channel, subchannel: int, class_id: int) -> State:
        """Return what a channel's object remembers. The graphics engine has one context for the channels of a group
        that have the same subcontext, with the state of its objects; GUESS: by subchannel and class. Its macros are all
        objects'.

        Source: kernel_graphics_context.c of NVIDIA's open kernel modules (the context is the channel group's); nouveau
        nvkm/engine/fifo/cgrp.h (one context for a group's channels in an address space).
        """
        if channel.runlist != GRAPHICS_RUNLIST or class_id in methods_copy.METHODS:
            return State()
        group = self._contexts.setdefault(channel.slice, {})
        key = channel.subcontext, subchannel, class_id
        if key not in group:
            others = (state.macros for one, state in group.items() if one[0] == channel.subcontext)
            group[key] = State(macros=next(others, MacroEngine()))
        return group[key]

    def notify(self, channel: Channel) -> None:
        """Send the interrupt of a channel's engine that does not stall."""
        engine = self._engines.get(channel.engine_type)
        if engine is not None:
            self._interrupt(engine.notification_vector)
            self.notified(channel)

    def client(self, engine_type: int) -> Client:
        """Return an engine as fault reports name it."""
        return clients.engine(self._engines[engine_type])

    def host_client(self, channel: Channel) -> Client:
        """Return the host's unit for a channel, as fault reports name it."""
        engine = self._engines.get(channel.engine_type)
        return clients.host(engine.pbdmas[0] if engine is not None and engine.pbdmas else 0)

    # --- from the resource manager --------------------------------------------------------------------------------
    def add(self, channel: Channel) -> None:
        """Know a channel; it starts at the begin of its GPFIFO, or goes on where it was saved."""
        running = self._saved.pop(channel, None) or RunningChannel(self, channel)
        self._channels[channel.runlist, channel.number] = running

    def schedule(self, channel: Channel, enable: bool) -> None:
        """Let a channel run, or stop it where it is; it goes on there."""
        if (running := self._find(channel)) is None:
            return
        if enable:
            self._wake(running)
        elif (going := self._runlist(channel).remove(running)) is not None:
            self._stopped[running] = going

    def save(self, channel: Channel) -> None:
        """Keep a channel's state over the next reset, as its instance block does while the machine sleeps."""
        if (running := self._find(channel)) is not None:
            self.schedule(channel, enable=False)
            self._saved[channel] = running

    def remove(self, channel: Channel) -> None:
        """Forget a channel."""
        saved = self._saved.pop(channel, None)
        running = self._find(channel) or saved
        if running is not None:
            self._runlist(channel).remove(running)
            self._stopped.pop(running, None)
            self._faulted.pop(running, None)
        if self._find(channel) is not None:
            del self._channels[channel.runlist, channel.number]
        left = [*self._channels.values(), *self._saved.values()]
        if not any(one.channel.slice is channel.slice for one in left):
            self._contexts.pop(channel.slice, None)

    def reset(self) -> None:
        """Forget all channels but those that were saved."""
        for running in self._channels.values():
            self._runlist(running.channel).remove(running)
        self._channels.clear()
        kept = set(self._saved.values())
        slices = {one.channel.slice for one in kept}
        self._contexts = {one: state for one, state in self._contexts.items() if one in slices}
        self._faulted.clear()
        if self.replayable is not None:
            self.replayable.reset()
        self._stopped = {running: going for running, going in self._stopped.items() if running in kept}

    def _runlist(self, channel: Channel) -> Runlist:
        if channel.runlist not in self._runlists:
            self._runlists[channel.runlist] = Runlist(
                self._clock, self._ended, self.load, channel.runlist == GRAPHICS_RUNLIST
            )
        return self._runlists[channel.runlist]

    def _find(self, channel: Channel) -> RunningChannel | None:
        running = self._channels.get((channel.runlist, channel.number))
        return running if running is not None and running.channel is channel else None

    def waiting(self) -> list[str]:
        """Describe the channels that do not go on: they wait for a semaphore, or after a fault."""
        return (
            [
                f"channel {one.channel.number} on runlist {one.channel.runlist} waits for {one.waits_for}"
                for one in self._channels.values()
                if one.waits_for
            ]
            + [
                f"channel {one.channel.number} on runlist {one.channel.runlist} waits after {fault}"
                for one, fault in self._faulted.items()
            ]
            + [
                f"channel {one.channel.number} on runlist {one.channel.runlist}: its engine is stuck, by a fault"
                for one in self._stuck & set(self._channels.values())
            ]
        )

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
        runlist = self._runlist(running.channel)
        if running not in runlist and running not in self._faulted:
            going = self._stopped.pop(running, None)
            if self._faults.take(ENGINE_STUCK):
                going = itertools.repeat(STUCK_US)
                self._stuck.add(running)
            runlist.add(running, running.run() if going is None else going, WAKE_US)

    def _ended(self, running: RunningChannel, error: Stop | None) -> None:
        """Report the error of a channel, if it did not just run out of work."""
        if isinstance(error, PageFault):
            self._stop_by(error, running)
        elif isinstance(error, BadPushbuffer):
            self._fail(running, errors.ROBUST_CHANNEL_PBDMA_ERROR, "violation", str(error))
        elif isinstance(error, Refused):
            self._fail(running, error.code or errors.ROBUST_CHANNEL_GR_CLASS_ERROR, error.kind, str(error))

    # --- page faults ------------------------------------------------------------------------------------------------
    def replays(self, running: RunningChannel) -> bool:
        """Return whether software handles the page faults of a channel's shaders: the instance block says so, and
        there is a buffer for them.
        """
        return self.replayable is not None and self.replayable.places > 0 and running.origin().replays

    def faulted(self, running: RunningChannel, fault: PageFault) -> bool:
        """Put a fault where software handles it, and take the channel off its runlist; return whether that was done.

        Accesses of shaders may be replayed, those of copies and of the host may be handled, all if the instance block
        says so. Source: _kgmmuFaultEntryRmServiceable_GV100 of NVIDIA's open kernel modules.
        """
        origin, taken, channel = running.origin(), False, running.channel
        if not fault.client.hub and self.replayable is not None and self.replays(running):
            # The access waits too if there is no place for its packet: the next replay makes it fault again.
            self.replayable.put(packet(fault, origin, self.now_ns(), replayable=True))
            taken = True
        elif origin.replays and fault.client.unit != clients.FRONT_END:
            taken = self.offer_fault(packet(fault, origin, self.now_ns(), replayable=False))
        if not taken:
            return False
        self.log.note("host", "wait", "channel {} on runlist {} waits after {}", channel.number, channel.runlist, fault)
        self._faulted[running] = fault
        going = self._runlist(channel).remove(running)
        if going is not None:
            self._stopped[running] = going
        return True

    def enabled(self, runlist: int, number: int) -> bool:
        """Return whether a channel is there, and scheduled."""
        running = self._channels.get((runlist, number))
        return running is not None and running.channel.scheduled

    def fault_of(self, runlist: int, number: int) -> PageFault | None:
        """Return the fault that a channel waits after; None if it does not."""
        running = self._channels.get((runlist, number))
        return None if running is None else self._faulted.get(running)

    def clear_fault(self, runlist: int, number: int) -> None:
        """Note that a channel's fault was handled: it goes on at its next doorbell."""
        running = self._channels.get((runlist, number))
        if running is not None:
            self._faulted.pop(running, None)

    def fault_cleared(self, token: int) -> None:
        """Let a channel go on whose fault, of a copy or of the host, was handled. GUESS: a token without a runlist
        names the channel of that number on any.
        """
        runlist, number = token >> 16 & 0x7F, token & 0xFFF
        for running, fault in list(self._faulted.items()):
            channel = running.channel
            if fault.client.hub and channel.number == number and runlist in (0, channel.runlist):
                self._go_on(running)

    def _go_on(self, running: RunningChannel) -> None:
        del self._faulted[running]
        if running.channel.scheduled:
            self._wake(running)

    def cancel_faults(self, chosen: Callable[[Channel], bool] = lambda channel: True) -> None:
        """Stop channels that wait after a fault: software could not handle it."""
        for running in list(self._faulted):
            if chosen(running.channel):
                self._cancel(running)

    def _cancel(self, running: RunningChannel) -> None:
        fault = self._faulted.pop(running)
        self._stopped.pop(running, None)
        # later, as this is asked for in the middle of other work
        self._clock.after(0, partial(self._stop_by, fault, running))

    def replay(self, what: int, page: FaultPage | None = None) -> None:
        """Replay or cancel accesses of shaders that wait; cancel only those to a page, if there is one."""
        again = what in (
            methods_host.MEM_OP_C_TLB_INVALIDATE_REPLAY_START,
            methods_host.MEM_OP_C_TLB_INVALIDATE_REPLAY_START_ACK_ALL,
        )
        for running, fault in list(self._faulted.items()):
            if fault.client.hub:
                continue
            if again:
                self._go_on(running)
            elif page is None or running.waits_at(page, fault):
                self._cancel(running)

    def _stop_by(self, fault: PageFault, running: RunningChannel) -> None:
        """Stop a channel by a page fault that nobody handles."""
        running.channel.mmu_faults.append(MmuFault(fault.gpu_va, fault.kind, fault.write))
        code = errors.ROBUST_CHANNEL_FIFO_ERROR_MMU_ERR_FLT
        self._fail(running, code, "fault", str(fault), fault.report)

    def _fail(self, running: RunningChannel, code: int, kind: str, why: str, report: str = "") -> None:
        """Log what happened. The driver gets that text, or the report that metal's firmware makes of it."""
        channel = running.channel
        text = f"channel {channel.number} on runlist {channel.runlist}: {why}"
        self.log.note("host", kind, "{}", text)
        self.fail(channel, code, f"channel {channel.number:#010x}, intr 00000000. {report}" if report else text)
