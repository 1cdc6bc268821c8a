"""One peer of one function: the execution of its commands. Messages in, answers out; the server owns the socket."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Protocol

from ringup.autogen.linux import vfio
from ringup.errors import DeviceLost
from ringup.silicon.serve import vfio_user_wire as wire
from ringup.silicon.serve.vfio_user_function import REGIONS, ServedFunction
from ringup.silicon.serve.vfio_user_irqs import INTX, KINDS, MSI, Irqs
from ringup.silicon.serve.vfio_user_memory import PeerMemory
from ringup.silicon.serve.vfio_user_wire import Answer, Command, Message, Refused, fields, sized_fields

DEVICE_FLAGS = vfio.VFIO_DEVICE_FLAGS_PCI | vfio.VFIO_DEVICE_FLAGS_RESET


class Peer(Protocol):
    """The peer, which can be asked for memory that it shares without a descriptor."""

    def ask(self, command: Command, payload: bytes) -> bytes:
        """Send a command and return the answer's payload. Raises `OSError` if there is none, or it is a refusal."""
        ...


class Session:
    """A peer's DMA maps and eventfds. `close` drops them; the card keeps its state."""

    def __init__(self, function: ServedFunction, peer: Peer) -> None:
        self.function, self._peer = function, peer
        # whether a version has been agreed on
        self.agreed = False
        self.max_bytes = wire.MAX_DATA_BYTES
        self.takes_descriptors, self.takes_twin = True, False
        self.irqs = Irqs(function.irq_counts)
        self.memory = PeerMemory(function.host, self._fetch, self._send)
        self._commands: dict[int, Callable[[Message], Answer]] = {
            Command.VERSION: self._version,
            Command.DMA_MAP: self._dma_map,
            Command.DMA_UNMAP: self._dma_unmap,
            Command.DEVICE_GET_INFO: self._device_info,
            Command.DEVICE_GET_REGION_INFO: self._region_info,
            Command.DEVICE_GET_IRQ_INFO: self._irq_info,
            Command.DEVICE_SET_IRQS: self._set_irqs,
            Command.REGION_READ: self._read,
            Command.REGION_WRITE: self._write,
            Command.REGION_WRITE_MULTI: self._write_multi,
            Command.DEVICE_RESET: self._reset,
            Command.DEVICE_FEATURE: self._feature,
        }

    def serve(self, message: Message) -> Answer:
        """Execute a command. Raises `Refused`, or the card's `RingupError`."""
        if not self.agreed and message.command != Command.VERSION:
            raise Refused(errno.EPROTO, f"{message.name} before a version was agreed on")
        action = self._commands.get(message.command)
        if action is None:
            raise Refused(errno.EOPNOTSUPP, message.name)
        return action(message)

    def close(self) -> None:
        """Drop what the peer shared; from now on vectors wait for the next peer."""
        if self.agreed:
            self.function.card.interrupts.listen(None)
        self.memory.clear()
        self.irqs.close()

    def _version(self, message: Message) -> Answer:
        if self.agreed:
            raise Refused(errno.EINVAL, "a version has already been agreed on")
        payload, capabilities = wire.agree(message.payload)
        max_bytes = wire.number(capabilities, "max_data_xfer_size", wire.MAX_DATA_BYTES)
        self.max_bytes = min(max_bytes, wire.MAX_DATA_BYTES)
        self.takes_descriptors = wire.number(capabilities, "max_msg_fds", 1) > 0
        twin = capabilities.get("twin_socket")
        self.takes_twin = isinstance(twin, dict) and twin.get("supported") is True and self.takes_descriptors
        self.agreed = True
        self.function.card.interrupts.listen(self._interrupt)
        return Answer(payload)

    def _dma_map(self, message: Message) -> Answer:
        _, flags, offset, address, size_bytes = sized_fields(wire.DMA_MAP, message.payload)
        if len(message.descriptors) > 1:
            raise Refused(errno.EINVAL, f"{len(message.descriptors)} descriptors for one DMA map")
        descriptor = message.descriptors[0] if message.descriptors else None
        self.memory.map(address, size_bytes, offset, flags, descriptor)
        return Answer()

    def _dma_unmap(self, message: Message) -> Answer:
        _, flags, address, size_bytes = sized_fields(wire.DMA_UNMAP, message.payload)
        self.memory.unmap(address, size_bytes, flags)
        return Answer(message.payload[: wire.DMA_UNMAP.size])

    def _device_info(self, message: Message) -> Answer:
        sized_fields(wire.DEVICE_INFO, message.payload)
        return Answer(wire.DEVICE_INFO.pack(wire.DEVICE_INFO.size, DEVICE_FLAGS, REGIONS, KINDS))

    def _region_info(self, message: Message) -> Answer:
        room, _, index, _, _, _ = sized_fields(wire.REGION_INFO, message.payload)
        if index >= REGIONS:
            raise Refused(errno.EINVAL, f"region {index} of {REGIONS}")
        region = self.function.region(index, can_map=self.takes_descriptors)
        payload = wire.region_info(index, region.size_bytes, region.flags, region.areas, room)
        return Answer(payload, () if region.descriptor is None else (region.descriptor,))

    def _irq_info(self, message: Message) -> Answer:
        _, _, index, _ = sized_fields(wire.IRQ_INFO, message.payload)
        if index >= KINDS:
            raise Refused(errno.EINVAL, f"interrupts of kind {index}")
        return Answer(wire.IRQ_INFO.pack(wire.IRQ_INFO.size, self.irqs.flags(index), index, self.irqs.counts[index]))

    def _set_irqs(self, message: Message) -> Answer:
        _, flags, index, start, count = sized_fields(wire.IRQ_SET, message.payload)
        self._update_intx()
        self.irqs.set(index, start, count, flags, message.payload[wire.IRQ_SET.size :], message.descriptors)
        if index == MSI and self.function.irq_kind == MSI and self.function.intx_up:
            # the interrupt was a level while the vector had no eventfd, and has not been handled yet
            self.irqs.signal(MSI, 0)
        return Answer()

    def _span(self, payload: bytes) -> tuple[int, int, int]:
        offset, region, count = fields(wire.ACCESS, payload)
        if count > wire.MAX_DATA_BYTES:
            raise Refused(errno.EINVAL, f"a transfer of {count} bytes; the limit is {wire.MAX_DATA_BYTES}")
        return offset, region, count

    def _read(self, message: Message) -> Answer:
        offset, region, count = self._span(message.payload)
        data = self.function.read(region, offset, count)
        self._update_intx()
        return Answer(wire.ACCESS.pack(offset, region, count) + data)

    def _write(self, message: Message) -> Answer:
        offset, region, count = self._span(message.payload)
        data = message.payload[wire.ACCESS.size : wire.ACCESS.size + count]
        if len(data) != count:
            raise Refused(errno.EINVAL, f"{len(data)} bytes of data where the message states {count}")
        self.function.write(region, offset, data)
        self._update_intx()
        return Answer(wire.ACCESS.pack(offset, region, count))

    def _write_multi(self, message: Message) -> Answer:
        (count,) = fields(wire.MULTI, message.payload)
        entries = message.payload[wire.MULTI.size :]
        if count * wire.MULTI_ENTRY.itemsize != len(entries):
            raise Refused(errno.EINVAL, f"{len(entries)} bytes are not {count} writes")
        for region, offset, size_bytes, data in wire.runs(entries):
            self.function.write_run(region, offset, data, size_bytes)
        self._update_intx()
        return Answer(wire.MULTI.pack(count))

    def _reset(self, message: Message) -> Answer:
        self.irqs.forget()
        try:
            self.function.reset()
        except DeviceLost as lost:
            # This is no mistake of the peer: a virtual machine resets its devices without checking them.
            raise Refused(errno.ENODEV, str(lost)) from lost
        return Answer()

    def _feature(self, message: Message) -> Answer:
        _, flags = fields(wire.FEATURE, message.payload)
        raise Refused(errno.ENOTTY, f"feature {flags & 0xFFFF}: this device does not support migration")

    def _interrupt(self, vector: int) -> None:
        """Handle a vector from the card."""
        kind = self.function.irq_kind
        if kind == INTX:
            self._update_intx()
        elif vector < self.irqs.counts[kind]:
            self.irqs.signal(kind, vector)

    def _update_intx(self) -> None:
        up = self.function.irq_kind == INTX and self.function.intx_up
        if up != self.irqs.intx_up:
            self.irqs.intx(up)

    def _fetch(self, address: int, size_bytes: int) -> bytes:
        """Read bytes of the peer's memory by messages. Raises `OSError`."""
        parts = []
        for at in range(0, size_bytes, self.max_bytes):
            count = min(self.max_bytes, size_bytes - at)
            answer = self._peer.ask(Command.DMA_READ, wire.DMA_ACCESS.pack(address + at, count))
            data = answer[wire.DMA_ACCESS.size :]
            if len(data) != count:
                raise OSError(errno.EIO, f"{len(data)} bytes of memory where {count} were requested")
            parts.append(data)
        return b"".join(parts)

    def _send(self, address: int, data: bytes) -> None:
        """Write bytes to the peer's memory by messages. Raises `OSError`."""
        for at in range(0, len(data), self.max_bytes):
            piece = data[at : at + self.max_bytes]
            answer = self._peer.ask(Command.DMA_WRITE, wire.DMA_ACCESS.pack(address + at, len(piece)) + piece)
            # QUIRK: QEMU (11) answers with a header only
            if answer and wire.dma_written(answer) != len(piece):
                raise OSError(errno.EIO, f"the peer wrote fewer than the {len(piece)} bytes that were sent")
