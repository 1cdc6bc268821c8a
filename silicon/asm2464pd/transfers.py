"""The host controller's view of one device: transfers queue by endpoint and stream, and move in bursts as virtual time
passes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from ringup.silicon.asm2464pd.hardware import timing
from ringup.silicon.asm2464pd.hardware.chip import Chip
from ringup.silicon.asm2464pd.hardware.endpoints import Armed, InEndpoint, Message, OutEndpoint
from ringup.silicon.asm2464pd.hardware.faults import strikes
from ringup.silicon.asm2464pd.hardware.running_firmware import Answer, Firmware, Setup, Silence
from ringup.silicon.asm2464pd.hardware.xdata import Job
from ringup.silicon.common.clock import Timer, VirtualClock

# bMaxBurst 15: packets without a pause
BURST_PACKETS = 16
EP0_64 = 64
TRANSFER_FAULTS = ("stall", "short_packet", "lost_completion")


class Transfer:
    """One transfer as its submitter sees it: `done` once its end has been handled, `data` received, `actual` bytes of
    the data stage.
    """

    def __init__(self, endpoint: int, stream: int, setup: bytes, payload: bytes, length: int) -> None:
        self.endpoint, self.stream, self.setup, self.payload, self.length = endpoint, stream, setup, payload, length
        self.done = False
        self.status = ""
        self.actual = 0
        # its status on the wire, before the host handles it
        self.ended = ""
        self.ended_ns = 0
        self.incoming = bytearray()
        # the injected fault that affects it
        self.fault = ""
        self.begun = False
        self.timer: Timer | None = None
        self.bus: Bus | None = None

    @property
    def data(self) -> bytes:
        """The bytes received so far."""
        return bytes(self.incoming)


@dataclass(slots=True)
class Count:
    """Traffic of one endpoint. `waits`: how often the host had to let time pass for it."""

    transfers: int = 0
    bytes: int = 0
    waits: int = 0


class Pipe:
    """The transfers of one endpoint and stream, oldest first. `moving`: the timer of the burst on the wire."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.queue: deque[Transfer] = deque()
        self.moving: Timer | None = None
        # the queue was empty when the last transfer came
        self.idle = True

    def add(self, transfer: Transfer) -> None:
        """Queue a transfer."""
        self.idle = not self.queue
        self.queue.append(transfer)
        self.pump()

    def drop(self, transfer: Transfer) -> None:
        """Remove a transfer that has ended; its data on the wire is lost."""
        if self.queue and self.queue[0] is transfer:
            self.stop()
        self.queue.remove(transfer)
        self.pump()

    def stop(self) -> None:
        """Cancel the burst on the wire."""
        if self.moving is not None:
            self.moving.cancel()
            self.moving = None

    def pump(self) -> None:
        """Start the next burst, if possible."""
        if self.moving is None and self.queue and not self.bus.leaving:
            first = self.queue[0]
            if not first.begun:
                first.begun = True
                if not self.bus.begins(first):
                    return
            self.move(first)

    def move(self, transfer: Transfer) -> None:
        """Put the next piece of a transfer on the wire."""
        raise NotImplementedError


