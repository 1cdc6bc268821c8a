"""What a queue needs of the packets of its engine, whatever its vendor."""

from __future__ import annotations

import struct
from typing import Protocol


class Commands(Protocol):
    """The packets of an engine that a queue itself needs, as bytes that are ready to store."""

    @property
    def kind(self) -> str:
        """The kind of packets, such as `pm4`; a stream of another kind is refused."""
        ...

    @property
    def begin(self) -> bytes:
        """The start of every submission. It invalidates caches: others may have written the memory behind them."""
        ...

    @property
    def pad(self) -> bytes:
        """A packet that does nothing. Submissions and indirect buffers are padded to a multiple of eight such packets.
        Empty for an engine that accepts any length.
        """
        ...

    def padding(self, count: int) -> bytes:
        """Return packets that do nothing and are as long as `count` times `pad`. `count` is 0 to 7. The packets are as
        few as possible.
        """
        ...

    def signal(self, gpu_va: int, value: int) -> bytes:
        """Store `value` at `gpu_va` when all earlier work is done and visible, then interrupt the host. `signal_places`
        says where the value is in these bytes.
        """
        ...

    @property
    def signal_places(self) -> tuple[tuple[int, struct.Struct, int], ...]:
        """Where the value is in the bytes of `signal`: (byte, format, right shift of the value), for each part. Empty
        if the queue's `_sign` stores it elsewhere.
        """
        ...

    def wait(self, gpu_va: int, value: int) -> bytes:
        """Wait until the low 32 bits at `gpu_va` are at least those of `value`, unsigned."""
        ...

    def call(self, gpu_va: int, size_bytes: int, at_bytes: int) -> bytes:
        """Run an indirect buffer. `at_bytes`: where in the ring the packet is, for engines that need it aligned."""
        ...

    @property
    def call_period(self) -> int:
        """The period of `call` in bytes: calls at places that differ by a multiple of it have equal bytes."""
        ...
