"""One peer at one function: what its commands do. Messages in, answers out; the socket is the server's."""

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
    """The other end, which can be asked for memory that it did not share."""

    def ask(self, command: Command, payload: bytes) -> bytes:
        """Send a command and return the answer's payload. Raises `OSError` where none comes, or a refusal."""
        ...


class Session:
    """What a peer has set up: DMA maps, eventfds. `close` forgets it; the card stays as it is."""

    def __init__(self, function: ServedFunction, peer: Peer) -> None:
        self.function, self._peer = function, peer
        self.agreed = False  # on a version
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
        """Do what a command asks. Raises `Refused`, or the card's `RingupError`."""
        if not self.agreed and message.command != Command.VERSION:
            raise Refused(errno.EPROTO, f"{message.name} before a version was agreed on")
        action = self._commands.get(message.command)
        if action is None:
            raise Refused(errno.EOPNOTSUPP, message.name)
        return action(message)

    def close(self) -> None:
        """Let go of what the peer shared; vectors that come from now on wait for the next one."""
        if self.agreed:
            self.function.card.interrupts.listen(None)
        self.memory.clear()
        self.irqs.close()

    def _version(self, message: Message) -> Answer:
        if self.agreed:
            raise Refused(errno.EINVAL, "a version was agreed on already")
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
        self._look_at_intx()
        self.irqs.set(index, start, count, flags, message.payload[wire.IRQ_SET.size :], message.descriptors)
        if index == MSI and self.function.irq_kind == MSI and self.function.intx_up:
            self.irqs.signal(MSI, 0)  # it came as a level while the vector was away, and nobody has seen to it yet
        return Answer()

    def _span(self, payload: bytes) -> tuple[int, int, int]:
        offset, region, count = fields(wire.ACCESS, payload)
        if count > wire.MAX_DATA_BYTES:
            raise Refused(errno.EINVAL, f"a transfer of {count} bytes; {wire.MAX_DATA_BYTES} are the most")
        return offset, region, count

    def _read(self, message: Message) -> Answer:
        offset, region, count = self._span(message.payload)
        data = self.function.read(region, offset, count)
        self._look_at_intx()
        return Answer(wire.ACCESS.pack(offset, region, count) + data)

    def _write(self, message: Message) -> Answer:
        offset, region, count = self._span(message.payload)
        data = message.payload[wire.ACCESS.size : wire.ACCESS.size + count]
        if len(data) != count:
            raise Refused(errno.EINVAL, f"{len(data)} bytes of data where {count} are announced")
        self.function.write(region, offset, data)
        self._look_at_intx()
        return Answer(wire.ACCESS.pack(offset, region, count))

    def _write_multi(self, message: Message) -> Answer:
        (count,) = fields(wire.MULTI, message.payload)
        entries = message.payload[wire.MULTI.size :]
        if count * wire.MULTI_ENTRY.size != len(entries):
            raise Refused(errno.EINVAL, f"{len(entries)} bytes are not {count} writes")
        writes = list(wire.MULTI_ENTRY.iter_unpack(entries))
        if any(size_bytes > len(data) for _, _, size_bytes, data in writes):
            raise Refused(errno.EINVAL, "a write of more than 8 bytes among many")
        for offset, region, size_bytes, data in writes:
            self.function.write(region, offset, data[:size_bytes])
        self._look_at_intx()
        return Answer(wire.MULTI.pack(count))

    def _reset(self, message: Message) -> Answer:
        self.irqs.forget()
        try:
            self.function.reset()
        except DeviceLost as lost:
            # No mistake of the peer's: a virtual machine resets its devices without a look at them.
            raise Refused(errno.ENODEV, str(lost)) from lost
        return Answer()

    def _feature(self, message: Message) -> Answer:
        _, flags = fields(wire.FEATURE, message.payload)
        raise Refused(
            errno.ENOTTY, f"feature {flags & 0xFFFF}: this device cannot be moved to another machine while it runs"
        )

    def _interrupt(self, vector: int) -> None:
        """Take a vector from the card."""
        kind = self.function.irq_kind
        if kind == INTX:
            self._look_at_intx()
        elif vector < self.irqs.counts[kind]:
            self.irqs.signal(kind, vector)

    def _look_at_intx(self) -> None:
        up = self.function.irq_kind == INTX and self.function.intx_up
        if up != self.irqs.intx_up:
            self.irqs.intx(up)

    def _fetch(self, address: int, size_bytes: int) -> bytes:
        """Ask the peer for bytes of its memory. Raises `OSError`."""
        parts = []
        for at in range(0, size_bytes, self.max_bytes):
            count = min(self.max_bytes, size_bytes - at)
            answer = self._peer.ask(Command.DMA_READ, wire.DMA_ACCESS.pack(address + at, count))
            data = answer[wire.DMA_ACCESS.size :]
            if len(data) != count:
                raise OSError(errno.EIO, f"{len(data)} bytes of memory where {count} were asked for")
            parts.append(data)
        return b"".join(parts)

    def _send(self, address: int, data: bytes) -> None:
        """Give the peer bytes for its memory. Raises `OSError`."""
        for at in range(0, len(data), self.max_bytes):
            piece = data[at : at + self.max_bytes]
            answer = self._peer.ask(Command.DMA_WRITE, wire.DMA_ACCESS.pack(address + at, len(piece)) + piece)
            if answer and wire.dma_written(answer) != len(piece):  # QUIRK: QEMU (11) answers with a header alone
                raise OSError(errno.EIO, f"fewer bytes of memory were written than the {len(piece)} that were sent")
