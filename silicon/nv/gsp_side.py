"""The card's side of the GSP's firmware: memory by physical address, the interrupt line, and what the resource manager
does to the card. It has the shapes of `gsp/ports.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from ringup.silicon.common.log import EventLog
from ringup.silicon.common.memory import HostMemory, Vram
from ringup.silicon.nv.board.falcon import IRQ_SWGEN0, Falcon
from ringup.silicon.nv.board.power import Power
from ringup.silicon.nv.common.usage import Usage
from ringup.silicon.nv.host.host import Host
from ringup.silicon.nv.memory import gmmu
from ringup.silicon.nv.memory.windows import Windows
from ringup.silicon.nv.rm.parts import Aperture, Channel

SUSPENDED = 1 << 31


class GspMemory:
    """Memory as the GSP reaches it, protected region included."""

    def __init__(self, vram: Vram, host: HostMemory) -> None:
        self._vram, self._host = vram, host

    def read(self, aperture: Aperture, address: int, size_bytes: int) -> bytes:
        """Return bytes. Raises `ValueError` for an address that the card cannot reach."""
        self._check(aperture, address, size_bytes)
        return (
            self._vram.read(address, size_bytes) if aperture is Aperture.VRAM else self._host.read(address, size_bytes)
        )

    def write(self, aperture: Aperture, address: int, data: bytes) -> None:
        """Store bytes. Raises `ValueError` for an address that the card cannot reach."""
        self._check(aperture, address, len(data))
        if aperture is Aperture.VRAM:
            self._vram.write(address, data)
        else:
            self._host.write(address, data)

    def _check(self, aperture: Aperture, address: int, size_bytes: int) -> None:
        if aperture is Aperture.VRAM:
            if not 0 <= address <= self._vram.size_bytes - size_bytes:
                raise ValueError(f"VRAM {address:#x} is beyond the board's {self._vram.size_bytes:#x} bytes")
        elif self._host.find(address) is None:
            raise ValueError(f"nothing answers at bus address {address:#x}")


class GspEvents:
    """What the firmware does to the card. `falcon` is the GSP's."""

    def __init__(self, falcon: Falcon, windows: Windows, host: Host, power: Power, log: EventLog) -> None:
        self._falcon, self._windows, self._host, self._power, self._log = falcon, windows, host, power, log
        self._bar2: gmmu.Directory | None = None
        # called when the firmware has stopped
        self.on_suspended: Callable[[int], None] = lambda metadata: None

    def interrupt(self) -> None:
        """Raise SWGEN0 of the GSP's falcon: the status queue has a message."""
        self._falcon.raise_irq(IRQ_SWGEN0)

    def suspended(self, metadata: int) -> None:
        """Set bit 31 of the GSP's mailbox 0: the firmware has stopped. `metadata`: see `gsp/ports.py`."""
        self._falcon.mailbox0.value |= SUSPENDED
        self.on_suspended(metadata)

    def bar1_page_directory(self, address: int) -> None:
        """Walk BAR 1 from this page of VRAM."""
        self._windows.bar1.bind(gmmu.Directory(gmmu.Aperture.VIDEO, address))

    def bar2_page_directory(self, address: int) -> None:
        """Remember which page of VRAM BAR 2 is walked from, once there is an entry in it.

        GUESS: until then, and after the entry is removed, its addresses are physical. nouveau flushes writes by reading
        byte 0 of BAR 2 in these times (bar/r535.c, flushBAR2PhysMode).
        """
        self._bar2 = gmmu.Directory(gmmu.Aperture.VIDEO, address)

    def update_bar_pde(self, bar: int, entry_value: int, level_shift: int) -> None:
        """Walk a BAR again: an entry of its root has changed."""
        if bar == 1:
            self._windows.bar1.bind(self._windows.bar1.directory)
        else:
            self._windows.bar2.bind(self._bar2 if entry_value else None)

    # --- channels -------------------------------------------------------------------------------------------------
    def channel_allocated(self, channel: Channel) -> None:
        """Add a channel to the host."""
        self._log.note("host", "channel", "channel {} on runlist {} is allocated", channel.number, channel.runlist)
        self._host.add(channel)

    def channel_bound(self, channel: Channel) -> None:
        """Note that a channel was bound to an engine."""
        self._log.note("host", "channel", "channel {} is bound to engine {}", channel.number, channel.engine_type)

    def channel_scheduled(self, channel: Channel, enable: bool) -> None:
        """Let a channel run, or stop it."""
        self._log.note("host", "channel", "channel {}: scheduled {}", channel.number, enable)
        self._host.schedule(channel, enable)

    def channel_stopped(self, channel: Channel) -> None:
        """Stop a channel."""
        self._log.note("host", "channel", "channel {} is stopped", channel.number)
        self._host.schedule(channel, enable=False)

    def channel_saved(self, channel: Channel) -> None:
        """Keep a channel's state over a sleep."""
        self._host.save(channel)

    def channel_freed(self, channel: Channel) -> None:
        """Remove a channel from the host."""
        self._log.note("host", "channel", "channel {} is freed", channel.number)
        self._host.remove(channel)

    def page_directory_set(self, channel: Channel) -> None:
        """Note that a channel's page directory has changed; the host reads it in the instance block."""
        self._log.note("host", "channel", "channel {} has page directory {}", channel.number, channel.page_directory)

    def fault_buffer(self, replayable: bool, pages: tuple[int, ...] | None) -> None:
        """Put page faults that may be replayed into these pages from now on; None: into none."""
        if replayable and self._host.replayable is not None:
            self._host.replayable.enable(pages)

    def fault_reported(self, channel: Channel) -> None:
        """Stop a channel whose page fault the CPU could not handle."""
        self._host.cancel_faults(lambda one: one is channel)

    # --- sensors ----------------------------------------------------------------------------------------------------
    def celsius(self) -> int:
        """Return what the sensor in the GPU shows."""
        return self._power.celsius

    def usage(self) -> tuple[Usage, ...]:
        """Return the samples of the last 10 s, oldest first."""
        return self._power.usage()
