"""The firmware's life: it starts, makes its queue, waits for the system's description, works, and stops.

All work is done by timers of the card's clock. A mistake of the CPU's side is a violation in the log and never raises:
the firmware drops the message, or stays silent, as the table of `docs/silicon.md` says.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Callable
from dataclasses import replace

from ringup.autogen.nv import gsp_rpc as rpc
from ringup.autogen.structs import memory as struct_bytes
from ringup.silicon.common.clock import Timer, VirtualClock
from ringup.silicon.common.faults import Faults
from ringup.silicon.common.log import EventLog
from ringup.silicon.nv.common.faults import GSP_CHECKSUM, GSP_CRASH, GSP_NO_START, GSP_SILENT
from ringup.silicon.nv.gsp import calls, functions, libos, queue
from ringup.silicon.nv.gsp.ports import Boot, Events, HandOver, Memory
from ringup.silicon.nv.gsp.releases import ROWS as RELEASES
from ringup.silicon.nv.gsp.session import BLOCK, Session
from ringup.silicon.nv.rm import faults, recovery, sleep
from ringup.silicon.nv.rm.boards import rows as boards
from ringup.silicon.nv.rm.controls.every import CONTROLS
from ringup.silicon.nv.rm.parts import Aperture, Channel, Chip

# GUESS: how long the firmware takes to start, to carry one call out, and to look again for room in the status queue.
# Drivers wait seconds for each.
BOOT_US, CALL_US, RETRY_US = 5_000, 20, 1_000
# GUESS: how long it takes to go on after a sleep. ORDER: nouveau begins to wait for INIT_DONE after the loader has
# returned, and GSP interrupts are on then; a message that came before would be read, and dropped, by their handler. A
# served card makes up for up to 0.5 s in which it computed without the guest, so this is longer.
WAKE_US = 1_000_000
# messages read at one time, so that the CPU's side of the machine runs in between
MESSAGES_AT_ONCE = 8
# errors after which the message is still in the queue: the next doorbell looks again
NOT_CONSUMED = ("pointer", "incomplete", "memory")


class Phase(enum.Enum):
    """Where the firmware is."""

    OFF = "off"
    STARTING = "starting"
    WAITING = "waiting for the system's description"
    HANDED_OVER = "waiting for the CPU's sequence"
    RUNNING = "running"
    STOPPED = "stopped"
    STUCK = "stuck"


class GspFirmware:
    """The GSP-RM of one card."""

    def __init__(
        self,
        chip: Chip,
        memory: Memory,
        events: Events,
        clock: VirtualClock,
        log: EventLog,
        faults: Faults | None = None,
        on_crash: Callable[[], None] = lambda: None,
        hand_over: HandOver | None = None,
    ) -> None:
        """`on_crash` is called when the core halts by a fault. `hand_over`: the chip's firmware needs the CPU's
        sequencer to start. Raises `NoSuchCard` for a chip without a board row.
        """
        self.faults, self._on_crash, self._hand_over = faults or Faults(), on_crash, hand_over
        self.chip, self.memory, self.events, self.clock, self.log = chip, memory, events, clock, log
        self.board = boards.find(chip.name)
        self.phase = Phase.OFF
        self.session: Session | None = None
        self._assembler = calls.Assembler(functions.extent)
        self._timer: Timer | None = None
        self._boot: Boot | None = None
        # what ran before the machine went to sleep
        self._asleep: Session | None = None

    @property
    def violations(self) -> list[str]:
        """Mistakes of the CPU's side since the last start."""
        return list(self.session.violations) if self.session is not None else []

    def start(self, boot: Boot) -> None:
        """Start, as the loader does when it has verified the image. Whatever ran before is gone."""
        self.unload()
        if self._asleep is not None:
            self._asleep.manager.close()
            self._asleep = None
        self._boot = boot
        self.phase = Phase.STARTING
        self._after(BOOT_US, self._begin)

    def resume(self) -> None:
        """Start again after a sleep, as the loader does with the state that it saved when the firmware stopped."""
        self.unload()
        self.phase = Phase.STARTING
        self._after(WAKE_US, self._wake)

    @property
    def waits_for_cpu(self) -> bool:
        """Whether the CPU carries the sequence out. What the firmware knows outlives a reset of the core then."""
        return self.phase is Phase.HANDED_OVER

    def proceed(self, arguments: int) -> bool:
        """Go on after the CPU's sequence; return whether the firmware waited for that. `arguments`: the bus address in
        the GSP's mailboxes, which is the same as in the start.
        """
        session, boot = self.session, self._boot
        if not self.waits_for_cpu or session is None or boot is None:
            return False
        if arguments != boot.libos_arguments:
            session.violation("resume", f"the arguments are at {arguments:#x}, not at {boot.libos_arguments:#x}")
            return False
        self.phase = Phase.STARTING
        self._after(CALL_US, lambda: self._up(session))
        return True

    def channel_failed(self, channel: Channel, code: int, text: str) -> None:
        """The card found an error of a channel: it is stopped, and the CPU is told. `code`: ROBUST_CHANNEL_*."""
        session = self.session
        if session is None or self.phase is not Phase.RUNNING:
            return
        try:
            recovery.fail(session.manager, channel, code, text, self.clock.now_ns)
        except queue.QueueError as error:
            session.violation(error.kind, str(error))
        else:
            self._flush(session, again=True)

    def offer_fault(self, packet: bytes) -> bool:
        """Give a page fault that may be handled to the CPU's client; return whether one took it."""
        session = self.session
        if session is None or self.phase is not Phase.RUNNING or not faults.offer(session.manager, packet):
            return False
        self._flush(session, again=True)
        return True

    def doorbell(self) -> None:
        """The CPU wrote the queue's head register: there may be a message."""
        if self.phase in (Phase.WAITING, Phase.RUNNING) and self._timer is None:
            self._after(CALL_US, self._work)

    def unload(self) -> None:
        """The processor was reset: nothing is answered any more. Only what was saved for after a sleep stays."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        session, self.session = self.session, None
        if session is not None:
            if session.sleeping and self.phase is Phase.STOPPED:
                self._asleep = session
            else:
                session.manager.close()
        self.phase = Phase.OFF
        self._assembler = calls.Assembler(functions.extent)

    def _after(self, delay_us: float, action: object) -> None:
        assert callable(action)
        if self._timer is not None:
            self._timer.cancel()

        def run() -> None:
            self._timer = None
            action()

        self._timer = self.clock.after(delay_us, run)

    def _begin(self) -> None:
        """Read the arguments, make the status queue, and look for the first messages."""
        boot = self._boot
        assert boot is not None
        if self.faults.take(GSP_NO_START):
            self.phase = Phase.STUCK
            return
        release = RELEASES.get(boot.release)
        if release is None:
            self.log.note(BLOCK, "unmodelled", "firmware release {}", boot.release)
            self.phase = Phase.STUCK
            return
        try:
            session = Session(self.board, self.chip, self.memory, self.events, self.log, boot, release, CONTROLS)
            self.session = session
            session.manager.faults = self.faults
            self._open_queues(session, boot)
        except (queue.QueueError, ValueError) as error:
            self._stuck(error)
            return
        self._make_roots(session)
        self.phase = Phase.WAITING
        self._work()

    def _stuck(self, error: queue.QueueError | ValueError) -> None:
        """Do not come up, as metal does not: the CPU waits for INIT_DONE in vain."""
        kind = error.kind if isinstance(error, queue.QueueError) else "memory"
        self.log.note(BLOCK, "violation", "{}: {}", kind, error)
        if self.session is not None:
            self.session.violations.append(f"{kind}: {error}")
        self.phase = Phase.STUCK

    def _wake(self) -> None:
        """Go on where the firmware stopped. Inference from nouveau, which touches neither pointers nor sequence numbers
        and describes the system to the first start only: the queues go on too, and INIT_DONE comes by itself.
        """
        session, self._asleep = self._asleep, None
        self.session = session
        if session is None:
            self._stuck(queue.QueueError("resume", "nothing was saved"))
            return
        try:
            self._check_places(session)
            whole = sleep.resume(session.manager)
        except (queue.QueueError, ValueError) as error:
            self._stuck(error)
            return
        session.ending = session.sleeping = False
        self._make_roots(session, clear=not whole)
        if whole:
            # BAR 2 is walked again from what was restored: nouveau tells its entry when it loads, and not again
            entry = self.memory.read(Aperture.VRAM, session.map.bar2_root, 8)
            self.events.update_bar_pde(2, int.from_bytes(entry, "little"), functions.ROOT_SHIFTS[self.chip.mmu_version])
        sleep.announce(session.manager)
        self.phase = Phase.RUNNING
        session.post(rpc.NV_VGPU_MSG_EVENT_GSP_INIT_DONE, bytes(rpc.rpc_init_done_v17_00.SIZE))
        self._work()

    def _check_places(self, session: Session) -> None:
        """Check that the arguments say that the firmware resumes, and name the same queues.

        The list of regions is not read again: nouveau frees it after INIT_DONE (r535_gsp_postinit), and keeps only the
        page of arguments. On metal what was read is in the saved state.
        """
        places = libos.arguments(self.memory, session.regions, session.release.layouts)
        if not places.resumed or replace(places, resumed=False) != session.places:
            raise queue.QueueError("resume", f"the arguments are {places}")

    def _open_queues(self, session: Session, boot: Boot) -> None:
        session.regions = libos.regions(self.memory, boot.libos_arguments)
        places = libos.arguments(self.memory, session.regions, session.release.layouts)
        session.places = replace(places, resumed=False)
        shared = queue.SharedMemory(self.memory, places.shared, places.pages)
        command = queue.ring_of_cpu(shared, places.command)
        if places.status < places.command + queue.PAGE * (command.count + 1):
            raise queue.QueueError("length", f"the status queue begins at {places.status:#x}, within the command queue")
        made = queue.make_ring(shared, places.status, places.end - places.status)
        # each reader's pointer is in its own queue's header if both sides ask for that; this side always does
        own, theirs = (made, command) if command.swapped else (command, made)
        session.receiver = queue.Receiver(shared, command, own.read_pointer)
        session.sender = queue.Sender(
            shared, made, theirs.read_pointer, is_damaged=lambda: self.faults.take(GSP_CHECKSUM)
        )
        session.note("start", f"release {session.release.name}, {command.count} and {made.count} elements")

    def _make_roots(self, session: Session, *, clear: bool = True) -> None:
        """Clear the roots of the BARs' address spaces, which the CPU fills, and tell the card where they are."""
        if clear:
            for root in (session.map.bar1_root, session.map.bar2_root):
                self.memory.write(Aperture.VRAM, root, bytes(queue.PAGE))
        self.events.bar1_page_directory(session.map.bar1_root)
        self.events.bar2_page_directory(session.map.bar2_root)

    def _work(self) -> None:
        """Carry out what the command queue holds, a few messages at a time."""
        session = self.session
        assert session is not None
        assert session.receiver is not None
        if self.waits_for_cpu:
            # the sequence itself may wait for room
            self._flush(session, again=True)
            return
        for _ in range(MESSAGES_AT_ONCE):
            try:
                message = session.receiver.receive()
            except queue.QueueError as error:
                session.violation(error.kind, str(error))
                if error.kind in NOT_CONSUMED:
                    break
                continue
            if message is None:
                break
            self._message(session, *message)
            if self.phase is Phase.STUCK:
                return
            if self.waits_for_cpu:
                break
            if session.ending:
                self._stop(session)
                return
        else:
            self._after(CALL_US, self._work)
            self._flush(session, again=False)
            return
        self._flush(session, again=True)

    def _flush(self, session: Session, *, again: bool) -> None:
        """Write what waits for room; look again later if there is none."""
        try:
            done = session.flush()
        except queue.QueueError as error:
            session.violation(error.kind, str(error))
            return
        if not done and again and self._timer is None:
            self._after(RETRY_US, self._work)

    def _message(self, session: Session, record: bytes, beyond: bytes) -> None:
        """Take one message in, and answer the call if it is complete."""
        try:
            call = self._assembler.add(record, beyond)
            if call is None or self.faults.take(GSP_SILENT):
                return
            if self.faults.take(GSP_CRASH):
                self.phase = Phase.STUCK
                self._on_crash()
                return
            answer = functions.carry_out(session, call)
            if answer is not None:
                session.post(call.function, answer.body, answer.result, answer.private, call.sequence)
        except queue.QueueError as error:
            session.violation(error.kind, str(error))
            return
        if self.phase is Phase.WAITING and session.system_info is not None and session.registry is not None:
            if self._hand_over is None:
                self._initialised(session)
            else:
                self._wait_for_cpu(session, self._hand_over)

    def _wait_for_cpu(self, session: Session, hand_over: HandOver) -> None:
        """Ask the CPU for the sequence. Nothing else is read until it has been carried out."""
        self.phase = Phase.HANDED_OVER
        words = hand_over.prepare(session.map.sec2_program)
        # the buffer has one word more than are used: NVIDIA's driver asks for that (kgspExecuteSequencerBuffer_IMPL)
        head = rpc.rpc_run_cpu_sequencer_v17_00(bufferSizeDWord=len(words) + 1, cmdIndex=len(words))
        body = bytes(struct_bytes(head)) + struct.pack(f"<{len(words)}I", *words)
        session.post(rpc.NV_VGPU_MSG_EVENT_GSP_RUN_CPU_SEQUENCER, body)

    def _up(self, session: Session) -> None:
        """The sequence was carried out: look for what the CPU has asked meanwhile."""
        try:
            self._initialised(session)
        except queue.QueueError as error:
            session.violation(error.kind, str(error))
        self._work()

    def _initialised(self, session: Session) -> None:
        """The firmware is up: tell the CPU."""
        session.initialised = True
        self.phase = Phase.RUNNING
        session.post(rpc.NV_VGPU_MSG_EVENT_GSP_INIT_DONE, bytes(rpc.rpc_init_done_v17_00.SIZE))

    def _stop(self, session: Session) -> None:
        """End after UNLOADING_GUEST_DRIVER: the answer is in the queue, and the CPU polls for the stop."""
        self._flush(session, again=False)
        if session.sleeping:
            try:
                sleep.suspend(session.manager)
            except ValueError as error:
                session.violation("memory", str(error))
        else:
            session.manager.close()
        self.phase = Phase.STOPPED
        saving = session.manager.saving if session.sleeping else None
        self.events.suspended(saving.metadata if saving is not None else 0)