class ControlPipe(Pipe):
    """Endpoint 0: SETUP, the firmware's handler, data and status."""

    # until then the firmware still reads the SETUP registers and the data of the previous request
    works_until_ns = 0

    def move(self, transfer: Transfer) -> None:
        """Send the SETUP packet, with the data stage to the device."""
        chip = self.bus.chip
        if chip.clock.now_ns < self.works_until_ns:
            # QUIRK: the handler of the previous request takes this one's registers for its own, and its last answer
            # ends this request
            chip.log.note("bridge", "violation", "a control request came while F0 was still running: it is damaged")
            self.works_until_ns = 0
            transfer.fault = "lost_completion"
        if transfer.fault == "stall":
            self.bus.end(transfer, "stall")
            return
        setup = Setup.parse(transfer.setup)
        speed = self.bus.chip.speed
        wire_us = speed.control_us / 2 + (0 if setup.to_host or not setup.length else speed.data_stage_us)
        self.moving = self.bus.chip.clock.after(wire_us, lambda: self._arrived(transfer, setup))

    def _arrived(self, transfer: Transfer, setup: Setup) -> None:
        self.bus.chip.cpu.run(
            self._handle(setup, transfer.payload), lambda answer: self._answered(transfer, setup, answer)
        )

    def _handle(self, setup: Setup, data: bytes) -> Job[Answer]:
        yield timing.CONTROL_CPU_US
        return (yield from self.bus.firmware.control(setup, data))

    def _answered(self, transfer: Transfer, setup: Setup, answer: Answer) -> None:
        if transfer.ended or transfer.fault == "lost_completion":
            return
        if answer is Silence.STALL:
            self.bus.end(transfer, "stall")
            return
        if answer is Silence.NO_REPLY:
            return
        assert isinstance(answer, bytes)
        speed, limit = self.bus.chip.speed, self.bus.chip.speed.ep0_bytes
        wire_us, hangs = speed.control_us / 2, False
        if setup.to_host and setup.length:
            wire_us += speed.data_stage_us
            reply = answer[: setup.length]
            if self.bus.chip.faults.get("ep0_64") is not None:
                reply, limit = reply[:EP0_64], EP0_64
            if transfer.fault == "short_packet":
                reply = reply[: len(reply) // 2]
            # QUIRK: no zero-length packet ends a reply of whole packets that is shorter than requested: the host waits
            # for more
            hangs = 0 < len(reply) < setup.length and not len(reply) % limit and not transfer.fault
            transfer.incoming += reply
        if hangs:
            transfer.actual = len(transfer.incoming)
            return

        def status_stage() -> None:
            after_us = self.bus.firmware.after_status_us(setup)
            self.works_until_ns = self.bus.chip.clock.now_ns + round(1_000 * after_us)
            transfer.actual = len(transfer.incoming) if setup.to_host else len(transfer.payload)
            self.bus.end(transfer, "completed")

        self.moving = self.bus.chip.clock.after(wire_us, status_stage)


class BulkPipe(Pipe):
    """A bulk endpoint, or one stream of it."""

    def __init__(self, bus: Bus, endpoint: OutEndpoint | InEndpoint, stream: int) -> None:
        super().__init__(bus)
        self.endpoint, self.stream = endpoint, stream

    def move(self, transfer: Transfer) -> None:
        """Put the next burst of a transfer on the wire, if the device accepts or has one."""
        if transfer.fault == "stall":
            self.endpoint.halted = True
            transfer.fault = ""
        if self.endpoint.halted:
            self.bus.end(transfer, "stall")
        elif isinstance(self.endpoint, OutEndpoint):
            self._move_out(transfer, self.endpoint)
        else:
            self._move_in(transfer, self.endpoint)

    def _after(self, size_bytes: int, bytes_per_us: float, action: Callable[[], None]) -> None:
        """Run `action` once a burst has crossed the wire, which other transfers may occupy."""
        start_us = timing.BULK_START_US if self.idle else 0.0
        self.idle = False
        speed = self.bus.chip.speed
        wire_us = self.bus.occupy(self.endpoint.address & 0x80, size_bytes / speed.bytes_per_us)
        self.moving = self.bus.chip.clock.after(start_us + max(wire_us, size_bytes / bytes_per_us), action)

    def _move_out(self, transfer: Transfer, endpoint: OutEndpoint) -> None:
        armed = endpoint.armed(self.stream)
        if armed is None:
            return
        packet = self.bus.chip.speed.packet_bytes
        left = len(transfer.payload) - transfer.actual
        count = self.bus.allowed(min(left, armed.left, BURST_PACKETS * packet))
        if count < 0:
            return
        self._after(count, armed.bytes_per_us, lambda: self._sent(transfer, endpoint, armed, count))

    def _sent(self, transfer: Transfer, endpoint: OutEndpoint, armed: Armed, count: int) -> None:
        if endpoint.armed(self.stream) is armed:
            data = transfer.payload[transfer.actual : transfer.actual + count]
            transfer.actual += count
            left = len(transfer.payload) - transfer.actual
            packet = self.bus.chip.speed.packet_bytes
            endpoint.deliver(self.stream, data, short=not left and bool(count % packet or not count), more=left > 0)
            self.bus.carried(transfer, count)
            if not left and not transfer.ended and transfer.fault != "lost_completion":
                self.moving = None
                self.bus.end(transfer, "completed")
                return
            if not left:
                # the host gets no completion: nothing more of this pipe moves
                return
        if not transfer.ended:
            self.moving = None
            self.pump()

    def _move_in(self, transfer: Transfer, endpoint: InEndpoint) -> None:
        message = endpoint.waiting(self.stream)
        if message is None:
            return
        packet = self.bus.chip.speed.packet_bytes
        left, room = len(message.data) - message.sent, transfer.length - transfer.actual
        if room < min(left, packet):
            self.bus.end(transfer, "overflow")
            return
        fits = left if left <= room else room // packet * packet
        count = self.bus.allowed(min(fits, BURST_PACKETS * packet))
        if count < 0:
            return
        self._after(count, message.bytes_per_us, lambda: self._received(transfer, endpoint, message, count))

    def _received(self, transfer: Transfer, endpoint: InEndpoint, message: Message, count: int) -> None:
        self.moving = None
        if endpoint.waiting(self.stream) is message:
            data = bytes(message.data[message.sent : message.sent + count])
            packet = self.bus.chip.speed.packet_bytes
            short = message.sent + count == len(message.data) and (bool(count % packet) or not count)
            if transfer.fault == "short_packet":
                data, short, count = data[: count // 2], True, len(message.data) - message.sent
            transfer.incoming += data
            transfer.actual = len(transfer.incoming)
            self.bus.carried(transfer, len(data))
            finished = short or transfer.actual == transfer.length
            if finished and transfer.fault != "lost_completion" and not transfer.ended:
                self.bus.end(transfer, "completed", pump=False)
            elif finished:
                # the host gets no completion: nothing more of this pipe moves
                self.moving = Timer(0, lambda: None)
            endpoint.fetched(self.stream, message, count)
        self.pump()


class Bus:
    """One attached device on a host: its pipes, its wire, its disconnection."""

    def __init__(
        self,
        chip: Chip,
        firmware: Firmware,
        clock: VirtualClock,
        finished: deque[Transfer],
        leave: Callable[[bool], None],
    ) -> None:
        """`finished` gets the transfers that have ended; `leave(returns)` takes the device off the bus."""
        self.chip, self.firmware = chip, firmware
        self._clock, self._finished, self._leave = clock, finished, leave
        self.connected, self.leaving = True, False
        self.counts: dict[int, Count] = {}
        # when each direction of the wire becomes free
        self._free_ns = {0: 0, 0x80: 0}
        self.control = ControlPipe(self)
        self._bulk: dict[tuple[int, int], BulkPipe] = {}
        for endpoint in chip.endpoints.values():
            endpoint.on_ready = self._ready(endpoint.address)

    def _ready(self, address: int) -> Callable[[], None]:
        def pump() -> None:
            for (endpoint, _), pipe in list(self._bulk.items()):
                if endpoint == address:
                    pipe.pump()

        return pump

    def pipe(self, transfer: Transfer) -> Pipe:
        """Return the pipe of a transfer."""
        if not transfer.endpoint:
            return self.control
        key = transfer.endpoint, transfer.stream
        if key not in self._bulk:
            self._bulk[key] = BulkPipe(self, self.chip.endpoints[transfer.endpoint], transfer.stream)
        return self._bulk[key]

    def submit(self, transfer: Transfer, timeout_ms: int) -> None:
        """Queue a transfer. It ends by itself, by its time-out, or with the device."""
        transfer.bus = self
        if timeout_ms:
            transfer.timer = self._clock.after(1_000 * timeout_ms, lambda: self.end(transfer, "timed_out"))
        self.pipe(transfer).add(transfer)

    def begins(self, transfer: Transfer) -> bool:
        """Apply faults to a transfer whose turn it is; return False if the device has left."""
        count = self.counts.setdefault(transfer.endpoint, Count())
        count.transfers += 1
        faults = self.chip.faults
        if strikes(faults, "disconnect_and_return"):
            self._leave_bus(returns=True)
        elif strikes(faults, "disconnect_after_transfers"):
            self._leave_bus(returns=False)
        if self.leaving:
            return False
        transfer.fault = next((name for name in TRANSFER_FAULTS if strikes(faults, name)), "")
        return True

    def allowed(self, size_bytes: int) -> int:
        """Return how many bytes of a burst still cross; below 0 the device has left instead."""
        left = self.chip.faults.get("disconnect_after_bytes")
        if left is None or left > size_bytes:
            return size_bytes
        if left > 0:
            return left
        self.chip.faults.clear("disconnect_after_bytes")
        self._leave_bus(returns=False)
        return -1

    def _leave_bus(self, *, returns: bool) -> None:
        """Stop all traffic; the host sees the disconnection as soon as time passes."""
        self.leaving = True
        self._clock.after(0, lambda: self._leave(returns))

    def carried(self, transfer: Transfer, size_bytes: int) -> None:
        """Count bulk data that has crossed."""
        self.counts[transfer.endpoint].bytes += size_bytes
        self.chip.faults.reached("disconnect_after_bytes", size_bytes)

    def occupy(self, direction: int, time_us: float) -> float:
        """Occupy the wire for `time_us` once it is free; return the end of that, relative to now."""
        now = self._clock.now_ns
        self._free_ns[direction] = max(now, self._free_ns[direction]) + round(time_us * 1_000)
        return (self._free_ns[direction] - now) / 1_000

    def end(self, transfer: Transfer, status: str, *, pump: bool = True) -> None:
        """End a transfer on the wire; the host sees it when it handles events."""
        if transfer.ended:
            return
        transfer.ended, transfer.ended_ns = status, self._clock.now_ns
        if transfer.timer is not None:
            transfer.timer.cancel()
        if not transfer.endpoint:
            self.counts.setdefault(0, Count()).bytes += transfer.actual
        self._finished.append(transfer)
        pipe = self.pipe(transfer)
        if pump:
            pipe.drop(transfer)
        else:
            pipe.queue.remove(transfer)

    def disconnect(self) -> None:
        """End every transfer: the device is gone."""
        self.connected = False
        for endpoint in self.chip.endpoints.values():
            endpoint.on_ready = lambda: None
        for pipe in (self.control, *self._bulk.values()):
            pipe.stop()
            pending, pipe.queue = list(pipe.queue), deque()
            for transfer in pending:
                if transfer.timer is not None:
                    transfer.timer.cancel()
                transfer.ended, transfer.ended_ns = "no_device", self._clock.now_ns
                self._finished.append(transfer)

    def cancel_all(self) -> None:
        """End every pending transfer as cancelled, as a reset of the port does."""
        for pipe in (self.control, *self._bulk.values()):
            for transfer in list(pipe.queue):
                self.end(transfer, "cancelled")
